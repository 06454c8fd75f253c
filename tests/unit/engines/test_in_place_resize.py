"""Resizes in place: who keeps which rank, and what the ranks are asked, without processes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.local.cgroups import RunCgroups
from trainmaster.engines.local.in_place_resize import (
    WARM_UP_S,
    InPlaceResize,
    RankAssignment,
    Step,
    assigned_ranks,
)
from trainmaster.engines.local.logs import RankLog
from trainmaster.engines.local.rank_processes import Gang, RankProcess, free_numbers
from trainmaster.engines.local.run_resizing import (
    LONGEST_SAVE_S,
    PER_GANG,
    RunResizing,
    without_rank,
)
from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile
from trainmaster_sdk.wire import Message


@pytest.mark.parametrize(
    ("numbers", "slots", "target", "wanted"),
    [
        pytest.param(
            (0, 1),
            ("n x 1",) * 2,
            ("n x 1",) * 3,
            RankAssignment({0: 0, 1: 1}, (), (2,)),
            id="grow",
        ),
        pytest.param(
            (0, 1, 2), ("n x 1",) * 3, ("n x 1",), RankAssignment({0: 0}, (1, 2), ()), id="shrink"
        ),
        pytest.param(
            (0, 1, 2, 3),
            ("n:0", "n:1", "n:2", "n:3"),
            ("n:0", "n:2"),
            RankAssignment({0: 0, 2: 1}, (1, 3), ()),
            id="each process stays on its GPU",
        ),
        pytest.param(
            (0,), ("n:2",), ("n:1", "n:2"), RankAssignment({0: 1}, (), (0,)), id="a new first rank"
        ),
        pytest.param(
            (0, 1), ("n:0", "n:1"), ("n:2",), RankAssignment({}, (0, 1), (0,)), id="all others"
        ),
        pytest.param(
            (0, 2),
            ("a x 1", "a x 1"),
            ("a x 1", "a x 1", "b x 1"),
            RankAssignment({0: 0, 2: 1}, (), (2,)),
            id="a slot on another node",
        ),
    ],
)
def test_processes_keep_their_slots(
    numbers: tuple[int, ...], slots: tuple[str, ...], target: tuple[str, ...], wanted: object
) -> None:
    assert assigned_ranks(numbers, slots, target) == wanted


def test_new_processes_get_the_lowest_free_numbers_of_their_part() -> None:
    assert free_numbers({0, 2}, 2, first=0) == [1, 3]
    assert free_numbers({4}, 2, first=4) == [5, 6]


def run_of(world: int, port: int = 4711) -> RunFile:
    ranks = tuple(
        RankSpec(
            ("true",),
            {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_WORLD_SIZE": str(world),
            },
        )
        for rank in range(world)
    )
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    slots = ("n x 1",) * world
    plan = CgroupPlan()
    return RunFile("a.1", 0, "/", env, ranks, "/s", 5_000, 1, 1, "", plan, slots=slots)


def gang_of(folder: Path, count: int) -> Gang:
    gang = Gang(RunCgroups(CgroupPlan(), "none"))
    gang.ranks = [
        RankProcess(number, 1 << 30, None, RankLog(str(folder / f"{number}.log"), 1, 1))
        for number in range(count)
    ]
    return gang


class Ranks:
    """What each process was asked."""

    def __init__(self) -> None:
        self.asked: dict[int, Message] = {}

    def ask(self, number: int, said: Message) -> None:
        self.asked[number] = said


def test_ranks_are_asked_once_and_those_without_a_place_leave(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    wanted = RankAssignment({0: 0}, (1,), ())
    resize = InPlaceResize(run_of(1), gang, wanted, 1000, ranks.ask, 5.0, 3)
    resize.begin(str(tmp_path))
    assert ranks.asked[0] == {
        "ask": "resize",
        "n": 1000,
        "rank": 0,
        "world": 1,
        "local_rank": 0,
        "local_world": 1,
        "host": "127.0.0.1",
        "port": 4711,
    }
    assert ranks.asked[1] == {"ask": "resize", "n": 1000, "rank": None}
    resize.heard(0, {"say": "resized", "n": 1000, "regroup_ms": 7, "broadcast_ms": 0})
    assert resize.step is Step.BOUNDARY
    resize.heard(1, {"say": "removed", "n": 1000})
    resize.tick(time.monotonic())
    assert (resize.step, [rank.number for rank in gang.leaving]) == (Step.LEAVING, [1])
    gang.leaving[0].code = 0
    resize.tick(time.monotonic())
    assert resize.step is Step.DONE
    assert [rank.number for rank in resize.members()] == [0]
    assert resize.phases["regroup_ms"] == 7


def test_ranks_that_do_not_come_are_waited_for_only_while_they_save(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    wanted = RankAssignment({0: 0}, (1,), ())
    resize = InPlaceResize(run_of(1), gang, wanted, 1000, ranks.ask, 5.0, 0)
    resize.begin(str(tmp_path))
    later = time.monotonic() + 6
    resize.tick(later, is_saving=True)
    assert not resize.failure
    resize.tick(later)
    assert resize.failure == "ranks did not regroup within 5 s"


def test_words_of_another_resize_do_not_count(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 1)
    resize = InPlaceResize(run_of(1), gang, RankAssignment({0: 0}, (), ()), 2000, ranks.ask, 5.0, 0)
    resize.begin(str(tmp_path))
    resize.heard(0, {"say": "resized", "n": 1000})
    resize.tick(time.monotonic())
    assert resize.step is Step.BOUNDARY
    assert WARM_UP_S > 60


def test_only_a_program_that_has_said_so_is_resized_in_place(tmp_path: Path) -> None:
    gang = gang_of(tmp_path, 2)
    resizing = RunResizing(gang, Ranks().ask)
    assert resizing.assignment(run_of(2), run_of(3)) is None
    resizing.heard(0, {"say": "can resize", "may_lose": 1})
    assert resizing.assignment(run_of(2), run_of(3)) is None
    resizing.heard(1, {"say": "can resize", "may_lose": 1})
    assert resizing.assignment(run_of(2), run_of(3)) == RankAssignment({0: 0, 1: 1}, (), (2,))


def part_of(run: RunFile, world: int, shape: int = 0) -> RunFile:
    """Its ranks are some of a gang's on several machines; with a shape, by a resize that all do together."""
    for rank in run.ranks:
        rank.env["WORLD_SIZE"] = str(world)
    return replace(run, in_place=shape > 0, gang_generation=shape, numbers=(7, 8)[: shape and 2])


def test_a_part_of_a_gang_that_has_lost_a_rank_regroups_when_all_are_told(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    resizing = RunResizing(gang, ranks.ask)
    for number in range(2):
        resizing.heard(number, {"say": "can resize", "may_lose": 1})
    part = part_of(run_of(2), world=4)
    lost = gang.ranks[0]
    assert resizing.can_lose(part, lost)
    resizing.lose(part, lost, str(tmp_path))
    assert (resizing.active, resizing.lost_rank, ranks.asked) == (None, lost, {})
    assert not resizing.can_lose(part, gang.ranks[0])
    said = {"number": 3, "first": 1, "world": 3, "host": "n0", "port": 47}
    for _ in range(2):
        resizing.regroup(part, said, str(tmp_path))
    where = {"host": "n0", "port": 47, "local_rank": 0, "local_world": 1}
    number = 3 * PER_GANG
    assert ranks.asked == {1: {"ask": "resize", "n": number, "rank": 1, "world": 3} | where}


def test_the_last_part_that_is_left_meets_at_its_own_machine(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    resizing = RunResizing(gang, ranks.ask)
    said = {"number": 3, "first": 0, "world": 2, "host": "127.0.0.1", "port": 0}
    resizing.regroup(part_of(run_of(2), world=3), said, str(tmp_path))
    assert [ranks.asked[number]["rank"] for number in range(2)] == [0, 1]
    assert len({ranks.asked[number]["port"] for number in range(2)} - {0}) == 1


def test_ranks_of_a_part_are_asked_when_all_parts_are_ready(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    resizing = RunResizing(gang, ranks.ask)
    for number in range(2):
        resizing.heard(number, {"say": "can resize"})
    target = part_of(run_of(1), world=3, shape=2)
    found = resizing.assignment(part_of(run_of(2), world=2), target)
    assert found == RankAssignment({0: 0}, (1,), ())
    resizing.begin(run_of(2), target, found, 0, str(tmp_path))
    resize = resizing.active
    assert resize is not None
    resize.tick(time.monotonic() + 2 * WARM_UP_S)
    assert (resize.step, resize.failure, ranks.asked) == (Step.READY, "", {})
    assert resizing.is_old(target)
    resizing.regroup(run_of(2), {"number": 2}, str(tmp_path))
    assert resize.step is Step.BOUNDARY
    resize.tick(time.monotonic() + 6)
    assert (resize.is_late, resize.failure) == (True, ""), "others may be writing a checkpoint"
    assert ranks.asked[1] == {"ask": "resize", "n": 2 * PER_GANG, "rank": None}


def test_a_part_that_has_only_come_waits_for_the_others(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    resizing = RunResizing(gang, ranks.ask)
    resizing.join(part_of(run_of(2), world=3, shape=1), PER_GANG)
    resize = resizing.active
    assert resize is not None
    for number in range(2):
        assert resize.step is Step.WARM_UP
        resizing.heard(number, {"say": "ready"})
        resize.tick(time.monotonic())
    resize.tick(time.monotonic() + 2 * WARM_UP_S)
    assert (resize.step, resize.failure) == (Step.READY, "")
    for number in range(2):
        resizing.heard(number, {"say": "resized", "n": PER_GANG})
    resize.tick(time.monotonic())
    assert (resize.step, len(resize.members())) == (Step.DONE, 2)


def test_a_part_that_is_not_needed_leaves(tmp_path: Path) -> None:
    ranks, gang = Ranks(), gang_of(tmp_path, 2)
    resizing = RunResizing(gang, ranks.ask)
    run = part_of(run_of(2), world=4)
    for _ in range(2):
        resizing.leave(run, {"number": 1}, str(tmp_path))
    assert {said["rank"] for said in ranks.asked.values()} == {None}
    for number in range(2):
        resizing.heard(number, {"say": "removed", "n": PER_GANG})
    assert not gang.has_ended, "they have not ended yet"
    for rank in gang.leaving:
        rank.code = 0
    assert resizing.active is not None
    resizing.active.tick(time.monotonic())
    assert resizing.active.step is Step.DONE
    assert gang.ranks == []


def test_without_a_rank_the_others_are_numbered_anew() -> None:
    left = without_rank(run_of(3), 1, 99)
    assert [rank.env["RANK"] for rank in left.ranks] == ["0", "1"]
    assert {rank.env["WORLD_SIZE"] for rank in left.ranks} == {"2"}
    assert (left.env["MASTER_PORT"], len(left.slots)) == ("99", 2)


def test_a_checkpoint_is_waited_for_until_its_end_is_told_but_not_for_ever(tmp_path: Path) -> None:
    resizing = RunResizing(gang_of(tmp_path, 1), Ranks().ask)
    for end in ("saved", "not saved"):
        resizing.heard(0, {"say": "saving", "step": 3})
        assert resizing.is_saving(time.monotonic())
        resizing.heard(0, {"say": end, "step": 3})
        assert not resizing.is_saving(time.monotonic())
    resizing.heard(0, {"say": "saving", "step": 3})
    assert not resizing.is_saving(time.monotonic() + LONGEST_SAVE_S + 1)
