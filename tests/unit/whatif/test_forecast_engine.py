"""The engine that continues live runs in virtual time."""

from __future__ import annotations

from tests.builders import a_job, a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Estimate, Source
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.whatif.forecast import ExpectedWork
from trainmaster.whatif.forecast_engine import ForecastEngine

MOST_STEPS = 100


def test_a_run_that_was_suspended_in_memory_ends_later_by_as_long() -> None:
    """A job of 600 s makes room for one of 20 s, and ends after 620 s."""
    controller = Controller(cluster("1x1"), a_policy("las", quantum_s=60), can_freeze=True)
    arrivals: dict[int, e.Event] = {
        at_s * SECOND: e.JobSubmitted(
            a_job(name, 1, at_s=at_s), Estimate(work_s * SECOND * NOMINAL, Source.RUNS)
        )
        for name, at_s, work_s in (("long", 0, 600), ("short", 300, 20))
    }
    engine = ForecastEngine(controller.state, ExpectedWork(controller))
    now, ended, orders = 0, dict[str, int](), list[a.Order]()
    for _ in range(MOST_STEPS):
        facts = engine.facts_at(now)
        if now in arrivals:
            facts.append(arrivals.pop(now))
        ended |= {each.run.job: now for each in facts if isinstance(each, e.RunSucceeded)}
        decision = controller.step(now, facts)
        for fact in facts:
            if isinstance(fact, e.RunStarted | e.RunResumed):
                engine.ends(controller.state.jobs[fact.run.job], now)
        for order in decision.orders:
            engine.execute(order, now)
        orders += decision.orders
        times = [
            each for each in (engine.next_time(), decision.wake_at, *arrivals) if each is not None
        ]
        if not times:
            break
        now = max(now, min(times))
    assert [type(each) for each in orders] == [a.Launch, a.Freeze, a.Launch, a.Thaw]
    assert list(ended) == ["short", "long"]
    assert 620 * SECOND <= ended["long"] < 621 * SECOND
