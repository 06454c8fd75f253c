"""The supervisor's two sockets, for lines of JSON: one for its programs, one for the manager's orders.

Programs know only theirs. Orders that come there are not carried out, so that a job, in a container or under
its own user, cannot end or freeze another one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Iterable

from trainmaster.engines.local.privileges import CLOSED, OPEN, is_users
from trainmaster.engines.local.socket_paths import for_orders
from trainmaster.model.launch_spec import Account
from trainmaster_sdk.wire import Message, MessageReader, encode_message

MOST_UNREAD = 8 << 20
"""Unread bytes after which a connection is closed; the other side may connect again."""


class Connection:
    """One connection: a program's rank, a follower of the journal, or a client with an order."""

    def __init__(self, accepted: socket.socket, may_order: bool) -> None:
        self.socket = accepted
        self.may_order = may_order
        """Whether it came by the socket for orders."""
        self.lines = MessageReader()
        self.unread = bytearray()
        self.rank: int | None = None
        """By its hello: its number, which is its rank unless the run was resized since."""
        self.counts = False
        """Whether it reports counted steps."""
        self.follows = False
        self.is_gone = False


class ControlSocket:
    """Listens on both, and passes on every line with the connection that it came from."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        on_line: Callable[[Connection, Message], None],
        account: Account | None = None,
    ) -> None:
        self._paths = {for_orders(path): True, path: False}
        """Each with whether orders are taken there; that one first, so that it is there if the other is."""
        self._account = account
        """Whose programs connect to it."""
        self._selector = selector
        self._on_line = on_line
        self._connections: list[Connection] = []
        self._listeners: dict[str, socket.socket] = {}
        self.listen()

    def listen(self) -> None:
        """Bind again if a socket file was removed: cleaners of /tmp do that."""
        for path, may_order in self._paths.items():
            former = self._listeners.get(path)
            if former is not None and os.path.exists(path):
                continue
            if former is not None:
                self._selector.unregister(former)
                former.close()
            self._listeners[path] = self._bound(path, None if may_order else self._account)

    def _bound(self, path: str, account: Account | None) -> socket.socket:
        """Closed to everybody but us, and the account that is to connect."""
        mode = OPEN if is_users(self._account) else CLOSED
        os.makedirs(os.path.dirname(path), mode=mode, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        if is_users(account):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
        listener.listen(128)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, lambda _: self._accept(path))
        return listener

    def ranks(self) -> set[int]:
        """Ranks that have sent `hello`."""
        return {connection.rank for connection in self._connections if connection.rank is not None}

    def are_steps_counted(self) -> bool:
        """Whether steps are counted of processes that are connected: those train without the SDK."""
        return any(connection.counts for connection in self._connections)

    def send_to_ranks(self, said: Message) -> None:
        for connection in [*self._connections]:
            if connection.rank is not None:
                self.say(connection, [said])

    def send_to_rank(self, number: int, said: Message) -> None:
        """To one process, if it is connected."""
        for connection in [*self._connections]:
            if connection.rank == number:
                self.say(connection, [said])

    def rank_connections(self) -> list[Connection]:
        """Connections of ranks."""
        return [each for each in self._connections if each.rank is not None]

    def send_to_programs(self, said: Message) -> None:
        """Ranks, and processes whose steps are counted."""
        for connection in [*self._connections]:
            if connection.rank is not None or connection.counts:
                self.say(connection, [said])

    def send_to_followers(self, said: Iterable[Message]) -> None:
        messages = [*said]
        for connection in [*self._connections]:
            if connection.follows:
                self.say(connection, messages)

    def say(self, connection: Connection, said: Iterable[Message]) -> None:
        for line in said:
            connection.unread += encode_message(line)
            if len(connection.unread) > 1 << 16:
                self._flush(connection)
        self._flush(connection)
        if len(connection.unread) > MOST_UNREAD:
            self._disconnect(connection)

    def refuse(self, connection: Connection) -> None:
        """Close a connection that gives orders where none are taken; a manager connects again, rightly."""
        self._disconnect(connection)

    def forget_ranks(self) -> None:
        """Those programs have ended: a later hello comes from another one."""
        for connection in self._connections:
            connection.rank = None

    def drain(self) -> None:
        """Read what was already sent, also by programs that have ended since."""
        for _ in range(128):
            before = len(self._connections)
            for path in self._paths:
                self._accept(path)
            if len(self._connections) == before:
                break
        for connection in [*self._connections]:
            while not connection.is_gone and self._read(connection):
                pass

    @property
    def has_unread(self) -> bool:
        return any(connection.unread for connection in self._connections)

    def close(self) -> None:
        for connection in [*self._connections]:
            self._disconnect(connection)
        for path, listener in self._listeners.items():
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _accept(self, path: str) -> None:
        with contextlib.suppress(BlockingIOError):
            accepted, _ = self._listeners[path].accept()
            accepted.setblocking(False)
            connection = Connection(accepted, self._paths[path])
            self._connections.append(connection)
            self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unread else 0)

        def ready(mask: int) -> None:
            if mask & selectors.EVENT_WRITE:
                self._flush(connection)
            if mask & selectors.EVENT_READ and not connection.is_gone:
                self._read(connection)

        if connection.socket in self._selector.get_map():
            self._selector.modify(connection.socket, wanted, ready)
        else:
            self._selector.register(connection.socket, wanted, ready)

    def _read(self, connection: Connection) -> bool:
        """Read one piece; False when nothing is there."""
        try:
            piece = connection.socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        for said in connection.lines.feed(piece):
            if not connection.is_gone:
                self._on_line(connection, said)
        if not piece:
            self._disconnect(connection)
        return bool(piece)

    def _flush(self, connection: Connection) -> None:
        had = bool(connection.unread)
        try:
            while connection.unread and not connection.is_gone:
                del connection.unread[: connection.socket.send(connection.unread)]
        except BlockingIOError:
            pass
        except OSError:
            self._disconnect(connection)
        if had and not connection.is_gone:
            self._watch(connection)

    def _disconnect(self, connection: Connection) -> None:
        if connection.is_gone:
            return
        connection.is_gone = True
        self._connections.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
