"""Attach this terminal to a session that runs elsewhere: raw keys there, its output here."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from enum import Enum, auto

from trainmaster_sdk import terminal_protocol as frames
from trainmaster_sdk.terminal_protocol import Kind

ESCAPE = b"~"
LEAVE = b"."
END_OF_INPUT = b"\x04"


class DetachReason(Enum):
    """Why a terminal is no longer attached."""

    DETACHED = auto()
    ENDED = auto()
    SLEEPS = auto()
    BROKEN = auto()


class Escapes:
    """Finds `~.` at the beginning of a line, as in ssh; `~~` is a `~`."""

    def __init__(self) -> None:
        self._at_start = True
        self._is_open = False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """What is to be sent, and whether to leave."""
        sent = bytearray()
        for key in (typed[at : at + 1] for at in range(len(typed))):
            if self._is_open:
                self._is_open = False
                if key == LEAVE:
                    return bytes(sent), True
                sent += b"" if key == ESCAPE else ESCAPE
            elif self._at_start and key == ESCAPE:
                self._is_open = True
                continue
            sent += key
            self._at_start = key in (b"\r", b"\n")
        return bytes(sent), False


class Attached:
    """This terminal while it is attached to a session."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._frames = frames.Frames()
        self._escapes = Escapes()
        self._has_terminal = False
        self.code = 0

    def run(self) -> DetachReason:
        """Send keys and show output until the session ends or the user detaches."""
        keys = sys.stdin.fileno()
        self._has_terminal = os.isatty(keys)  # of one that was closed this is no longer true
        with _raw(keys), _sizes(self._send_size), selectors.DefaultSelector() as watch:
            watch.register(self._line, selectors.EVENT_READ)
            with contextlib.suppress(PermissionError):  # a plain file is always readable
                watch.register(keys, selectors.EVENT_READ)
            self._send_size()
            while True:
                for key, _ in watch.select():
                    if key.fileobj is self._line:
                        left = self._hear()
                    else:
                        left = self._type(keys, watch)
                    if left is not None:
                        return left

    def _hear(self) -> DetachReason | None:
        try:
            piece = self._line.recv(1 << 16)
        except OSError:
            piece = b""
        if not piece:
            return DetachReason.BROKEN
        for said in self._frames.feed(piece):
            if said.kind is Kind.SHOWN:
                sys.stdout.buffer.write(said.body)
                sys.stdout.buffer.flush()
            elif said.kind is Kind.ENDED:
                (self.code,) = frames.CODE.unpack(said.body)
                return DetachReason.ENDED
            elif said.kind is Kind.SLEEPS:
                return DetachReason.SLEEPS
        return None

    def _type(self, keys: int, watch: selectors.BaseSelector) -> DetachReason | None:
        try:
            typed = os.read(keys, 1 << 14)
        except OSError:  # how Linux reports that a terminal was closed
            typed = b""
        if not typed:
            if self._has_terminal:
                return DetachReason.DETACHED
            watch.unregister(keys)
            typed = END_OF_INPUT  # a script has come to its end: so does the shell
        sent, leaves = self._escapes.feed(typed) if self._has_terminal else (typed, False)
        if sent:
            self._send(frames.frame(Kind.TYPED, sent))
        return DetachReason.DETACHED if leaves else None

    def _send_size(self) -> None:
        try:
            size = os.get_terminal_size(sys.stdin.fileno())
        except OSError:  # no terminal, no window
            return
        self._send(frames.frame(Kind.SIZE, frames.SIZE.pack(size.lines, size.columns)))

    def _send(self, sent: bytes) -> None:
        with contextlib.suppress(OSError):  # that it is gone is seen when reading
            self._line.sendall(sent)


@contextlib.contextmanager
def _raw(keys: int) -> Iterator[None]:
    """Read every key as it is typed; the terminal is always restored."""
    if not os.isatty(keys):
        yield
        return
    before = termios.tcgetattr(keys)
    try:
        tty.setraw(keys, termios.TCSADRAIN)  # what was typed ahead is not thrown away
        yield
    finally:
        with contextlib.suppress(termios.error):  # it was closed
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _sizes(tell: object) -> Iterator[None]:
    """Say when the window changes."""
    assert callable(tell)
    before = signal.signal(signal.SIGWINCH, lambda *_: tell())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
