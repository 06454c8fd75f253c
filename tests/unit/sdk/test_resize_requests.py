"""What a rank does when an exchange has failed: it waits to hear whether another rank was lost."""

from __future__ import annotations

import time
from typing import cast

import pytest

from trainmaster_sdk import resize_requests
from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.resize_requests import ResizeTimes, Resizing
from trainmaster_sdk.wire import Message

REQUEST: Message = {"ask": "resize", "n": 1, "rank": 0, "world": 1, "local_rank": 0}
WHERE: Message = {"local_world": 1, "host": "n0", "port": 47}


class Resizer:
    """Counts the steps that failed."""

    failed = 0

    def leave(self) -> None: ...

    def resize(self, request: object, is_called_off: object) -> ResizeTimes:
        return ResizeTimes(0, 0)

    def end_failed_step(self) -> None:
        self.failed += 1


class Silent:
    """A control client that hears nothing."""

    def say(self, said: Message) -> None: ...

    def wait(self, seconds: float) -> None:
        time.sleep(0.01)


@pytest.fixture(name="rank")
def fixture_rank(monkeypatch: pytest.MonkeyPatch) -> Resizing:
    monkeypatch.setattr(resize_requests, "LOST_S", 0.05)
    rank = Resizing(cast(ControlClient, Silent()))
    rank.set_resizer(Resizer(), 1)
    return rank


def hear_after(rank: Resizing, seconds: float) -> bool:
    """Whether it goes on where it is asked that much later."""
    due = time.monotonic() + seconds

    def hear() -> None:
        if time.monotonic() >= due:
            rank.take(REQUEST | WHERE)

    return rank.wait_for_loss(hear, lambda: False)


def test_a_rank_whose_exchange_failed_goes_on_if_it_is_asked_in_time(rank: Resizing) -> None:
    assert hear_after(rank, 0)
    assert not hear_after(Resizing(cast(ControlClient, Silent())), 0), "it may lose none"


def test_it_waits_no_longer_than_for_a_rank_of_its_own_machine(rank: Resizing) -> None:
    assert not hear_after(rank, 0.3)


def test_it_waits_longer_while_a_machine_does_not_answer(rank: Resizing) -> None:
    rank.take({"ask": "wait", "n": 600})
    assert hear_after(rank, 0.3)


def test_it_waits_no_more_once_that_machine_is_back(rank: Resizing) -> None:
    rank.take({"ask": "wait", "n": 600})
    rank.take({"ask": "wait", "n": 0})
    assert not hear_after(rank, 0.3)
