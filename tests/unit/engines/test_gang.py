"""What the reports of a gang's parts say of the run as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.engines.ray.gang import (
    Due,
    Gang,
    Part,
    due,
    ending,
    fold,
    next_generation,
    resizing,
)
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    HeedsStops,
    Hung,
    Lost,
    NotFrozen,
    Progressed,
    Report,
    Reshaped,
    Started,
    StopOrder,
    Thawed,
    WentOn,
)
from trainmaster.model.job import Run

RUN = Run("12", 1)
NOW = 1000
A, B = 0, 1
"""The gang's two parts."""
UP_A, UP_B = Started(RUN, NOW, (10, 11)), Started(RUN, NOW, (20,))
FROZEN, THAWED = Frozen(RUN, NOW), Thawed(RUN, NOW)
REFUSED = NotFrozen(RUN, NOW, "NCCL is in use.")
DONE = Ended(RUN, NOW, 0)
FAILED = Ended(RUN, NOW, 7, rank=2, tail="broken")
HALTED = Ended(RUN, NOW, 0, StopOrder.HALT, has_left=True)
LATE = Ended(RUN, NOW, 137, StopOrder.HALT, was_killed=True)
KILLED = Ended(RUN, NOW, 143, StopOrder.KILL, cancelled=True)
LOST = Lost(RUN, NOW, "The node n1 is dead.")

Said = tuple[int, Report]


def gang_of_two() -> Gang:
    return Gang(RUN, (Part("n0", 0, 2), Part("n1", 2, 1)))


def told(*said: Said, gang: Gang | None = None) -> tuple[Gang, list[Report]]:
    """The gang after these, and the run's own reports."""
    gang = gang or gang_of_two()
    own = []
    for index, report in said:
        gang, report_of_run = fold(gang, index, gang.parts[index].seen + 1, report)
        if report_of_run is not None:
            own.append(report_of_run)
    return gang, own


UP: tuple[Said, ...] = ((A, UP_A), (B, UP_B))
STARTED = Started(RUN, NOW, (10, 11, 20))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([(A, UP_A)], []),
        ([(B, UP_B), (A, UP_A)], [STARTED]),
        ([*UP, (A, DONE)], [STARTED]),
        ([*UP, (A, DONE), (B, DONE)], [STARTED, DONE]),
        ([*UP, (B, FAILED)], [STARTED]),
        ([*UP, (B, FAILED), (A, KILLED)], [STARTED, FAILED]),
        ([(A, UP_A), (B, FAILED), (A, KILLED)], [FAILED]),
        ([*UP, (A, KILLED), (B, KILLED)], [STARTED, KILLED]),
        ([*UP, (B, LOST)], [STARTED]),
        ([*UP, (B, LOST), (A, KILLED)], [STARTED, LOST]),
        ([*UP, (A, FAILED), (B, LOST)], [STARTED, LOST]),
        ([*UP, (A, HALTED), (B, HALTED)], [STARTED, HALTED]),
        ([*UP, (A, DONE), (B, HALTED)], [STARTED, HALTED]),
        ([*UP, (A, FROZEN)], [STARTED]),
        ([*UP, (A, FROZEN), (B, FROZEN)], [STARTED, FROZEN]),
        ([*UP, (A, FROZEN), (B, FROZEN), (A, THAWED)], [STARTED, FROZEN]),
        ([*UP, (A, FROZEN), (B, FROZEN), (A, THAWED), (B, THAWED)], [STARTED, FROZEN, THAWED]),
        ([*UP, (A, FROZEN), (B, REFUSED)], [STARTED]),
        ([*UP, (A, FROZEN), (B, REFUSED), (A, THAWED)], [STARTED, REFUSED]),
        ([*UP, (A, REFUSED), (B, REFUSED)], [STARTED, REFUSED]),
        ([*UP, (A, FROZEN), (B, DONE)], [STARTED, FROZEN]),
        ([(A, HeedsStops(RUN, NOW)), (B, HeedsStops(RUN, NOW))], [HeedsStops(RUN, NOW)]),
        ([(B, Progressed(RUN, NOW, 3))], [Progressed(RUN, NOW, 3)]),
    ],
    ids=lambda said: " ".join(
        f"{each[0]}:{type(each[1]).__name__}" for each in said if isinstance(each, tuple)
    ),
)
def test_reports_of_parts_make_the_runs_own(said: list[Said], expected: list[Report]) -> None:
    assert told(*said)[1] == expected


def test_who_saved_counts_where_a_halted_gang_ends_in_two_ways() -> None:
    _, (_, over) = told(*UP, (A, HALTED), (B, LATE))
    assert isinstance(over, Ended)
    assert (over.code, over.has_left, over.was_killed, over.asked) == (
        0,
        True,
        True,
        StopOrder.HALT,
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (UP, {}),
        ([*UP, (B, FAILED)], {A: Due.KILL}),
        ([*UP, (B, LOST)], {A: Due.KILL}),
        ([*UP, (B, DONE)], {}),
        ([*UP, (B, REFUSED)], {}),
        ([*UP, (A, FROZEN), (B, REFUSED)], {A: Due.THAW}),
        ([*UP, (A, FROZEN), (B, REFUSED), (A, THAWED)], {}),
        ([*UP, (B, FAILED), (A, KILLED)], {}),
    ],
)
def test_what_parts_are_told_because_of_others(said: list[Said], expected: dict[int, Due]) -> None:
    assert due(told(*said)[0]) == expected


def test_a_gang_that_could_not_be_frozen_can_be_frozen_later() -> None:
    gang, _ = told(*UP, (A, FROZEN), (B, REFUSED), (A, THAWED))
    _, own = told((B, FROZEN), (A, FROZEN), gang=gang)
    assert own == [FROZEN]


def test_what_was_seen_and_what_comes_after_a_parts_end_changes_nothing() -> None:
    gang, _ = told(*UP, (B, DONE))
    assert fold(gang, A, 1, FAILED) == (gang, None)
    assert fold(gang, B, 9, FAILED) == (gang, None)


def test_a_hang_is_over_when_no_part_hangs() -> None:
    hung, on = Hung(RUN, NOW, 60_000, 1_000), WentOn(RUN, NOW)
    assert told((A, hung), (B, hung), (A, on))[1] == [hung]
    assert told((A, hung), (B, hung), (A, on), (B, on))[1] == [hung, on]


def test_a_resized_gang_goes_on_with_other_parts_once_all_have_left() -> None:
    gang, _ = told(*UP)
    gang = resizing(gang)
    assert due(gang) == {A: Due.HALT, B: Due.HALT}
    gang, own = told((A, HALTED), gang=gang)
    assert not gang.is_between
    gang, own = told((B, HALTED), gang=gang)
    assert gang.is_between
    assert own == []
    gang = next_generation(gang, [Part("n1", 0, 1)])
    assert told((A, Started(RUN, NOW, (30,))), gang=gang)[1] == [Reshaped(RUN, NOW, (30,))]


def test_a_gang_on_one_node_is_resized_by_that_node() -> None:
    resized = Reshaped(RUN, NOW, (10, 11, 12), in_place=True, pause_ms=300)
    gang, own = told((A, UP_A), (A, resized), gang=Gang(RUN, (Part("n0", 0, 2),)))
    assert own == [UP_A, resized]
    assert [part.ranks for part in gang.parts] == [3]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(DONE, DONE, DONE), (FAILED, HALTED, FAILED), (HALTED, LOST, LOST)],
)
def test_a_gang_that_ends_while_it_is_resized_has_ended(
    first: Ended, second: Ended | Lost, expected: Report
) -> None:
    gang, _ = told(*UP)
    gang, own = told((A, first), (B, second), gang=resizing(gang))
    assert own == [expected]
    assert gang.has_ended


def test_a_gang_that_is_told_to_end_while_it_is_resized_does_not_go_on() -> None:
    gang, _ = told(*UP)
    gang, own = told((A, HALTED), (B, HALTED), gang=ending(resizing(gang)))
    assert own == [HALTED]
    assert not gang.is_between


def test_frozen_parts_add_up_what_they_keep() -> None:
    kept = replace(FROZEN, host_bytes=5, gpu_bytes=3, took_ms=40, is_all_on_gpus=True)
    other = replace(FROZEN, host_bytes=2, gpu_bytes=1, took_ms=70, is_all_on_gpus=False)
    _, (_, frozen) = told(*UP, (A, kept), (B, other))
    assert frozen == replace(FROZEN, host_bytes=7, gpu_bytes=4, took_ms=70, is_all_on_gpus=False)


def test_the_part_that_had_most_memory_says_what_the_run_had() -> None:
    less = replace(DONE, peak_memory=5, rank_memory=20)
    more = replace(DONE, peak_memory=9, rank_memory=10)
    _, own = told(*UP, (A, less), (B, more))
    last = own[-1]
    assert isinstance(last, Ended)
    assert (last.peak_memory, last.rank_memory) == (9, 20)
