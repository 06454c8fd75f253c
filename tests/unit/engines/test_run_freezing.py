"""Freezing step by step: whatever the order of orders and results, it ends where the last one wanted it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from trainmaster.engines.local.freezer import Result, moves_between
from trainmaster.engines.local.run_freezing import TRIES, RunFreezing
from trainmaster.gpu.freeze_conditions import Refusal
from trainmaster.gpu.freeze_end import FROZEN, RUNNING, STUCK
from trainmaster_sdk.wire import Message


class Scripted:
    """A freezer whose results a test decides; by itself it is always busy."""

    due_at: float | None = None

    def __init__(self, name: str = "driver", refused: Refusal | None = None) -> None:
        self.name = name
        self.why = f"By {name}."
        self.refused = refused
        self.calls: list[str] = []
        self.results: list[Result] = []

    def refusal(self) -> Refusal | None:
        return self.refused

    def release(self) -> None:
        self.calls.append("release")

    def turn_back(self) -> None:
        self.calls.append("turn back")

    def restore(self, moves: Mapping[str, str]) -> None:
        self.calls.append(f"restore {dict(moves)}" if moves else "restore")

    def result(self, now: float) -> Result | None:
        return self.results.pop(0) if self.results else None

    def heard(self, rank: int, said: Message) -> None: ...

    def close(self) -> None:
        self.calls.append("close")


class Table:
    """A run without processes."""

    def __init__(self, *freezers: Scripted) -> None:
        self.told: list[tuple[str, Message]] = []
        self.lost: list[str] = []
        self.freezing = RunFreezing(
            list, freezers, ["a"], lambda what, said: self.told.append((what, said)), self.lose
        )

    def lose(self, why: str) -> None:
        self.lost.append(why)
        self.freezing.let_go()

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self.told]

    def comes(
        self,
        freezer: Scripted,
        end: str,
        why: str = "",
        is_final: bool = False,
        is_short: bool = False,
        gpu_bytes: int | None = None,
    ) -> None:
        """What the freezer began has ended."""
        freezer.results.append(Result(end, why, is_final, is_short, gpu_bytes=gpu_bytes))
        self.freezing.step(0.0)


@pytest.fixture
def driver() -> Scripted:
    return Scripted()


def test_there_and_back(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.thaw()
    table.freezing.freeze()
    table.freezing.freeze()
    assert table.freezing.is_busy
    table.comes(driver, FROZEN)
    assert table.freezing.is_frozen
    table.freezing.freeze()
    table.freezing.thaw(["b"])
    assert table.words == ["frozen"]
    table.comes(driver, RUNNING)
    table.freezing.freeze()
    table.comes(driver, FROZEN)
    table.freezing.thaw(["a"])
    table.comes(driver, RUNNING)
    assert table.words == ["frozen", "thawed"] * 2
    restores = ["restore {'a': 'b'}", "restore {'b': 'a'}"]
    assert driver.calls == ["release", restores[0], "release", restores[1]]


def test_a_thaw_turns_a_freeze_round(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.freezing.thaw()
    table.comes(driver, RUNNING)
    assert driver.calls == ["release", "turn back"]
    table.freezing.freeze()
    table.freezing.thaw()
    table.comes(driver, FROZEN)
    assert driver.calls[2:] == ["release", "turn back", "restore"]
    table.comes(driver, RUNNING)
    assert table.words == ["thawed", "thawed"]


def test_a_freeze_waits_for_a_thaw_and_both_are_answered(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.comes(driver, FROZEN)
    table.freezing.thaw()
    table.freezing.freeze()
    table.comes(driver, RUNNING)
    table.comes(driver, FROZEN)
    assert table.words == ["frozen", "thawed", "frozen"]


def test_one_that_changes_its_mind_twice_is_frozen(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.freezing.thaw()
    table.freezing.freeze()
    table.comes(driver, RUNNING)
    table.comes(driver, FROZEN)
    assert table.freezing.is_frozen
    assert table.words == ["thawed", "frozen"]


def test_a_thaw_that_came_too_late_is_answered_before_the_freeze_that_followed_it(
    driver: Scripted,
) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.freezing.thaw()
    table.freezing.freeze()
    table.comes(driver, FROZEN)
    assert driver.calls == ["release", "turn back"]
    assert table.freezing.is_frozen
    assert table.words == ["thawed", "frozen"]
    table.freezing.let_go()
    table.comes(driver, RUNNING)
    assert table.words == ["thawed", "frozen"], "nobody asked for it to go on"


def test_a_failed_freeze_is_walked_back_and_said(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.comes(driver, STUCK, "It hung.")
    assert driver.calls == ["release", "restore"]
    table.comes(driver, RUNNING)
    assert table.told == [("not frozen", {"why": "It hung.", "is_final": False})]
    table.freezing.thaw()  # ordered before that was known: it is answered
    assert table.words == ["not frozen", "thawed"]


def test_the_next_freezer_is_tried_and_says_why() -> None:
    coop, driver = Scripted("cooperative"), Scripted("driver")
    table = Table(Scripted("other", Refusal("Not here.", True)), coop, driver)
    table.freezing.freeze()
    table.comes(coop, RUNNING, "It did not answer.")
    table.comes(driver, FROZEN)
    what, said = table.told[0]
    assert (what, said["how"]) == ("frozen", "driver")
    assert said["why"] == "Not here. It did not answer. By driver."
    table.freezing.thaw()
    assert driver.calls == ["release", "restore"]
    assert coop.calls == ["release"]


@pytest.mark.parametrize("is_final", [True, False])
def test_it_is_final_where_every_freezer_says_so(driver: Scripted, is_final: bool) -> None:
    table = Table(Scripted("other", Refusal("Never.", True)), driver)
    table.freezing.freeze()
    table.comes(driver, RUNNING, "No.", is_final)
    assert table.told == [("not frozen", {"why": "Never. No.", "is_final": is_final})]


def test_one_that_cannot_be_walked_back_is_lost(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.comes(driver, STUCK, "One.")
    for _ in range(TRIES):
        assert not table.lost
        table.comes(driver, STUCK, "Two.")
    assert table.lost == ["It could not be made to go on. Two."]
    assert driver.calls == ["release", *["restore"] * TRIES]
    assert (table.words, table.freezing.is_busy) == ([], False)


def test_one_that_lacks_only_gpu_memory_waits_unless_it_is_to_end(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.comes(driver, FROZEN)
    table.freezing.thaw()
    for _ in range(2 * TRIES):
        table.comes(driver, STUCK, "It is full.", is_short=True)
    assert (table.lost, table.words) == ([], ["frozen"])
    table.freezing.let_go()
    table.comes(driver, STUCK, "It is full.", is_short=True)
    assert table.lost == ["It could not be made to go on. It is full."]


def test_one_that_is_told_to_end_goes_on_unasked(driver: Scripted) -> None:
    table = Table(driver)
    table.freezing.freeze()
    table.comes(driver, FROZEN)
    table.freezing.let_go()
    assert table.freezing.is_busy
    table.comes(driver, RUNNING)
    assert table.words == ["frozen"]
    assert len(table.freezing.pauses) == 1


def test_gpus_are_moved_one_by_one_or_not_at_all(driver: Scripted) -> None:
    assert moves_between(["a", "b"], ["a", "b"]) == {}
    assert moves_between(["a", "b"], ["b", "a"]) == {"a": "b", "b": "a"}
    assert moves_between(["a", "a"], ["b", "b"]) == {"a": "b"}
    for impossible in (["b"], ["b", "c"], ["b", "b", "b"]):
        assert moves_between(["a", "a"], impossible) is None
    assert moves_between(["a", "b"], ["c", "c"]) is None
    table = Table(driver)
    table.freezing.freeze()
    table.comes(driver, FROZEN)
    table.freezing.thaw(["a", "b"])
    assert len(table.lost) == 1


def test_a_freezer_that_leaves_more_than_it_may_is_undone_and_the_next_one_tried() -> None:
    able, driver = Scripted("cooperative"), Scripted("driver")
    table = Table(able, driver)
    table.freezing.freeze(may_keep=100 << 20)
    table.comes(able, FROZEN, gpu_bytes=560 << 20)
    assert able.calls == ["release", "restore"]
    table.comes(able, RUNNING)
    table.comes(driver, FROZEN, gpu_bytes=4 << 20)
    [(what, said)] = table.told
    assert (what, said["how"], said["gpu_bytes"]) == ("frozen", "driver", 4 << 20)
    assert "560 MiB" in said["why"]
    table.freezing.thaw()
    table.comes(driver, RUNNING)
    table.freezing.freeze(may_keep=100 << 20)
    assert able.calls == ["release", "restore"], "it is known to leave too much"
    table.comes(driver, FROZEN, gpu_bytes=4 << 20)
    table.freezing.thaw()
    table.comes(driver, RUNNING)
    table.freezing.freeze()
    assert able.calls[-1] == "release", "nobody needs that memory now"


def test_where_every_way_leaves_too_much_it_goes_on_and_another_try_may_work() -> None:
    driver = Scripted()
    table = Table(driver)
    table.freezing.freeze(may_keep=1 << 20)
    table.comes(driver, FROZEN, gpu_bytes=4 << 20)
    table.comes(driver, RUNNING)
    [(what, said)] = table.told
    assert what == "not frozen"
    assert said["is_final"] is False
    assert "4 MiB" in said["why"]
