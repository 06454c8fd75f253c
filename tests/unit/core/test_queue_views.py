"""A part of the view shows one queue's jobs, keeps its own line, and forgets like the whole."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.core.queue_views import QueueView, queue_views_of
from trainmaster.core.view import View, by_demand
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.units import WHOLE


def two_queues() -> Strings:
    strings = Strings("2x4")
    strings.submit("a1", 2, queue="a").submit("b1", 1, queue="b").submit("a2", 4, queue="a")
    return strings


def ranked_jobs(part: View) -> list[str]:
    """Its waiting jobs, in order of submission."""
    order = part.ranked(lambda record: Rank(0, record.seq), 0, group=by_demand, with_running=True)
    return [record.id for _, _, record in order.candidates(0)]


def counts(part: QueueView) -> tuple[int, int, int]:
    return part.allocated // WHOLE, part.wanted // WHOLE, part.waiting_count


def test_each_queue_sees_its_own_jobs() -> None:
    parts = queue_views_of(two_queues().controller.view)
    assert {queue: list(part.jobs) for queue, part in parts.items()} == {
        "a": ["a1", "a2"],
        "b": ["b1"],
    }
    assert ranked_jobs(parts["a"]) == ["a1", "a2"]
    assert ranked_jobs(parts["b"]) == ["b1"]


def test_what_a_queue_holds_and_wants_is_counted_as_it_changes() -> None:
    strings = two_queues()
    view = strings.controller.view
    assert counts(queue_views_of(view)["a"]) == (0, 6, 2)
    strings.start("a1", 0, 1)
    assert counts(queue_views_of(view)["a"]) == (2, 6, 1)
    strings.tell(e.RunSucceeded(strings.run("a1")))
    assert counts(queue_views_of(view)["a"]) == (0, 4, 1)


def test_a_queue_without_jobs_is_gone() -> None:
    strings = two_queues().start("b1", 0)
    strings.tell(e.RunSucceeded(strings.run("b1")))
    assert list(queue_views_of(strings.controller.view)) == ["a"]


def test_dropped_parts_come_back_the_same() -> None:
    strings = two_queues().start("a1", 0, 1)
    view = strings.controller.view
    before = {
        queue: (counts(part), ranked_jobs(part)) for queue, part in queue_views_of(view).items()
    }
    view.forget()
    after = {
        queue: (counts(part), ranked_jobs(part)) for queue, part in queue_views_of(view).items()
    }
    assert after == before


def test_a_plan_for_a_part_is_taken_over_and_undone_exactly() -> None:
    strings = two_queues().start("a1", 0, 1)
    view = strings.controller.view
    draft = Draft(view)
    planned = Plan(
        (a.Suspend("a1"), a.Start("a2", strings.on(0, 1, 2, 3)), a.Start("b1", strings.on(4)))
    )
    draft.apply(planned)
    assert strings.state.occupancy.total_free() == 3
    plan = draft.plan()
    assert plan.actions == planned.actions
    assert strings.state.occupancy.total_free() == 6


def test_an_ended_job_is_reported_once() -> None:
    strings = two_queues().start("b1", 0)
    told: list[list[str]] = []
    script = strings.script
    plan = script.plan

    def noting(view: View, memo: object, now: int) -> Plan:
        told.append([record.id for record in view.ended])
        return plan(view, memo, now)

    script.plan = noting  # type: ignore[method-assign]
    strings.tell(e.RunSucceeded(strings.run("b1")))
    strings.plan()
    assert told == [["b1"], []]
