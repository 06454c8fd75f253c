"""An interactive session as a job's program: a shell on its own terminal, which users attach to.

    python -m trainmaster_sdk.terminal [--idle SECONDS] [-- COMMAND ...]
    python -m trainmaster_sdk.terminal --notebook [--idle SECONDS]

It listens in the job's checkpoint folder (terminal_protocol.py). After SECONDS without
input and without CPU use of its processes, it asks the manager to suspend the job; attaching again
resumes it first.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from collections import deque
from pathlib import Path

from trainmaster_sdk import terminal_protocol as frames
from trainmaster_sdk import wire
from trainmaster_sdk.idle_detection import Idleness, ask_to_be_suspended
from trainmaster_sdk.terminal_protocol import Kind

REMEMBERED = 1 << 16
"""Bytes of earlier output that are shown after attaching."""
MOST_BEHIND = 1 << 22
"""A terminal this many bytes behind is disconnected: the session does not wait for it."""
LOOK_S = 1.0
LEAVING_S = 5.0


class Terminal:
    """One terminal that is attached to a session."""

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self.line = line
        self.frames = frames.Frames()
        self.unsent = bytearray()


class TerminalSession:
    """A program on a pseudo-terminal, and all terminals that are attached to it."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._heard = frames.listen(folder)
        self._heard.setblocking(False)
        self._folder = folder
        self._terminals: dict[socket.socket, Terminal] = {}
        self._recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self._watch = selectors.DefaultSelector()
        self._watch.register(self._heard, selectors.EVENT_READ)
        self.child, self._program = _start(command)
        self._watch.register(self._program, selectors.EVENT_READ)
        self.used_at = time.monotonic()
        self.has_ended = False

    def serve(self, seconds: float) -> None:
        """Pass bytes between terminals and program for this long, or until the program ends."""
        until = time.monotonic() + seconds
        while not self.has_ended and (left := until - time.monotonic()) > 0:
            for key, mask in self._watch.select(left):
                if key.fileobj is self._heard:
                    self._accept()
                elif key.fileobj == self._program:
                    self._read_program()
                else:
                    self._serve_terminal(self._terminals[key.fileobj], mask)  # type: ignore[index]

    def tell(self, kind: Kind, body: bytes = b"") -> None:
        """Send a frame to all terminals."""
        for terminal in list(self._terminals.values()):
            self._send(terminal, frames.frame(kind, body))

    def close(self) -> None:
        """Send what is left, and close all connections."""
        for terminal in list(self._terminals.values()):
            terminal.line.settimeout(LOOK_S)
            with contextlib.suppress(OSError):
                terminal.line.sendall(terminal.unsent)
            terminal.line.close()
        self._heard.close()
        (self._folder / frames.SOCKET).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.close(self._program)

    # -- the program ---------------------------------------------------------------------------------

    def _read_program(self) -> None:
        try:
            piece = os.read(self._program, 1 << 16)
        except OSError:  # how Linux reports that the other end is closed
            piece = b""
        if not piece:
            self.has_ended = True
            return
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        self._recent.append(piece)
        self._recent_bytes += len(piece)
        while self._recent_bytes - len(self._recent[0]) >= REMEMBERED:
            self._recent_bytes -= len(self._recent.popleft())
        self.tell(Kind.SHOWN, piece)

    def _write_program(self, typed: bytes) -> None:
        self.used_at = time.monotonic()
        with contextlib.suppress(OSError):
            while typed:
                typed = typed[os.write(self._program, typed) :]

    # -- terminals -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            line, _ = self._heard.accept()
            terminal = Terminal(line)
            self._terminals[line] = terminal
            self._watch.register(line, selectors.EVENT_READ)
            self.used_at = time.monotonic()
            self._send(terminal, frames.frame(Kind.SHOWN, b"".join(self._recent)))

    def _serve_terminal(self, terminal: Terminal, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                del terminal.unsent[: terminal.line.send(terminal.unsent)]
                self._watch_for(terminal)
            if mask & selectors.EVENT_READ:
                self._receive(terminal)
        except (OSError, ValueError):
            self._drop(terminal)

    def _receive(self, terminal: Terminal) -> None:
        piece = terminal.line.recv(1 << 16)
        if not piece:
            self._drop(terminal)
            return
        for said in terminal.frames.feed(piece):
            if said.kind is Kind.TYPED:
                self._write_program(said.body)
            elif said.kind is Kind.SIZE:
                rows, columns = frames.SIZE.unpack(said.body)
                _resize(self._program, rows, columns)

    def _send(self, terminal: Terminal, sent: bytes) -> None:
        terminal.unsent += sent
        try:
            del terminal.unsent[: terminal.line.send(terminal.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(terminal)
            return
        if len(terminal.unsent) > MOST_BEHIND:
            self._drop(terminal)
        else:
            self._watch_for(terminal)

    def _watch_for(self, terminal: Terminal) -> None:
        also = selectors.EVENT_WRITE if terminal.unsent else 0
        self._watch.modify(terminal.line, selectors.EVENT_READ | also)

    def _drop(self, terminal: Terminal) -> None:
        if self._terminals.pop(terminal.line, None) is not None:
            self._watch.unregister(terminal.line)
            terminal.line.close()


def _start(command: list[str]) -> tuple[int, int]:
    """The program as a process with a terminal of its own: its number, and our end."""
    child, program = pty.fork()
    if child == 0:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]} cannot be run: {error.strerror}.\n".encode())
            os._exit(127)
    return child, program


def _resize(program: int, rows: int, columns: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def own_shell() -> list[str]:
    return [os.environ.get("SHELL") or "/bin/sh"]


def serve_session(session: TerminalSession, idle_s: float) -> int:
    """Serve until the program ends; ask to be suspended each time it was idle for `idle_s`."""
    idleness = Idleness(session.child)
    signals = _Signals()
    while not session.has_ended:
        session.serve(min(LOOK_S, idle_s))
        if signals.end_requested:
            os.kill(session.child, signal.SIGHUP)
            session.serve(LEAVING_S)
            break
        if signals.has_woken:
            signals.has_woken = False
            session.used_at = time.monotonic()
            idleness.begin_again()
        quiet_s = min(time.monotonic() - session.used_at, idleness.quiet_s())
        if quiet_s >= idle_s:
            session.tell(Kind.SLEEPS)
            ask_to_be_suspended()
            session.used_at = time.monotonic()
    return _end(session, signals.end_requested)


def _end(session: TerminalSession, was_asked: bool) -> int:
    with contextlib.suppress(ProcessLookupError):
        if not session.has_ended:
            os.killpg(session.child, signal.SIGKILL)
    _, status = os.waitpid(session.child, 0)
    code = os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code
    session.tell(Kind.ENDED, frames.CODE.pack(code))
    session.close()
    return 128 + signal.SIGTERM if was_asked else code


class _Signals:
    """Signals received: end, or continue after a stop."""

    def __init__(self) -> None:
        self.end_requested = False
        self.has_woken = False
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGCONT, self._wake)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _end(self, *_: object) -> None:
        self.end_requested = True

    def _wake(self, *_: object) -> None:
        self.has_woken = True


def main(arguments: list[str]) -> int:
    read = argparse.ArgumentParser(prog="python -m trainmaster_sdk.terminal")
    read.add_argument("--idle", type=float, default=600.0, metavar="SECONDS")
    read.add_argument("--notebook", action="store_true")
    read.add_argument("command", nargs="*")
    asked = read.parse_args(arguments)
    folder = Path(os.environ.get(wire.CHECKPOINT_DIR) or ".")
    folder.mkdir(parents=True, exist_ok=True)
    if asked.notebook:
        from trainmaster_sdk.notebook import serve

        return serve(folder, asked.idle)
    return serve_session(TerminalSession(folder, asked.command or own_shell()), asked.idle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
