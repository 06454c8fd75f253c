"""What the controller counts for policies: job time, the cost of switching, jobs to rank again."""

from __future__ import annotations

import pytest

from tests.unit.core.stage import Strings
from trainmaster.core.queue_views import queue_views_of
from trainmaster.core.switch_times import MOST_COUNTED, RecentMean, SwitchTimes
from trainmaster.core.view import View, by_demand
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.plan import Rank
from trainmaster.model.units import SECOND

# -- the crowd -------------------------------------------------------------------------------------


def crowd_s(strings: Strings, name: str) -> float:
    """Job-seconds lived by all while this job did."""
    return strings.controller.view.job_time_during(strings.job(name)) / SECOND


def test_the_job_time_integral_counts_all_live_jobs_since_submission() -> None:
    strings = Strings().submit("a").later(10).submit("b").later(5)
    strings.tell()
    assert crowd_s(strings, "a") == 10 + 2 * 5
    assert crowd_s(strings, "b") == 2 * 5


def test_those_that_have_ended_count_no_longer() -> None:
    strings = Strings().running("a", 0).submit("b").later(10)
    strings.tell(e.RunSucceeded(strings.run("a")))
    strings.later(100).tell()
    assert crowd_s(strings, "b") == 2 * 10 + 100


def test_the_job_time_integral_does_not_depend_on_the_steps() -> None:
    once = Strings().submit("a").submit("b").later(60)
    often = Strings().submit("a").submit("b")
    for _ in range(60):
        often.later(1).tell()
    once.tell()
    assert crowd_s(once, "a") == crowd_s(often, "a") == 120


# -- what a change of hands costs ------------------------------------------------------------------


def switch_s(strings: Strings) -> float:
    return strings.controller.view.switch_ms / SECOND


def test_before_anybody_has_started_nothing_is_known_of_switching() -> None:
    assert switch_s(Strings().submit("a").later(9)) == 0


def switched(strings: Strings, name: str, out_s: int, in_s: int, **how: bool) -> Strings:
    """A job leaves its GPU in so many seconds and is back on it after so many more."""
    placement = strings.job(name).placement
    assert placement is not None
    strings.later(100).plan(a.Suspend(name))
    record = strings.job(name)
    strings.later(out_s).tell(e.RunSuspended(record.run, record.work, **how))
    strings.plan(a.Resume(name, placement))
    strings.later(in_s).started(name)
    return strings


def test_a_first_start_is_no_part_of_a_switch() -> None:
    strings = Strings().submit("a")
    strings.plan(a.Start("a", strings.on(0)))
    strings.later(30).started("a")
    assert (switch_s(strings), strings.job("a").switch_ms) == (0, 0)


def test_a_switch_is_a_suspension_and_the_start_of_a_suspended_job() -> None:
    strings = switched(Strings().running("a", 0), "a", 12, 30)
    assert switch_s(strings) == 12 + 30
    switched(strings, "a", 14, 10)
    assert switch_s(strings) == 13 + 20, "the means of both"


def test_a_run_has_what_a_switch_cost_when_it_started() -> None:
    """A mean suspension and its own start; where it had not run before, a mean one."""
    strings = switched(switched(Strings().running("a", 0), "a", 12, 30), "a", 12, 10)
    strings.submit("b")
    strings.plan(a.Start("b", strings.on(1)))
    strings.later(99).started("b")
    assert [strings.job(name).switch_ms for name in "ab"] == [22 * SECOND, 32 * SECOND]


def test_waiting_for_a_release_is_not_counted_as_starting() -> None:
    """The launch is ordered when the GPU is free: what comes before is counted at who leaves."""
    strings = switched(Strings().running("new", 1), "new", 4, 8).running("old", 0)
    strings.later(60).plan(a.Suspend("new"), a.Suspend("old"))
    strings.tell(e.RunSuspended(strings.job("new").run, strings.job("new").work))
    strings.plan(a.Resume("new", strings.on(0)))
    strings.later(20).tell(e.RunSuspended(strings.run("old"), strings.job("old").work))
    strings.later(6).started("new")
    assert switch_s(strings) == (4 + 0 + 20) / 3 + (8 + 6) / 2


def test_a_slow_day_is_forgotten() -> None:
    strings = Strings().running("a", 0)
    for _ in range(200):
        switched(strings, "a", 300, 600)
    for _ in range(3 * MOST_COUNTED):
        switched(strings, "a", 2, 4)
    assert 6 < switch_s(strings) < 60
    for _ in range(6 * MOST_COUNTED):
        switched(strings, "a", 2, 4)
    assert switch_s(strings) < 7


def test_a_mean_of_equal_times_is_that_time_however_many_there_were() -> None:
    mean = RecentMean()
    for _ in range(1_000):
        mean.add(9_001)
        assert mean.mean == 9_001


def test_a_run_that_was_killed_after_its_grace_period_says_nothing_of_others() -> None:
    strings = switched(Strings().running("a", 0), "a", 2, 4)
    switched(strings, "a", 1_800, 4, was_killed=True)
    assert switch_s(strings) == 2 + 4


@pytest.mark.parametrize(
    ("stored", "switch_ms"),
    [
        ((3, 9, 8, 88, 4, 48), 3 + 12),
        ((3, 9, 8, 88), 3),
        ((3000, 9000, 8, 88, 5000, 60000), 3 + 12),
    ],
    ids=["sums", "without restarts", "many"],
)
def test_sums_of_older_stores_are_read(stored: tuple[int, ...], switch_ms: int) -> None:
    times = SwitchTimes.of(stored)
    assert times.switch_ms() == switch_ms
    assert times.launches.mean == 11
    times.suspensions.add(3)
    assert times.suspensions.count <= MOST_COUNTED


# -- ranked again ----------------------------------------------------------------------------------


class Ranks:
    """Counts who is ranked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ranked_jobs(self, view: View) -> list[str]:
        """Who was ranked for this line."""
        self.asked = []

        def rank(record: object) -> Rank:
            self.asked.append(record.id)  # type: ignore[attr-defined]
            return Rank(0, 0)

        view.ranked(rank, 0, group=by_demand, with_running=True)
        return self.asked


def test_only_a_job_that_is_invalidated_is_ranked_again() -> None:
    strings = Strings().submit("a").submit("b").running("c", 0)
    view, ranks = strings.controller.view, Ranks()
    assert ranks.ranked_jobs(view) == ["a", "b", "c"]
    assert ranks.ranked_jobs(view) == []
    view.invalidate_rank(strings.job("b"))
    assert ranks.ranked_jobs(view) == ["b"]


def test_restating_a_run_touches_its_nodes_and_is_news() -> None:
    strings = Strings().running("a", 0)
    view = strings.controller.view
    view.read_dirty_nodes()
    strings.state.log.woken_by_event = False
    view.invalidate_rank(strings.job("a"))
    assert (view.read_dirty_nodes(), strings.state.log.woken_by_event) == ({0}, True)


def test_restating_a_job_stirs_its_queue() -> None:
    """A policy between queues asks only those queues again that were stirred."""
    strings = Strings().submit("a", queue="q").submit("b", queue="p")
    view = strings.controller.view
    assert view.dirty_queues == set(), "a pass has been made"
    view.invalidate_rank(strings.job("a"))
    assert view.dirty_queues == {"q"}


def test_rerank_ranks_everybody_once() -> None:
    strings = Strings().submit("a").submit("b")
    view, ranks = strings.controller.view, Ranks()
    ranks.ranked_jobs(view)
    view.invalidate_ranks()
    assert ranks.ranked_jobs(view) == ["a", "b"]
    assert ranks.ranked_jobs(view) == []


def test_when_all_are_ranked_again_room_may_be_found_anywhere() -> None:
    """A run whose rank has fallen makes room, though nothing has happened on its node."""
    strings = Strings("2x1").running("a", 0).submit("b")
    view, ranks = strings.controller.view, Ranks()
    ranks.ranked_jobs(view)
    view.read_dirty_nodes()
    view.invalidate_ranks()
    ranks.ranked_jobs(view)
    assert view.read_dirty_nodes() == {0, 1}


def test_rerank_reaches_into_the_parts_and_keeps_what_they_have_counted() -> None:
    strings = Strings().submit("a", queue="q").submit("b", queue="p").running("c", 0, queue="q")
    view, ranks = strings.controller.view, Ranks()
    parts = queue_views_of(view)
    assert [ranks.ranked_jobs(parts[name]) for name in ("p", "q")] == [["b"], ["a", "c"]]
    view.invalidate_ranks()
    assert queue_views_of(view) is parts
    assert parts["q"].waiting_count == 1
    assert [ranks.ranked_jobs(parts[name]) for name in ("p", "q")] == [["b"], ["a", "c"]]


def test_without_allocated_jobs_the_cluster_is_idle() -> None:
    strings = Strings().submit("a").submit("b")
    view = strings.controller.view
    assert view.is_idle()
    strings.plan(a.Start("a", strings.on(0)))
    assert not view.is_idle(), "it is about to start"
    strings.started("a")
    strings.tell(e.RunSucceeded(strings.run("a")))
    assert view.is_idle()
