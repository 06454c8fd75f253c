"""How a program gives its GPU's memory back at the end of a step, and waits until it may go on.

Requests have numbers: a rank that is late must not take the end of one for the end of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.wire import Message

LOOK_S = 1.0
"""How often it is looked for a stop signal meanwhile; lines wake it at once."""

LONGEST_WHY = 500


class Releaser(Protocol):
    """What frees the memory of a program and fills it again."""

    def prepare(self) -> None:
        """What can be done beforehand, beside the training."""

    def release(self) -> Message:
        """Free it; what is said of it."""

    def take_back(self) -> Message:
        """As it was before, also after a `release` that failed; what is said of it."""


class Suspension:
    """One rank's part. All ranks of a gang must call `wait` at the same step."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._releaser: Releaser | None = None
        self._is_declared = False
        self._asked, self._taken_back, self._handled = 0, 0, 0

    def set_releaser(self, releaser: Releaser) -> None:
        self._releaser = releaser

    def declare(self) -> None:
        """Say once that it can: at the end of a step, so that it looks for requests there."""
        if self._releaser is not None and not self._is_declared:
            self._is_declared = True
            self._releaser.prepare()
            self._client.say({"say": "can release"})

    def renew(self) -> None:
        """The gang has other ranks now: say again that this one can. Requests are numbered anew."""
        self._is_declared = False
        self._asked, self._taken_back, self._handled = 0, 0, 0

    def take(self, said: Message) -> None:
        """One line of the supervisor."""
        number = said.get("n")
        if not isinstance(number, int):
            return
        if said.get("ask") == "release":
            self._asked = max(self._asked, number)
        elif said.get("ask") == "take back":
            self._taken_back = max(self._taken_back, number)

    @property
    def is_asked(self) -> bool:
        return self._releaser is not None and self._asked > self._taken_back

    def wait(self, hear: Callable[[], None], must_go_on: Callable[[], bool]) -> None:
        """Release, wait for the end of this request or a stop, take back.

        Where a release fails nobody is suspended, and all go on; what it had begun is undone.
        """
        number = self._asked if self._asked > self._handled else self._handled + 1
        self._release(number)
        while self._taken_back < number and not must_go_on():
            self._client.wait(LOOK_S)
            hear()
        self._handled = max(number, self._asked)
        self._take_back(number)

    def _release(self, number: int) -> None:
        try:
            said = {} if self._releaser is None else self._releaser.release()
        except Exception as problem:
            self._say("not released", number, {"why": _words(problem)})
            return
        self._say("released", number, said)

    def _take_back(self, number: int) -> None:
        """What fails here cannot go on: the supervisor is told, and ends it without blame."""
        try:
            said = {} if self._releaser is None else self._releaser.take_back()
        except Exception as problem:
            self._say("not taken back", number, {"why": _words(problem)})
            while self._client.is_connected:
                self._client.wait(LOOK_S)
                self._client.hear()
            raise
        self._say("taken back", number, said)

    def _say(self, word: str, number: int, told: Message) -> None:
        self._client.say({"say": word, "n": number} | told)


def _words(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:LONGEST_WHY]
