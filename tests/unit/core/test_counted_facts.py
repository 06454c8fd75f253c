"""What the controller counts for policies: job time, the cost of switching, jobs to rank again."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.queue_views import queue_views_of
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


def test_starting_takes_from_the_order_until_the_run_trains() -> None:
    strings = Strings().submit("a").submit("b")
    strings.plan(a.Start("a", strings.on(0)))
    strings.later(30).started("a")
    assert switch_s(strings) == 30
    strings.plan(a.Start("b", strings.on(1)))
    strings.later(10).started("b")
    assert switch_s(strings) == 20, "the mean of both"


def test_a_change_of_hands_is_letting_go_and_starting() -> None:
    strings = Strings().submit("a")
    strings.plan(a.Start("a", strings.on(0)))
    strings.later(30).started("a")
    strings.later(100).plan(a.Suspend("a"))
    strings.later(12).tell(e.RunSuspended(strings.run("a"), 100 * SECOND))
    assert switch_s(strings) == 30 + 12


def test_waiting_for_a_release_is_not_counted_as_launching() -> None:
    """The launch is ordered when the GPU is free: what comes before is counted at who leaves."""
    strings = Strings().running("old", 0).submit("new").later(60)
    strings.plan(a.Suspend("old"), a.Start("new", strings.on(0)))
    strings.later(20).tell(e.RunSuspended(strings.run("old"), 60 * SECOND))
    strings.later(8).started("new")
    assert switch_s(strings) == 20 + (0 + 8) / 2


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
