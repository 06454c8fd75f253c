"""A program's end of the control socket: it never delays or fails the training."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque

from trainmaster_sdk.wire import LONGEST, Message, MessageReader, encode_message

RETRY_S = 1.0
"""Seconds before the next attempt to connect to a lost or missing supervisor."""
LONGEST_PATH = 100
"""Unix sockets have short names; a longer one is reached through its folder."""
WAITING_LINES = 1000
"""Messages kept for a supervisor that does not read; progress is not among them."""


class ControlClient:
    """Sends messages without waiting. Of unsent progress, only the newest is kept.

    All calls may come from any thread. In a forked child they do nothing: its parent speaks.
    """

    def __init__(self, path: str | None, hello: Message | None) -> None:
        self._path = path
        self._hello = b"" if hello is None else encode_message(hello)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._retry_at = 0.0
        self._lines = MessageReader()
        self._heard: list[Message] = []
        self._line = b""
        self._sending = b""  # what of that line has not gone yet
        self._waiting: deque[bytes] = deque(maxlen=WAITING_LINES)
        self._newest: Message | None = None

    def say(self, said: Message) -> None:
        """Send a message that must not be lost: it is kept until it can be sent."""
        if not self._is_mine():
            return
        with self._lock:
            self._waiting.append(encode_message(said))
            self._pump()

    def say_newest(self, said: Message, *, now: bool) -> None:
        """Send a message that the next call replaces; `now`, or with the next other message."""
        if not self._is_mine():
            return
        with self._lock:
            self._newest = said
            if now:
                self._pump()

    def hear(self) -> list[Message]:
        """Messages received since the last call."""
        if not self._is_mine():
            return []
        with self._lock:
            self._pump()
            heard, self._heard = self._heard, []
        return heard

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    def wait(self, most_s: float) -> None:
        """Until something can be heard, or this time has passed."""
        line = self._socket
        if line is None:
            time.sleep(min(most_s, RETRY_S))
            return
        with contextlib.suppress(OSError, ValueError):  # closed by another thread meanwhile
            select.select([line], [], [], most_s)

    def close(self, wait_s: float) -> None:
        """Send what is waiting, for at most `wait_s`, then disconnect."""
        if not self._is_mine():
            return
        until = time.monotonic() + wait_s
        with self._lock:
            self._retry_at = 0.0
            self._pump()
            while self._socket is not None and self._has_more():
                left = until - time.monotonic()
                if left <= 0:
                    break
                select.select([], [self._socket], [], left)
                self._pump()
            self._drop()
            self._path = None

    def _is_mine(self) -> bool:
        return self._path is not None and os.getpid() == self._owner

    def _has_more(self) -> bool:
        return bool(self._sending or self._waiting or self._newest is not None)

    def _pump(self) -> None:
        """Send and receive as much as possible without waiting."""
        if self._socket is None and not self._connect():
            return
        try:
            self._send_all()
            self._receive_all()
        except OSError:
            self._drop()

    def _connect(self) -> bool:
        now = time.monotonic()
        if self._path is None or now < self._retry_at:
            return False
        self._retry_at = now + RETRY_S
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            _connect(line, self._path)
        except OSError:
            line.close()
            return False
        self._socket, self._lines = line, MessageReader()
        self._line, self._sending = b"", self._hello
        return True

    def _send_all(self) -> None:
        assert self._socket is not None
        while self._sending or self._take():
            try:
                sent = self._socket.send(self._sending, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            self._sending = self._sending[sent:]

    def _take(self) -> bool:
        self._line = b""
        if self._waiting:
            self._line = self._waiting.popleft()
        elif self._newest is not None:
            self._line, self._newest = encode_message(self._newest), None
        self._sending = self._line
        return bool(self._line)

    def _receive_all(self) -> None:
        assert self._socket is not None
        while True:
            try:
                piece = self._socket.recv(LONGEST)
            except BlockingIOError:
                return
            if not piece:
                self._drop()
                return
            self._heard.extend(self._lines.feed(piece))

    def _drop(self) -> None:
        if self._line:
            self._waiting.appendleft(self._line)  # cut off in the middle: whole again next time
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._line = self._sending = b""


def _connect(line: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) <= LONGEST_PATH:
        line.connect(path)
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        line.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)
