"""A gang on several nodes that is resized while it trains, and one that loses ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.engines.ray.gang import (
    Due,
    Gang,
    Part,
    can_resize_in_place,
    changing,
    due,
    ending,
    fold,
    left_after_loss,
    numbered,
    numbers_of,
    resizing_in_place,
    superseded,
)
from trainmaster.engines.ray.gang_parts import Meeting, steering
from trainmaster.model.engine_reports import (
    CanResize,
    Ended,
    Frozen,
    Lost,
    NotResized,
    ReplicaLost,
    Report,
    Reshaped,
    ResizeReady,
    ResizeTimed,
    Started,
    StopOrder,
)
from trainmaster.model.job import Run

RUN, NOW = Run("12", 1), 1000
A, B, C = 0, 1, 2
"""Parts on n0 and n1, which the gang begins with, and on n2."""
DONE = Ended(RUN, NOW, 0)
FAILED = Ended(RUN, NOW, 7, rank=2, tail="broken")
HALTED = Ended(RUN, NOW, 0, StopOrder.HALT, has_left=True)
GONE = Lost(RUN, NOW, "The node n2 is dead.")
READY, NOT = ResizeReady(RUN, NOW, 1), NotResized(RUN, NOW, 1, "ranks did not regroup within 5 s")

Said = tuple[int, Report]


def gang_of(may_lose: int = 0) -> Gang:
    """Two ranks on n0 and one on n1, which train and can be resized."""
    parts = (Part("n0", 0, 2, devices=(0, 1)), Part("n1", 2, 1, devices=(0,)))
    gang, _ = told(
        Gang(RUN, parts),
        (A, Started(RUN, NOW, (10, 11))),
        (B, Started(RUN, NOW, (20,))),
        (A, CanResize(RUN, NOW, may_lose)),
        (B, CanResize(RUN, NOW, may_lose)),
    )
    return gang


def told(gang: Gang, *said: Said) -> tuple[Gang, list[Report]]:
    """The gang after these, and the run's own reports."""
    own = []
    for index, report in said:
        gang, report_of_run = fold(gang, index, gang.parts[index].seen + 1, report)
        own += [] if report_of_run is None else [report_of_run]
    return gang, own


def formed(*pids: int, numbers: tuple[int, ...] = ()) -> Reshaped:
    return Reshaped(RUN, NOW, pids, in_place=True, pause_ms=pids[0], numbers=numbers)


GROWN = (Part("n0", 0, 2, devices=(0, 1)), Part("n1", 2, 2, devices=(0, 1)), Part("n2", 4, 1))
"""One more rank on n1, and one on n2."""
WITHOUT_FIRST = (Part("n1", 0, 1, devices=(0,)), Part("n2", 1, 1))


def growing(gang: Gang | None = None, target: tuple[Part, ...] = GROWN) -> Gang:
    gang = gang or gang_of()
    return resizing_in_place(gang, gang.shape + 1, numbered(gang, target))


def test_new_processes_get_the_lowest_numbers_that_no_process_of_the_gang_has() -> None:
    found = [part.numbers for part in numbered(gang_of(), GROWN)]
    assert found == [(), (3,), (4,)]
    other = (Part("n0", 0, 2, devices=(1, 2)),)
    assert [part.numbers for part in numbered(gang_of(), other)] == [(3,)]


def test_ranks_are_told_to_regroup_once_all_nodes_are_ready() -> None:
    gang, own = told(growing(), (C, Started(RUN, NOW, (30,))), (A, READY), (C, READY))
    assert (due(gang), own) == ({}, [])
    gang, _ = told(gang, (B, READY))
    assert due(gang) == {A: Due.REGROUP, B: Due.REGROUP}
    assert steering(gang, B, Due.REGROUP, Meeting("n0", 47)) == {
        "order": "regroup",
        "number": 1,
        "first": 2,
        "world": 5,
        "host": "n0",
        "port": 47,
    }
    gang, own = told(gang, (A, formed(10, 11, numbers=(0, 1))), (C, formed(30, numbers=(4,))))
    assert (due(gang), own) == ({B: Due.REGROUP}, [])
    gang, own = told(gang, (B, formed(20, 21, numbers=(2, 3))))
    pids = (10, 11, 20, 21, 30)
    assert own == [Reshaped(RUN, NOW, pids, True, pause_ms=30, numbers=(0, 1, 2, 3, 4))]
    assert (due(gang), gang.world, gang.members) == ({}, 5, (A, B, C))
    assert can_resize_in_place(gang, {"n2"})


def test_a_node_that_is_not_needed_is_left_though_the_first_rank_is_there() -> None:
    gang = growing(target=WITHOUT_FIRST)
    gang, _ = told(gang, (C, Started(RUN, NOW, (30,))), (B, READY), (C, READY))
    assert due(gang) == {A: Due.LEAVE, B: Due.REGROUP}
    gang, own = told(gang, (B, formed(20, numbers=(2,))), (C, formed(30, numbers=(3,))))
    assert (due(gang), own) == ({A: Due.LEAVE}, [])
    gang, own = told(gang, (A, DONE))
    assert own == [Reshaped(RUN, NOW, (20, 30), True, pause_ms=30, numbers=(2, 3))]
    assert gang.members == (B, C)
    assert [part.first_rank for part in gang.member_parts] == [0, 1]
    again = growing(gang, GROWN)
    assert again.resize is not None
    assert again.resize.members == (3, B, C), "its part on n0 is another one"
    assert [numbers_of(again.parts[n]) for n in again.resize.members] == [(0, 1), (2,), (3,)]
    _, own = told(gang, (B, DONE), (C, DONE))
    assert own == [DONE]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([(A, READY), (B, NOT)], NOT.why),
        ([(C, FAILED)], "a new rank ended with 7 before it had joined"),
        ([(C, GONE)], GONE.why),
        ([(A, READY), (B, READY), (C, READY), (A, formed(10, 11)), (B, NOT)], NOT.why),
    ],
)
def test_what_cannot_be_done_in_place_is_done_from_a_checkpoint(said: list[Said], why: str) -> None:
    gang, own = told(growing(), *said)
    assert (gang.is_resizing, gang.why, own) == (True, why, [])
    live = {index for index, part in enumerate(gang.parts) if part.over is None}
    assert due(gang) == dict.fromkeys(live, Due.HALT)
    gang, own = told(gang, *((index, HALTED) for index in live))
    assert gang.is_between
    assert own == []


def test_ranks_that_are_late_may_wait_for_one_that_writes_a_checkpoint_on_another_node() -> None:
    late = replace(NOT, is_late=True)
    gang, _ = told(growing(), (A, READY), (B, READY), (C, READY), (A, late))
    assert gang.resize is not None
    _, own = told(gang, (A, formed(10, 11)), (B, formed(20, 21)), (C, formed(30)))
    assert [type(each) for each in own] == [Reshaped]
    gang, _ = told(gang, (B, late))
    assert (gang.is_resizing, gang.why) == (True, NOT.why)


def test_words_about_another_resize_do_not_count() -> None:
    other = replace(READY, number=2), replace(NOT, number=2)
    gang, _ = told(growing(), (A, READY), (C, READY), (B, other[0]), (B, other[1]))
    assert due(gang) == {}
    assert gang.resize is not None


def test_a_rank_that_trains_and_fails_meanwhile_fails_the_run() -> None:
    gang, own = told(growing(), (B, FAILED))
    assert due(gang) == {A: Due.KILL, C: Due.KILL}
    killed = Ended(RUN, NOW, 143, StopOrder.KILL)
    _, own = told(gang, (A, killed), (C, killed))
    assert own == [FAILED]


def test_ranks_that_have_nobody_to_join_any_more_end_and_the_run_has_succeeded() -> None:
    gang, own = told(growing(), (A, DONE), (B, DONE))
    assert (due(gang), own) == ({C: Due.HALT}, [])
    _, own = told(gang, (C, Ended(RUN, NOW, 143, StopOrder.HALT, was_killed=True)))
    assert own == [DONE]


def test_a_gang_that_is_told_to_end_meanwhile_ends() -> None:
    gang, own = told(ending(growing()), (C, FAILED), (A, HALTED), (B, HALTED))
    assert own == [HALTED]
    assert not gang.is_between


def test_two_resizes_are_answered_once() -> None:
    gang, _ = told(superseded(growing()), (A, READY), (B, READY), (C, READY))
    gang, own = told(gang, (A, formed(10, 11)), (B, formed(20, 21)), (C, formed(30)))
    assert own == []
    assert (gang.world, gang.resize) == (5, None)


def test_a_resize_by_one_node_is_answered_by_the_one_over_nodes_that_follows_it() -> None:
    gang = Gang(RUN, (Part("n0", 0, 1),), is_up=True)
    gang = superseded(changing(gang, (0, 1)))
    gang, own = told(gang, (A, formed(10, 11)))
    assert not superseded(superseded(growing()), is_again_wanted=True).is_superseded
    assert (own, gang.is_superseded, gang.parts[A].devices) == ([], False, (0, 1))
    assert not superseded(gang).is_superseded, "nothing is under way"


def test_how_long_a_resize_took_is_told_once_by_what_was_longest() -> None:
    gang, own = told(gang_of(), (A, ResizeTimed(RUN, NOW, order_ms=3, warm_up_ms=900)))
    assert own == []
    _, own = told(gang, (B, ResizeTimed(RUN, NOW, warm_up_ms=100, first_step_ms=8)))
    assert own == [ResizeTimed(RUN, NOW, order_ms=3, warm_up_ms=900, first_step_ms=8)]


@pytest.mark.parametrize(
    ("gang", "nodes", "wanted"),
    [
        (gang_of(), {"n1"}, True),
        (gang_of(), {"n2"}, False),
        (told(gang_of(), (B, DONE))[0], {"n0"}, False),
        (told(gang_of(), (B, Frozen(RUN, NOW)))[0], {"n0"}, False),
        (Gang(RUN, (Part("n0", 0, 1),)), {"n0"}, False),
    ],
)
def test_only_a_gang_that_trains_and_has_said_so_is_resized_in_place(
    gang: Gang, nodes: set[str], wanted: bool
) -> None:
    assert can_resize_in_place(gang, nodes) is wanted


# -- losses --------------------------------------------------------------------------------------------


RANK = ReplicaLost(RUN, NOW, 1, (10,), 9, tail="gone")


def test_a_gang_that_loses_a_rank_goes_on_with_the_others_on_all_nodes() -> None:
    gang, own = told(gang_of(may_lose=1), (A, RANK))
    assert (gang.must_regroup, due(gang), own) == (True, {}, [])
    rest = left_after_loss(gang)
    assert [(part.node, part.first_rank, part.ranks) for part in rest] == [
        ("n0", 0, 1),
        ("n1", 1, 1),
    ]
    gang = resizing_in_place(gang, 1, rest)
    assert due(gang) == {A: Due.REGROUP, B: Due.REGROUP}
    gang, own = told(gang, (A, formed(10, numbers=(0,))), (B, formed(20, numbers=(2,))))
    assert own == [replace(RANK, pids=(10, 20))]
    assert (gang.must_regroup, gang.world, gang.first) == (False, 2, None)


def test_the_device_of_a_lost_rank_has_no_process_that_could_stay() -> None:
    gang, _ = told(gang_of(may_lose=1), (A, replace(RANK, rank=0, pids=(11,))))
    gang = resizing_in_place(gang, 1, left_after_loss(gang))
    gang, _ = told(gang, (A, formed(11, numbers=(1,))), (B, formed(20, numbers=(2,))))
    shrunk = (Part("n0", 0, 1, devices=(0,)), Part("n1", 1, 1, devices=(0,)))
    assert [part.numbers for part in numbered(gang, shrunk)] == [(0,), ()]
    kept = (Part("n0", 0, 1, devices=(1,)), Part("n1", 1, 1, devices=(0,)))
    assert [part.numbers for part in numbered(gang, kept)] == [(), ()]


def test_a_gang_that_loses_a_node_goes_on_with_the_others() -> None:
    gang, _ = told(gang_of(may_lose=1), (B, FAILED))
    assert (gang.must_regroup, due(gang)) == (True, {})
    gang = resizing_in_place(gang, 1, left_after_loss(gang))
    gang, own = told(gang, (A, formed(10, 11, numbers=(0, 1))))
    assert own == [ReplicaLost(RUN, NOW, 2, (10, 11), 7, tail="broken")]
    assert told(gang, (A, DONE))[1] == [DONE]


@pytest.mark.parametrize(
    ("gang", "said"),
    [
        (gang_of(), (A, RANK)),
        (told(gang_of(may_lose=1), (B, FAILED))[0], (A, RANK)),
        (told(growing(gang_of(may_lose=1)), (A, READY), (B, READY), (C, READY))[0], (A, RANK)),
    ],
)
def test_one_that_may_lose_no_more_fails(gang: Gang, said: Said) -> None:
    gang, own = told(gang, said)
    assert due(gang)[A] is Due.FAIL
    rest = [index for index, part in enumerate(gang.parts) if part.over is None]
    _, own = told(gang, *((index, replace(FAILED, code=9, rank=1)) for index in rest))
    assert [(over.code, over.rank) for over in own if isinstance(over, Ended)] == [(9, 1)]


def test_ranks_that_were_to_join_are_launched_again_after_a_loss() -> None:
    gang, _ = told(growing(gang_of(may_lose=1)), (A, READY), (C, READY), (A, RANK))
    assert (gang.must_regroup, due(gang)) == (True, {C: Due.HALT})
    gang = resizing_in_place(gang, 2, left_after_loss(gang))
    gang, _ = told(gang, (A, formed(10)), (C, HALTED), (B, formed(20)))
    assert (gang.world, gang.is_resizing, gang.has_ended) == (2, False, False)
    again = growing(gang)
    assert again.resize is not None
    assert again.resize.members == (A, B, 3)


def test_a_gang_on_one_node_that_loses_a_rank_while_it_grows_is_grown_again() -> None:
    gang = Gang(RUN, (Part("n0", 0, 2),))
    gang, _ = told(gang, (A, Started(RUN, NOW, (10, 11))), (A, CanResize(RUN, NOW, 1)))
    gang, own = told(growing(gang, (Part("n0", 0, 2), Part("n1", 2, 1))), (A, RANK))
    assert own == [RANK]
    assert (gang.resize, gang.loss, due(gang)) == (None, None, {B: Due.HALT})
    assert can_resize_in_place(gang, {"n0"})


def test_those_that_do_not_regroup_after_a_loss_fail_as_the_lost_rank() -> None:
    gang, _ = told(gang_of(may_lose=1), (A, RANK))
    gang = resizing_in_place(gang, 1, left_after_loss(gang))
    gang, _ = told(gang, (B, NOT))
    assert due(gang) == {A: Due.FAIL, B: Due.KILL}
    _, own = told(gang, (A, replace(FAILED, code=9)), (B, Ended(RUN, NOW, 143, StopOrder.KILL)))
    assert [over.code for over in own if isinstance(over, Ended)] == [9]
