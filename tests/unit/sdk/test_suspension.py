"""How a rank gives its memory back and takes it again, without a GPU."""

from __future__ import annotations

from typing import Any

from trainmaster_sdk.suspension import Suspension
from trainmaster_sdk.wire import Message


class Line:
    """A connection whose supervisor answers every wait by calling the request off."""

    def __init__(self) -> None:
        self.said: list[Message] = []

    def say(self, said: Message) -> None:
        self.said.append(said)

    def wait(self, most_s: float) -> None: ...


class HalfReleased:
    """Gives back a part before it fails."""

    def __init__(self) -> None:
        self.is_whole = True

    def prepare(self) -> None: ...

    def release(self) -> Message:
        self.is_whole = False
        raise RuntimeError("full")

    def take_back(self) -> Message:
        self.is_whole = True
        return {}


def test_what_a_failed_release_has_begun_is_undone() -> None:
    line, releaser = Line(), HalfReleased()
    client: Any = line
    suspension = Suspension(client)
    suspension.set_releaser(releaser)
    suspension.take({"ask": "release", "n": 1})
    suspension.wait(lambda: suspension.take({"ask": "take back", "n": 1}), lambda: False)
    assert releaser.is_whole
    assert line.said == [
        {"say": "not released", "n": 1, "why": "RuntimeError: full"},
        {"say": "taken back", "n": 1},
    ]
    assert not suspension.is_asked


def test_after_a_resize_requests_are_numbered_anew() -> None:
    line, releaser = Line(), HalfReleased()
    client: Any = line
    suspension = Suspension(client)
    suspension.set_releaser(releaser)
    for _ in range(2):
        suspension.take({"ask": "release", "n": 1})
        assert suspension.is_asked
        suspension.wait(lambda: suspension.take({"ask": "take back", "n": 1}), lambda: False)
        suspension.renew()
    assert [said["n"] for said in line.said] == [1, 1, 1, 1]
