"""The cooperative freezer against ranks that are played: who answers what, when, or not at all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from trainmaster.engines.local import cooperative_freezer
from trainmaster.engines.local.cooperative_freezer import CooperativeFreezer, Declared
from trainmaster.engines.local.freezer import Result, StopFreezer
from trainmaster.gpu.freeze_conditions import Refusal
from trainmaster.gpu.freeze_end import FROZEN, RUNNING, STUCK
from trainmaster_sdk.wire import Message

RELEASED: Message = {"bytes": 1000, "host_bytes": 2000, "left": 30, "took_ms": 1}


class Mover(StopFreezer):
    """The driver, which takes what is left to another GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.did: list[object] = []

    def release(self) -> None:
        self.did.append("release")
        super().release()

    def restore(self, moves: Mapping[str, str]) -> None:
        self.did.append(dict(moves))
        super().restore(moves)


class PlayedMeter:
    """The driver's count: at first it lists nobody."""

    due_at: float | None = 7.0

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.answer: Mapping[int, int] | None = {}

    def start(self) -> None: ...

    def ask(self, pids: Sequence[int]) -> None:
        self.asked.append([*pids])

    def held(self, now: float) -> Mapping[int, int] | None:
        return self.answer

    def close(self) -> None: ...


FROM_RANKS = Result(FROZEN, host_bytes=4000, gpu_bytes=60, is_all_on_gpus=False)


class Ranks:
    """Two ranks, connected and able: processes 10 and 20; 11 is a data loader of the first."""

    def __init__(self, is_mps_client: bool = False, declared: Declared | None = None) -> None:
        self.meter = PlayedMeter()
        self.asked: list[Message] = []
        self.connected = {0, 1}
        self.are_steps_counted = False
        self.mover = Mover()
        self.freezer = CooperativeFreezer(
            self.asked.append,
            lambda: self.connected,
            lambda: 2,
            lambda: self.are_steps_counted,
            is_mps_client,
            self.mover,
            lambda: [10, 11, 20],
            lambda: [10, 20],
            self.meter,
            declared or Declared(),
        )
        for rank in () if declared else (0, 1):
            self.say(rank, "heeds stops")
            self.say(rank, "can release")

    def say(self, rank: int, word: str, number: int | None = None, **more: object) -> None:
        said: Message = {"say": word, **more}
        self.freezer.heard(rank, said if number is None else said | {"n": number})

    def release_all(self) -> None:
        self.freezer.release()
        (number,) = {line["n"] for line in self.asked[-1:]}
        for rank in (0, 1):
            self.say(rank, "released", number, **RELEASED)

    def result(self, after_s: float = 0.0) -> Result | None:
        return self.freezer.result(time.monotonic() + after_s)


def test_all_ranks_release_and_take_back() -> None:
    ranks = Ranks()
    assert ranks.freezer.refusal() is None
    ranks.freezer.release()
    assert ranks.asked == [{"ask": "release", "n": 1}]
    ranks.say(0, "released", 1, **RELEASED)
    assert ranks.result() is None, "one of two"
    ranks.say(1, "released", 1, **RELEASED)
    assert ranks.result() == FROM_RANKS
    assert ranks.result() is None, "told once"
    assert ranks.freezer.due_at is None
    ranks.freezer.restore({})
    assert ranks.asked[1:] == [{"ask": "take back", "n": 1}]
    ranks.say(0, "taken back", 1)
    assert ranks.result() is None
    ranks.say(1, "taken back", 1)
    assert ranks.result() == Result(RUNNING)
    ranks.freezer.release()
    assert ranks.asked[-1] == {"ask": "release", "n": 2}
    ranks.say(0, "released", 1, **RELEASED)  # late: of the request before
    ranks.say(1, "released", 2, **RELEASED)
    assert ranks.result() is None


def test_a_rank_that_does_not_answer_calls_it_off() -> None:
    ranks = Ranks()
    ranks.freezer.release()
    ranks.say(0, "released", 1, **RELEASED)
    late_s = cooperative_freezer.RELEASE_S + 1
    assert ranks.result(late_s) is None, "rank 0 has to take its memory again first"
    assert ranks.asked[-1] == {"ask": "take back", "n": 1}
    ranks.say(0, "taken back", 1)
    result = ranks.result(late_s)
    assert result is not None
    assert (result.end, result.is_final) == (RUNNING, False)
    assert result.why == "1 of its 2 processes did not give back GPU memory within 30 s."


def test_a_program_that_cannot_release_goes_on_and_one_that_cannot_come_back_is_stuck() -> None:
    ranks = Ranks()
    ranks.freezer.release()
    ranks.say(0, "released", 1, **RELEASED)
    ranks.say(1, "not released", 1, why="RuntimeError: full")
    assert ranks.asked[-1] == {"ask": "take back", "n": 1}
    assert ranks.result() is None
    ranks.say(0, "taken back", 1)
    why = "Its program could not give back GPU memory (RuntimeError: full)."
    assert ranks.result() == Result(RUNNING, why)
    ranks.release_all()
    assert ranks.result() is not None
    ranks.freezer.restore({})
    ranks.say(0, "taken back", 2)
    ranks.say(1, "not taken back", 2, why="Full")
    why = "Its program could not take its GPU memory again (Full)."
    assert ranks.result() == Result(STUCK, why, True)


def test_turned_back_before_anybody_answered_it_runs_at_once() -> None:
    ranks = Ranks()
    ranks.freezer.release()
    ranks.freezer.turn_back()
    assert ranks.asked[-1] == {"ask": "take back", "n": 1}
    result = ranks.result()
    assert result is not None
    assert result.end == RUNNING


def test_what_does_not_come_back_is_stuck_and_what_has_ended_is_not_waited_for() -> None:
    ranks = Ranks()
    ranks.release_all()
    assert ranks.result() is not None
    ranks.freezer.restore({})
    ranks.say(0, "taken back", 1)
    assert ranks.result(10) is None
    result = ranks.result(1000)
    assert result is not None
    assert (result.end, result.is_final) == (STUCK, True)
    ranks.freezer.restore({})
    ranks.connected = {0}
    assert ranks.result() == Result(RUNNING)


def test_one_that_connects_again_is_asked_again() -> None:
    ranks = Ranks()
    ranks.say(0, "hello")
    assert ranks.asked == []
    ranks.freezer.release()
    ranks.say(0, "hello")
    assert ranks.asked[1:] == [{"ask": "release", "n": 1}]
    ranks.freezer.turn_back()
    ranks.say(0, "hello")
    assert ranks.asked[-1] == {"ask": "take back", "n": 1}


def test_one_that_connects_again_before_it_is_stopped_does_not_take_its_memory_back() -> None:
    """Else what is reported as free would be filled again."""
    ranks = Ranks()
    ranks.release_all()
    assert ranks.result() == FROM_RANKS
    ranks.say(0, "hello")
    assert ranks.asked[1:] == [{"ask": "release", "n": 1}]
    ranks.freezer.restore({})
    ranks.say(0, "hello")
    assert ranks.asked[2:] == [{"ask": "take back", "n": 1}] * 2


@pytest.mark.parametrize(
    ("held", "left", "is_all"),
    [
        ({10: 500, 20: 600}, 1100, True),
        ({10: 500, 11: 7, 20: 600}, 1107, True),
        ({10: 500, 11: 600}, 1100, False),  # rank 20 starts others, or has not used its GPU
        ({10: 500}, 60, False),
        ({}, 60, False),
    ],
)
def test_what_is_left_is_what_the_driver_counts_where_it_lists_them(
    held: dict[int, int], left: int, is_all: bool
) -> None:
    ranks = Ranks()
    ranks.meter.answer = None
    ranks.release_all()
    assert ranks.result() is None
    assert ranks.result() is None, "it is waited for"
    assert ranks.freezer.due_at == ranks.meter.due_at
    assert ranks.meter.asked == [[10, 11, 20]], "once"
    ranks.meter.answer = held
    assert ranks.result() == Result(FROZEN, host_bytes=4000, gpu_bytes=left, is_all_on_gpus=is_all)


def test_it_is_refused_where_not_all_can() -> None:
    ranks = Ranks()
    why = "Its program does not give back GPU memory by itself."
    for connected in (set(), {0}):
        ranks.connected = connected
        assert ranks.freezer.refusal() == Refusal(why, False), "others may still connect"
        ranks.are_steps_counted = True
        assert ranks.freezer.refusal() == Refusal(why, True), "it trains without the SDK"
        ranks.are_steps_counted = False
    ranks.connected = {0, 1, 2}
    assert ranks.freezer.refusal() == Refusal(why, False), "the third has not ended a step yet"
    ranks.say(2, "heeds stops")
    assert ranks.freezer.refusal() == Refusal(why, True)
    assert Ranks(is_mps_client=True).freezer.refusal() == Refusal(
        "Clients of MPS are not suspended in memory.", True
    )


def test_on_another_gpu_the_driver_takes_what_is_left_there_first() -> None:
    ranks = Ranks()
    ranks.release_all()
    assert ranks.result() is not None
    ranks.freezer.restore({"GPU-a": "GPU-b"})
    assert ranks.result() is None
    assert ranks.mover.did == ["release", {"GPU-a": "GPU-b"}]
    assert ranks.asked[-1] == {"ask": "take back", "n": 1}
    for rank in (0, 1):
        ranks.say(rank, "taken back", 1)
    assert ranks.result() == Result(RUNNING)


def test_numbers_of_a_program_are_not_believed_blindly() -> None:
    ranks = Ranks()
    ranks.freezer.release()
    ranks.say(0, "released", 1, host_bytes="much", left=-5)
    ranks.say(1, "released", 1, host_bytes=True)
    assert ranks.result() == Result(FROZEN, host_bytes=0, gpu_bytes=0, is_all_on_gpus=False)


def test_where_the_driver_cannot_move_it_it_does_not_go_on_on_its_old_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Ranks()
    monkeypatch.setattr(ranks.mover, "refusal", lambda: Refusal("It is on a MIG slice.", True))
    ranks.release_all()
    assert ranks.result() == FROM_RANKS
    asked = len(ranks.asked)
    ranks.freezer.restore({"MIG-a": "MIG-b"})
    result = ranks.result()
    assert result == Result(STUCK, "It cannot go on on other GPUs. It is on a MIG slice.", True)
    assert ranks.asked[asked:] == [], "its program is not told to take back its memory"


def test_what_processes_have_said_outlasts_a_resize_but_not_the_process() -> None:
    declared = Declared({0, 1, 2}, {0, 1, 2})
    declared.keep([0, 1])
    assert Ranks(declared=declared).freezer.refusal() is None
    declared.keep([0])
    assert Ranks(declared=declared).freezer.refusal() is not None
