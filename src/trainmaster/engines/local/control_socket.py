"""The supervisor's socket: programs, the daemon and tools talk to it in lines."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Iterable

from trainmaster.sdk.wire import Line, Lines, line_of

MOST_UNREAD = 8 << 20
"""Bytes that wait for somebody who does not read; beyond it he is hung up on, and may come again."""


class Caller:
    """One connection: a program's rank, a follower of the journal, or somebody with an order."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lines = Lines()
        self.unread = bytearray()
        self.rank: int | None = None
        """Set by its hello."""
        self.follows = False
        self.is_gone = False


class Switchboard:
    """Listens, and hands every line over together with its caller."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        heard: Callable[[Caller, Line], None],
    ) -> None:
        self._path = path
        self._selector = selector
        self._heard = heard
        self._callers: list[Caller] = []
        self._listener: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        """Bind anew where somebody has removed the socket: cleaners of /tmp do."""
        if self._listener is not None:
            if os.path.exists(self._path):
                return
            self._selector.unregister(self._listener)
            self._listener.close()
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._path)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def ranks(self) -> set[int]:
        """Those that have said hello."""
        return {caller.rank for caller in self._callers if caller.rank is not None}

    def ask_ranks(self, said: Line) -> None:
        for caller in [*self._callers]:
            if caller.rank is not None:
                self.say(caller, [said])

    def tell_followers(self, said: Iterable[Line]) -> None:
        told = [*said]
        for caller in [*self._callers]:
            if caller.follows:
                self.say(caller, told)

    def say(self, caller: Caller, said: Iterable[Line]) -> None:
        for line in said:
            caller.unread += line_of(line)
            if len(caller.unread) > 1 << 16:
                self._flush(caller)
        self._flush(caller)
        if len(caller.unread) > MOST_UNREAD:
            self._hang_up(caller)

    def forget_ranks(self) -> None:
        """Those programs have ended: who says hello from now on is another."""
        for caller in self._callers:
            caller.rank = None

    def drain(self) -> None:
        """Hear what has been said already, by programs that are gone by now too."""
        for _ in range(128):
            before = len(self._callers)
            self._accept(selectors.EVENT_READ)
            if len(self._callers) == before:
                break
        for caller in [*self._callers]:
            while not caller.is_gone and self._listen_to(caller):
                pass

    @property
    def has_unread(self) -> bool:
        return any(caller.unread for caller in self._callers)

    def close(self) -> None:
        for caller in [*self._callers]:
            self._hang_up(caller)
        if self._listener is not None:
            self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _accept(self, mask: int) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            caller = Caller(connection)
            self._callers.append(caller)
            self._watch(caller)

    def _watch(self, caller: Caller) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.unread else 0)

        def ready(mask: int) -> None:
            if mask & selectors.EVENT_WRITE:
                self._flush(caller)
            if mask & selectors.EVENT_READ and not caller.is_gone:
                self._listen_to(caller)

        if caller.connection in self._selector.get_map():
            self._selector.modify(caller.connection, wanted, ready)
        else:
            self._selector.register(caller.connection, wanted, ready)

    def _listen_to(self, caller: Caller) -> bool:
        """Take one piece; False when nothing is there now."""
        try:
            piece = caller.connection.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        for said in caller.lines.feed(piece):
            self._heard(caller, said)
        if not piece:
            self._hang_up(caller)
        return bool(piece)

    def _flush(self, caller: Caller) -> None:
        had = bool(caller.unread)
        try:
            while caller.unread and not caller.is_gone:
                del caller.unread[: caller.connection.send(caller.unread)]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up(caller)
        if had and not caller.is_gone:
            self._watch(caller)

    def _hang_up(self, caller: Caller) -> None:
        if caller.is_gone:
            return
        caller.is_gone = True
        self._callers.remove(caller)
        self._selector.unregister(caller.connection)
        caller.connection.close()
