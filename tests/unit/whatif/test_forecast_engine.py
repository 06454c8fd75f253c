"""The engine that continues live runs in virtual time."""

from __future__ import annotations

from tests.builders import a_job, a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Estimate, Source
from trainmaster.model.units import MINUTE, NOMINAL
from trainmaster.whatif.forecast import ExpectedWork
from trainmaster.whatif.forecast_engine import ForecastEngine

MOST_STEPS = 1000
NAMES = ("one", "two", "three")
WORK_MS = 630_000


def test_a_run_that_was_suspended_in_memory_ends_later_by_as_long() -> None:
    """Two jobs of 10.5 min take turns on one GPU: both are done after 21 min. One of them is on the GPU again
    when it would have ended without the other."""
    controller = Controller(cluster("1x1"), a_policy("las", quantum_s=60), can_freeze=True)
    estimate = Estimate(WORK_MS * NOMINAL, Source.RUNS)
    facts: list[e.Event] = [e.JobSubmitted(a_job(name, 1), estimate) for name in NAMES]
    engine = ForecastEngine(controller.state, ExpectedWork(controller))
    now, frozen, ends = 0, 0, list[int]()
    for _ in range(MOST_STEPS):
        ends += [now for each in facts if isinstance(each, e.RunSucceeded)]
        decision = controller.step(now, facts)
        for fact in facts:
            if isinstance(fact, e.RunStarted | e.RunResumed):
                engine.ends(controller.state.jobs[fact.run.job], now)
        frozen += sum(isinstance(order, a.Freeze) for order in decision.orders)
        for order in decision.orders:
            engine.execute(order, now)
        times = [time for time in (engine.next_time(), decision.wake_at) if time is not None]
        if not times:
            break
        now = max(now, min(times))
        facts = engine.facts_at(now)
    assert frozen > 2
    assert len(ends) == len(NAMES)
    assert abs(max(ends) - len(NAMES) * WORK_MS) < MINUTE / 10
