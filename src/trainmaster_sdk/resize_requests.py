"""How a program is resized while it trains: after a step its ranks regroup, and the state is handed on.

Requests have numbers that grow: all ranks that are asked must have heard the same one before they act.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.wire import Message

LONGEST_WHY = 500
LOST_S = 20.0
"""How long ranks whose exchange failed wait to hear that one of them was lost."""
LOOK_S = 0.2


class CalledOff(Exception):
    """The ranks did not regroup: the run is stopped, or one of them never came."""


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """One rank's place after a resize."""

    number: int
    rank: int | None
    """None: it leaves."""
    world: int
    local_rank: int
    local_world: int
    host: str
    port: int
    """Where the first rank listens."""


@dataclass(frozen=True, slots=True)
class ResizeTimes:
    """How long the parts of a resize took."""

    regroup_ms: int
    broadcast_ms: int


class Resizer(Protocol):
    """What regroups the ranks of a program and hands its state on."""

    def leave(self) -> None:
        """This rank goes: take it out of the group."""

    def resize(self, request: ResizeRequest, is_called_off: Callable[[], bool]) -> ResizeTimes:
        """Take this place; CalledOff or another error where that cannot be, with the state as it was."""

    def end_failed_step(self) -> None:
        """An exchange of the step that was begun has failed."""


class Resizing:
    """One rank's part."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._resizer: Resizer | None = None
        self._may_lose = 0
        self._is_declared = False
        self._handled = 0
        self._called_off = 0
        self._request: ResizeRequest | None = None
        self._wait_until = -math.inf
        """Until when it waits after an exchange has failed, where a machine does not answer."""
        self._resumed_at: float | None = None
        """When it went on after a resize; None: its first step after that has been told."""

    def set_resizer(self, resizer: Resizer, may_lose: int) -> None:
        self._resizer, self._may_lose = resizer, may_lose

    @property
    def may_lose(self) -> bool:
        """Whether the others go on where a rank is lost."""
        return self._resizer is not None and self._may_lose > 0

    def declare(self) -> None:
        """Say once that it can be resized: at the end of a step, where it looks for requests."""
        if self._resizer is not None and not self._is_declared:
            self._is_declared = True
            self._client.say({"say": "can resize", "may_lose": self._may_lose})

    def take(self, said: Message) -> None:
        """One line of the supervisor."""
        number = said.get("n")
        if not isinstance(number, int):
            return
        if said.get("ask") == "resize" and number > self._handled:
            self._request = _request_of(said, number)
        elif said.get("ask") == "call off":
            self._called_off = number
        elif said.get("ask") == "wait":
            self._wait_until = time.monotonic() + number

    @property
    def request(self) -> ResizeRequest | None:
        """What it has been asked for and has not done."""
        asked = self._request
        if self._resizer is None or asked is None or asked.number <= self._handled:
            return None
        return None if asked.number == self._called_off else asked

    def leave(self, request: ResizeRequest) -> None:
        """This rank is not needed any more."""
        assert self._resizer is not None
        self._handled = request.number
        self._resizer.leave()
        self._client.say({"say": "removed", "n": request.number})

    def perform(self, request: ResizeRequest, must_stop: Callable[[], bool]) -> bool:
        """Take the new place; False where that failed: then the program has to save and leave."""
        assert self._resizer is not None
        self._handled = number = request.number
        try:
            times = self._resizer.resize(request, lambda: must_stop() or self._called_off == number)
        except Exception as problem:
            why = f"{type(problem).__name__}: {problem}"[:LONGEST_WHY]
            self._client.say({"say": "not resized", "n": number, "why": why})
            return False
        self.joined(number, times)
        return True

    def joined(self, number: int, times: ResizeTimes) -> None:
        """It has its place, whether it trained before or has only come."""
        self._handled = max(self._handled, number)
        self._resumed_at = time.monotonic()
        told = {"regroup_ms": times.regroup_ms, "broadcast_ms": times.broadcast_ms}
        self._client.say({"say": "resized", "n": number} | told)

    def step_done(self) -> None:
        """After a step: tell how long the first one after a resize took."""
        if self._resumed_at is not None:
            ms = round((time.monotonic() - self._resumed_at) * 1000)
            self._resumed_at = None
            self._client.say({"say": "first step", "n": self._handled, "ms": ms})

    def wait_for_loss(self, hear: Callable[[], None], must_stop: Callable[[], bool]) -> bool:
        """After an exchange that failed: whether a rank was lost, and the others are asked to go on."""
        until = time.monotonic() + (LOST_S if self.may_lose else -math.inf)
        while time.monotonic() < max(until, self._wait_until) and not must_stop():
            hear()
            if self.request is not None:
                assert self._resizer is not None
                self._resizer.end_failed_step()
                return True
            self._client.wait(LOOK_S)
        return False


def _request_of(said: Message, number: int) -> ResizeRequest | None:
    """None for a line that is not whole."""
    rank = said.get("rank")
    if rank is None:
        return ResizeRequest(number, None, 0, 0, 0, "", 0)
    try:
        return ResizeRequest(
            number,
            int(rank),
            int(said["world"]),
            int(said["local_rank"]),
            int(said["local_world"]),
            str(said["host"]),
            int(said["port"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
