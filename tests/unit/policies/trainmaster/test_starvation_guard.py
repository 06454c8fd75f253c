"""Owed runs: who has fallen too far behind, what it is owed, how many at once, and when to look again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.unit.core.stage import Strings
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.plan import Rank
from trainmaster.model.units import HOUR, MINUTE, NOMINAL, SECOND, WHOLE
from trainmaster.policies.trainmaster.starvation_guard import (
    APART_MS,
    LONGEST_MS,
    NO_GUARANTEED_RUNS,
    SHORTEST_MS,
    GuaranteedRuns,
    StarvationGuard,
)

GUARD = StarvationGuard(ratio_ppm=2 * NOMINAL, slack_ms=HOUR)
"""Twice its fair time and an hour more."""
PLAIN = Rank(7, 7)


@dataclass
class Watch:
    """A cluster that is checked now and then."""

    strings: Strings
    guard: StarvationGuard = GUARD
    owed: GuaranteedRuns = field(default=NO_GUARANTEED_RUNS)

    def look(self) -> list[str]:
        """Let the guard look now; who is owed a run, in order of its choice."""
        self.strings.tell()
        self.owed = self.guard.guaranteed_runs(
            self.strings.controller.view, self.owed, self.strings.now
        )
        return list(self.owed.until)

    def later(self, ms: int) -> Watch:
        self.strings.later(ms / SECOND)
        return self

    def in_minutes(self) -> float:
        """How long it is until the next look."""
        return (self.owed.next_look_ms - self.strings.now) / MINUTE


def crowded(waiting: int = 1, gpus: int = 1, size: int = 1) -> Watch:
    """One job has all GPUs; others of some size wait."""
    strings = Strings(f"1x{gpus}").running("run", *range(gpus))
    for number in range(waiting):
        strings.submit(f"w{number}", size)
    return Watch(strings)


# -- who is due ------------------------------------------------------------------------------------


def test_fair_age_is_age_over_the_crowd_that_wants_the_same_gpus() -> None:
    """Two jobs on one GPU: after two hours each would have run one."""
    watch = crowded()
    assert watch.later(2 * HOUR - SECOND).look() == []
    watch.owed = NO_GUARANTEED_RUNS
    assert watch.later(SECOND).look() == ["w0"]


def test_the_more_wait_the_longer_it_is_fair_to_wait() -> None:
    """Four jobs on one GPU: four hours."""
    watch = crowded(waiting=3)
    assert watch.later(4 * HOUR - SECOND).look() == []
    watch.owed = NO_GUARANTEED_RUNS
    assert watch.later(SECOND).look() == ["w0"], "and only one, for there is one GPU"


def test_where_gpus_abound_its_age_is_its_fair_age_and_no_more() -> None:
    watch = crowded(gpus=8)
    assert watch.later(HOUR - SECOND).look() == []
    watch.owed = NO_GUARANTEED_RUNS
    assert watch.later(SECOND).look() == ["w0"]


def test_a_gang_has_to_wait_as_many_times_longer_as_it_wants_gpus() -> None:
    """Two jobs that want four of eight GPUs each would have run all the time; of eight, half."""
    assert crowded(gpus=8, size=4).later(HOUR).look() == ["w0"]
    wide = crowded(gpus=8, size=8)
    assert wide.later(2 * HOUR - SECOND).look() == []
    wide.owed = NO_GUARANTEED_RUNS
    assert wide.later(SECOND).look() == ["w0"]


def test_who_has_run_may_be_kept_waiting_for_longer() -> None:
    """It ran for an hour: a fair age of three hours is due, six hours of two jobs on one GPU."""
    strings = Strings("1x1").running("a", 0).submit("b").later(HOUR / SECOND)
    strings.plan(a.Suspend("a"), a.Start("b", strings.on(0)))
    strings.tell(e.RunSuspended(strings.run("a"), HOUR * NOMINAL))
    strings.started("b")
    watch = Watch(strings)
    assert watch.later(5 * HOUR - SECOND).look() == []
    watch.owed = NO_GUARANTEED_RUNS
    assert watch.later(SECOND).look() == ["a"]


def test_who_runs_is_owed_nothing() -> None:
    assert crowded(waiting=0).later(1_000 * HOUR).look() == []


def test_switched_off_nobody_is() -> None:
    watch = crowded()
    watch.guard = StarvationGuard(0, HOUR)
    assert watch.later(1_000 * HOUR).look() == []
    assert watch.owed is NO_GUARANTEED_RUNS


# -- what is owed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ran", "owed"),
    [(0, SHORTEST_MS), (HOUR, SHORTEST_MS), (5 * HOUR, HOUR // 2), (20 * HOUR, LONGEST_MS)],
)
def test_a_tenth_of_its_progress_ten_minutes_at_least_an_hour_at_most(ran: int, owed: int) -> None:
    strings = Strings("1x2").running("a", 0, 1).submit("b", 2).later(ran / SECOND)
    strings.plan(a.Suspend("a"), a.Start("b", strings.on(0, 1)))
    strings.tell(e.RunSuspended(strings.run("a"), ran * NOMINAL))
    strings.started("b")
    watch = Watch(strings)
    watch.later(1_000 * HOUR).look()
    assert watch.owed.until == {"a": (ran + owed) * 2 * WHOLE}


def test_a_debt_is_paid_when_the_run_has_been_received() -> None:
    strings = Strings("1x2").running("other", 0).submit("a").submit("b")
    watch = Watch(strings)
    watch.later(100 * HOUR)
    assert watch.look() == ["a"]
    strings.start("a", 1)
    assert watch.later(SHORTEST_MS - 1).look() == ["a"]
    watch.owed = GuaranteedRuns(watch.owed.until, watch.strings.now + HOUR)
    assert watch.later(1).look() == []


def test_who_has_ended_is_owed_nothing() -> None:
    watch = crowded()
    watch.later(100 * HOUR).look()
    watch.strings.tell(e.JobWithdrawn("w0"))
    watch.owed = GuaranteedRuns(watch.owed.until, watch.strings.now + HOUR)
    assert watch.look() == []


def test_a_job_that_becomes_owed_or_was_is_ranked_again() -> None:
    strings = Strings("1x2").running("other", 0).submit("a")
    watch, view = Watch(strings), strings.controller.view
    view.changes("test").read_jobs()
    watch.later(100 * HOUR).look()
    assert [record.id for record in view.changes("test").read_jobs()] == ["a"]
    strings.start("a", 1).later(SHORTEST_MS / SECOND)
    view.changes("test").read_jobs()
    watch.look()
    assert [record.id for record in view.changes("test").read_jobs()] == ["a"]


# -- how many at once ------------------------------------------------------------------------------


def test_owed_runs_hold_a_quarter_of_the_gpus() -> None:
    """Of sixteen GPUs four; the longest overdue first."""
    watch = crowded(waiting=9, gpus=16)
    assert watch.later(1_000 * HOUR).look() == ["w0", "w1", "w2", "w3"]


def test_or_are_one_however_large() -> None:
    watch = crowded(waiting=3, gpus=16, size=12)
    assert watch.later(10_000 * HOUR).look() == ["w0"]


def test_small_ones_are_served_beside_one_that_does_not_fit_the_quarter() -> None:
    strings = Strings("1x16").running("run", *range(16)).submit("small", 2).submit("large", 8)
    assert Watch(strings).later(10_000 * HOUR).look() == ["small"]
    strings = Strings("1x16").running("run", *range(16)).submit("large", 8).submit("small", 2)
    assert Watch(strings).later(10_000 * HOUR).look() == ["large"]


def test_those_who_are_owed_already_count() -> None:
    watch = crowded(waiting=9, gpus=16)
    watch.later(1_000 * HOUR).look()
    assert watch.later(HOUR).look() == ["w0", "w1", "w2", "w3"], "nobody has been served"
    watch.strings.tell(e.JobWithdrawn("w1"))
    assert watch.later(HOUR).look() == ["w0", "w2", "w3", "w4"]


# -- the next look ---------------------------------------------------------------------------------


def test_a_look_is_taken_when_the_first_can_have_become_due() -> None:
    watch = crowded()
    watch.look()
    assert watch.in_minutes() == 60, "an hour and twice nothing"
    watch.later(HOUR).look()
    assert watch.in_minutes() == pytest.approx(60 * (2**0.5 - 1), abs=0.01), "should nobody come"


def test_nobody_who_comes_after_a_look_can_be_due_before_the_next() -> None:
    strings = Strings("1x8").running("run", *range(8))
    watch = Watch(strings)
    watch.look()
    watch.later(MINUTE)
    strings.submit("new")
    assert watch.owed.next_look_ms < strings.now + GUARD.slack_ms


def test_looks_are_ten_minutes_apart_at_least_also_where_somebody_is_due() -> None:
    watch = crowded(waiting=5)
    watch.later(1_000 * HOUR).look()
    assert watch.owed.next_look_ms == watch.strings.now + APART_MS
    before = watch.owed
    watch.later(APART_MS - 1).look()
    assert watch.owed is before, "not yet: nothing is looked at, and the value is the same"
