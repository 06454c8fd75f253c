"""TCP connections to a job through its manager: both directions at once inside one HTTP request."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import ssl
from collections.abc import Callable

import h11

from trainmaster.client.manager_api import ManagerApi, RequestRefused
from trainmaster.errors import CommandError, Failed

PIECE = 1 << 16
MOST_WAITING = 1 << 18
"""Bytes that may wait for a side that does not read, before the other side is not read either."""
OK = 200


class Stream:
    """A socket that is never waited for: what cannot be written yet is kept."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.waiting = bytearray()
        self.is_read_out = False
        """Whether the other side has ended its output."""

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= MOST_WAITING

    def read(self) -> bytes | None:
        """What is there; empty at the end, None where nothing has come."""
        try:
            piece = self.sock.recv(PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError:
            piece = b""
        self.is_read_out = not piece
        return piece

    def has_more(self) -> bool:
        """Whether TLS has decrypted more than was read: the socket does not show it."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def flush(self) -> None:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while self.waiting:
                del self.waiting[: self.sock.send(self.waiting)]


def carry(client: ManagerApi, path: str, local: socket.socket) -> None:
    """Carry a connection until both sides have ended; a refusal is raised before anything is carried."""
    connection, request = client.open("POST", path)
    http = h11.Connection(h11.CLIENT)
    headers = [*request.headers.items(), ("Host", _host(client)), ("Transfer-Encoding", "chunked")]
    headers.append(("Content-Type", "application/octet-stream"))
    try:
        asked = h11.Request(method=request.method, target=request.target, headers=headers)
        connection.sock.sendall(http.send(asked) or b"")
        _check_answer(connection.sock, http)
        _relay(Stream(local), Stream(connection.sock), http)
    except (OSError, h11.ProtocolError):
        return  # one of the two is gone: the other one is told by the end
    finally:
        connection.close()


def _host(client: ManagerApi) -> str:
    place = client.place
    return (
        "localhost" if place.socket is not None else place.url.partition("://")[2].partition("/")[0]
    )


def _check_answer(sock: socket.socket, http: h11.Connection) -> None:
    """Wait for the head of the answer; RequestRefused with the manager's sentence."""
    answer, text = None, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(sock.recv(PIECE))
        elif isinstance(event, h11.Response):
            answer = event
            if event.status_code == OK:
                return
        elif isinstance(event, h11.Data):
            text += event.data
        else:
            break
    raise _refusal(0 if answer is None else answer.status_code, text)


def _refusal(status: int, text: bytes) -> CommandError:
    try:
        return RequestRefused(str(json.loads(text)["error"]["sentence"]), status)
    except (ValueError, KeyError, TypeError):
        return Failed("The manager did not connect to the job; its log says more.")


def _relay(local: Stream, remote: Stream, http: h11.Connection) -> None:
    """Both ways at once, each at the pace of its reader."""
    is_over = _take(http, b"", local)  # what came with the head
    with selectors.DefaultSelector() as selector:
        for stream in (local, remote):
            selector.register(stream.sock, selectors.EVENT_READ)
        while not (is_over and not local.waiting):
            _await(selector, local, reads=not (local.is_read_out or remote.is_full))
            _await(selector, remote, reads=not (remote.is_read_out or local.is_full))
            has_more = remote.has_more() and not local.is_full
            ready = {key.fileobj: what for key, what in selector.select(0 if has_more else None)}
            if ready.get(local.sock, 0) & selectors.EVENT_READ:
                piece = local.read()
                if piece is not None:
                    event = h11.Data(data=piece) if piece else h11.EndOfMessage()
                    remote.waiting += http.send(event) or b""
            if has_more or ready.get(remote.sock, 0) & selectors.EVENT_READ:
                piece = remote.read()
                if piece is not None:
                    is_over = _take(http, piece, local) or not piece
            for stream in (local, remote):
                stream.flush()


def _take(http: h11.Connection, piece: bytes, local: Stream) -> bool:
    """What the job sent goes to the local side; whether that was all."""
    if piece:
        http.receive_data(piece)
    while True:
        event = http.next_event()
        if isinstance(event, h11.Data):
            local.waiting += event.data
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return True
        else:
            return event is h11.PAUSED


def _await(selector: selectors.BaseSelector, stream: Stream, *, reads: bool) -> None:
    events = (selectors.EVENT_READ if reads else 0) | (
        selectors.EVENT_WRITE if stream.waiting else 0
    )
    known = stream.sock in selector.get_map()
    change: Callable[..., object] = selector.modify if known else selector.register
    if events:
        change(stream.sock, events)
    elif known:
        selector.unregister(stream.sock)
