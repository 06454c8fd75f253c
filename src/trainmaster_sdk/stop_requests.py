"""Requests to a program to stop soon or to save now, by signal or by a line on the socket."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from functools import cache
from types import FrameType

from trainmaster_sdk.wire import Message

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
PARENT_S = 1.0
"""How long a forked child waits to learn whether its parent was told to stop as well."""


class StopRequests:
    """Two flags, set by signals and messages. The program's own signal handlers are called as before."""

    def __init__(self) -> None:
        self.stop = False
        self.save = False
        self.why: str | None = None
        """Why it is to stop, if that is known: suspend, resize or cancel."""
        self._owner = os.getpid()
        self._before: dict[int, signal._HANDLER] = {}
        # Forked children see this byte change: so they tell a stop of the whole group from their own.
        self._group_stops = mmap.mmap(-1, 1)
        self._has_outlived_stop = False

    def take(self, said: Message) -> None:
        """One line of the supervisor."""
        ask = said.get("ask")
        if ask == "stop":
            self.why = str(said.get("why", ""))
            self.stop = True
        elif ask == "save":
            self.save = True

    def listen(self) -> None:
        """Take signals as requests from now on. Only in the main thread; other threads rely on messages."""
        if threading.current_thread() is not threading.main_thread():
            return
        _guard_forks()
        _listening.append(self)
        for number in SIGNALS:
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._take_signal)

    def restore_signals(self, *, ignore_stop: bool) -> None:
        """Restore the signal handlers. With `ignore_stop`, a late signal does not change the exit code."""
        for number, before in self._before.items():
            if signal.getsignal(number) != self._take_signal:
                continue  # the program has put its own handler on top of ours
            is_late = ignore_stop and number == signal.SIGTERM
            signal.signal(number, signal.SIG_IGN if is_late else before or signal.SIG_DFL)
        self._before = {}
        if self in _listening:
            _listening.remove(self)

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked off the one that gets the requests."""
        return os.getpid() != self._owner

    def _take_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_inherited:
            self._take_in_child(number)
            return
        if number == signal.SIGTERM:
            self._group_stops[0] = 1
            self.stop = True
        else:
            self.save = True
        before = self._before.get(number)
        if callable(before):
            before(number, frame)

    def _take_in_child(self, number: int) -> None:
        """A worker that loads data must outlive a stop of its group, so that the parent can save.

        But it must obey its own parent, which ends it with the same signal.
        """
        if number != signal.SIGTERM:
            return
        if not self._has_outlived_stop and self._parent_stops():
            self._has_outlived_stop = True
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _parent_stops(self) -> bool:
        until = time.monotonic() + PARENT_S
        while not self._group_stops[0] and time.monotonic() < until:
            time.sleep(0.01)
        return bool(self._group_stops[0])


_listening: list[StopRequests] = []
_masks = threading.local()


def shield_child() -> None:
    """In a forked child with its own handler: ignore a stop signal meant for the parent."""
    for requests in _listening[-1:]:
        if requests.is_inherited:
            signal.signal(signal.SIGTERM, requests._take_signal)


@cache
def _guard_forks() -> None:
    """Block signals during every fork of this process.

    Python forgets in the child what came while it forked: a worker ended right after its start lived on,
    and a parent that waited for its end waited forever.
    """

    def hold() -> None:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def let_go() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)

    os.register_at_fork(before=hold, after_in_parent=let_go, after_in_child=let_go)
