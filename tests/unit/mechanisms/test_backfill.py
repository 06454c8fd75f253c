"""Backfill and its reservations."""

from __future__ import annotations

from tests.builders import a_policy, a_scenario, finishes, outcome_of, traced
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.driver import Estimates, Scenario


def test_a_reservation_ends_when_a_more_urgent_job_becomes_the_head() -> None:
    """Without estimates the reservation of `low` has no end: it must not lock `high` out forever."""
    jobs = [
        traced("busy", 1, 10),
        traced("low", 2, 5, at_s=1),
        traced("high", 2, 5, at_s=2, priority=1),
    ]
    plain = a_scenario(jobs, "1x2")
    scenario = Scenario(plain.trace, plain.topology, "1x2", IDEAL, Estimates(known=False))
    result = outcome_of(scenario, a_policy("fifo", backfill="easy"))
    assert finishes(result) == {"busy": 10, "high": 15, "low": 20}
