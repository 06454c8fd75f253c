"""Nodes that leave, fail and are repaired in a simulation."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import a_policy, a_scenario, at, one, outcome_of, traced
from trainmaster.model import events as e
from trainmaster.model.result import Status
from trainmaster.model.units import HOUR, SECOND
from trainmaster.perf.perf_model import IDEAL, FailureModel


def test_a_run_ends_although_somebody_waits_for_a_node_that_left_for_good() -> None:
    jobs = [traced("a", 1, 5), traced("b", 4, 100, at_s=20)]
    scenario = a_scenario(jobs, "2x2", node_changes=(at(10, e.NodeLeft(1)),))
    for policy in ("fifo", "las", "srtf", "tiresias-l"):
        result = outcome_of(scenario, a_policy(policy))
        assert one(result, "b").status is Status.UNFINISHED, policy


def test_a_node_that_left_by_plan_is_not_brought_back_by_a_repair() -> None:
    breaking = replace(IDEAL, node_failures=FailureModel(mtbf_ms=HOUR, repair_ms=36 * SECOND))
    changes = (at(0, e.NodeLeft(1)),)
    scenario = a_scenario([traced("b", 4, 10)], "2x2", breaking, node_changes=changes)
    assert one(outcome_of(scenario, a_policy("fifo")), "b").status is Status.UNFINISHED
