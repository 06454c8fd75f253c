"""Preemption in rank order."""

from __future__ import annotations

from tests.builders import a_job, a_policy, a_scenario, at, cluster, traced
from tests.property.drive import Drive
from trainmaster.core.controller import Controller
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import gpus
from trainmaster.model.units import NOMINAL, SECOND


def test_a_job_moved_off_a_draining_node_is_not_also_evicted_from_where_it_goes() -> None:
    """At 10 n0 drains, `long` moves from n0 and n1 to n1 and n2, and the shorter `new` wants n1."""
    jobs = [traced("long", 2, 100), traced("new", 1, 5, at_s=10)]
    scenario = a_scenario(jobs, "n0[1] n1[1] n2[1]", node_changes=(at(10, e.NodeDraining(0)),))
    drive = Drive(scenario, a_policy("srtf")).run()
    drive.everything_ended()
    drive.work_is_conserved()


def test_a_stopped_program_goes_on_only_where_it_is_and_moves_nobody_else() -> None:
    """`old` is stopped on n1 for `new`, and goes on there when that has run as long: `far` ran longest."""
    controller = Controller(
        cluster("2x1"), a_policy("las", quantum_s=10), can_freeze=True, cannot_save_at_first=True
    )
    told: list[tuple[str, str]] = []
    facts: list[e.Event] = [e.JobSubmitted(a_job(name, gpus(1))) for name in ("far", "old")]
    now = 0
    while now < 400 * SECOND:
        if now == 100 * SECOND:
            facts.append(e.JobSubmitted(a_job("new", gpus(1), at_s=100)))
        decision = controller.step(now, facts)
        facts = [answer(order) for order in decision.orders]
        told += [(type(order).__name__, order.run.job) for order in decision.orders]
        if ("Thaw", "old") in told:
            break
        if not facts:
            now += SECOND
    assert told == [
        *(("Launch", "far"), ("Launch", "old")),
        *(("Freeze", "old"), ("Launch", "new")),
        *(("Freeze", "new"), ("Thaw", "old")),
    ]


def answer(order: a.Order) -> e.Event:
    """What an engine reports at once."""
    match order:
        case a.Launch():
            return e.RunStarted(order.run, NOMINAL)
        case a.Freeze():
            return e.RunSuspended(order.run, 0, frozen=True)
        case a.Thaw():
            return e.RunResumed(order.run, NOMINAL)
    raise AssertionError(order)
