"""A program that helps a supervisor: its child, but not a process of the run. The loop reads its lines.

It dies with the supervisor, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from trainmaster.engines.local import processes
from trainmaster_sdk.wire import Message, MessageReader, encode_message


class HelperProcess:
    """Started at once. `outsiders` are children that are not of the run, and have not ended."""

    def __init__(
        self, argv: Sequence[str], selector: selectors.BaseSelector, outsiders: set[int]
    ) -> None:
        self._selector = selector
        self._outsiders = outsiders
        self._reader = MessageReader()
        self.lines: list[Message] = []
        self.is_over = False
        """Whether it has closed its output: it has ended, or is about to."""
        self._line, theirs = socket.socketpair()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _become([sys.executable, "-P", *argv], theirs.fileno())
        except OSError:
            self._line.close()
            raise
        finally:
            theirs.close()
        outsiders.add(self.pid)
        self._line.setblocking(False)
        selector.register(self._line, selectors.EVENT_READ, self.read)

    def send(self, number: int) -> None:
        """A signal, if it has not ended: its number may be another process's then."""
        if self.pid in self._outsiders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def tell(self, said: Message) -> bool:
        """A line for its input; False where it has ended, or does not read."""
        self.read()
        line = encode_message(said)
        try:
            return not self.is_over and self._line.send(line) == len(line)
        except OSError:
            return False

    def kill(self) -> None:
        """End it, and wait for nothing: a call into the driver may hold it."""
        self.send(signal.SIGKILL)
        self._close()

    def read(self, mask: int = 0) -> None:
        """What it has said."""
        if self.is_over:
            return
        try:
            piece = self._line.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:  # it has died, and had not read its last line
            piece = b""
        self.lines += self._reader.feed(piece)
        if not piece:
            self._close()

    def _close(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._selector.unregister(self._line)
            self._line.close()


def _become(argv: list[str], line: int) -> NoReturn:
    """In the child: the line is its input and its output; errors go where the supervisor's go."""
    try:
        os.setsid()
        processes.die_with_parent()
        for number in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.dup2(line, 0)
        os.dup2(line, 1)
        os.execv(argv[0], argv)
    finally:
        os._exit(127)
