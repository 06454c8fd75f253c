"""Time on a job's GPUs without progress: undetected failures, gangs restarted, profiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, at, costly, finishes, outcome_of, traced
from trainmaster.core.policy import Policy
from trainmaster.model import events as e
from trainmaster.model.job import Demand, gpus
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import NOMINAL, SECOND, WHOLE
from trainmaster.perf.perf_model import DEFAULT, IDEAL, FailureModel, PerfModel
from trainmaster.sim.driver import Estimates, Simulation
from trainmaster.sim.node_failures import NodeSchedule

BREAKAGE = FailureModel(
    mtbf_ms=1, repair_ms=100 * SECOND, checkpoint_ms=4 * SECOND, detection_ms=5 * SECOND
)
NEVER = 1 << 50


class Fated(NodeSchedule):
    """Nodes that fail after these seconds, one after the other, and never again."""

    def __init__(self, node_failures: FailureModel, lives_s: Sequence[float | None]) -> None:
        self._lives = iter([NEVER if life is None else round(life * SECOND) for life in lives_s])
        super().__init__(node_failures, (), len(lives_s), 0, 0)

    def _lifetime(self) -> int:
        return next(self._lives, NEVER)


def fated(
    jobs: Sequence[TracedJob],
    cluster: str,
    *lives_s: float | None,
    policy: Policy | None = None,
    world: PerfModel = IDEAL,
    node_failures: FailureModel = BREAKAGE,
) -> Simulation:
    """A run on nodes that live so long each."""
    world = replace(world, node_failures=node_failures)
    simulation = Simulation(a_scenario(jobs, cluster, world), policy or a_policy("fifo"))
    simulation.nodes = Fated(node_failures, lives_s)
    simulation.run()
    assert not simulation.refusals
    return simulation


def ends(simulation: Simulation) -> dict[str, float]:
    accounts = simulation.ledger.accounts
    return {name: (each.finish_ms or 0) / SECOND for name, each in accounts.items()}


# -- detection ---------------------------------------------------------------------------------------


def test_a_failure_is_known_only_later_and_the_gpus_are_held_meanwhile() -> None:
    """It fails at 10 with 8 s saved, is noticed at 15, and starts on the other node."""
    run = fated([traced("a", 1, 30)], "2x1", 10, None)
    a = run.ledger.accounts["a"]
    assert a.finish_ms == (15 + 30 - 8) * SECOND
    assert a.lost == 2 * SECOND * NOMINAL
    assert (a.trained, a.charged) == (32 * SECOND * WHOLE, 5 * SECOND * WHOLE)
    assert a.held == a.trained + a.charged


def test_without_detection_time_it_is_known_at_once() -> None:
    at_once = replace(BREAKAGE, detection_ms=0)
    assert ends(fated([traced("a", 1, 30)], "2x1", 10, None, node_failures=at_once)) == {
        "a": 10 + 22
    }


def test_repair_begins_when_the_failure_is_noticed() -> None:
    assert ends(fated([traced("a", 1, 30)], "1x1", 10)) == {"a": 10 + 5 + 100 + 22}


def test_a_gang_loses_all_its_gpus_with_one_of_its_nodes_and_pays_its_restart_on_all() -> None:
    run = fated([traced("g", 4, 30)], "4x2", 10, None, None, None, world=costly(resume_ms=3_000))
    g = run.ledger.accounts["g"]
    assert g.finish_ms == (10 + 5 + 3 + 22) * SECOND
    assert g.charged == 4 * WHOLE * (5 + 3) * SECOND, "unnoticed and restarting, on four GPUs"


def test_who_is_sent_to_a_dead_node_waits_there_until_that_is_known() -> None:
    run = fated([traced("a", 1, 30, at_s=12)], "2x1", 10, None)
    a = run.ledger.accounts["a"]
    assert (a.finish_ms, a.lost, a.charged) == ((15 + 30) * SECOND, 0, 3 * SECOND * WHOLE)


def test_a_run_on_a_dead_node_does_not_obey_and_its_claimant_goes_elsewhere() -> None:
    """`short` comes at 12 and should take the place of `long`, which died at 10."""
    jobs = [traced("long", 1, 100), traced("busy", 1, 90), traced("short", 1, 5, at_s=12)]
    run = fated(jobs, "2x1", None, 10, policy=a_policy("srtf"))
    assert ends(run)["short"] == 15 + 5, "in the place of `busy`, once the truth is known"
    assert run.ledger.accounts["long"].lost == 2 * SECOND * NOMINAL
    assert run.ledger.accounts["busy"].lost == 0


def test_a_second_failure_before_the_first_is_noticed() -> None:
    run = fated([traced("g", 2, 30)], "3x1", 10, 12, None)
    g = run.ledger.accounts["g"]
    # Lost at 15 with its first node; two nodes are needed again: the first is back at 115.
    assert g.finish_ms == (115 + 22) * SECOND
    assert g.lost == 2 * SECOND * NOMINAL, "nothing is lost twice"


def test_a_frozen_run_is_lost_with_its_node_and_cannot_be_thawed() -> None:
    """`long` was frozen at 10 for `short`; the node dies at 13, so that both are gone."""
    jobs = [traced("long", 2, 100), traced("short", 2, 10, at_s=10)]
    world = costly(can_freeze=True)
    run = fated(jobs, "1x3", 13, policy=a_policy("srtf"), world=world)
    accounts = run.ledger.accounts
    assert ends(run) == {"short": 118 + 10, "long": 118 + 10 + 92}
    assert accounts["long"].lost == 2 * SECOND * NOMINAL
    assert accounts["short"].lost == 3 * SECOND * NOMINAL


def test_a_run_that_grows_onto_a_dead_node_stands_still() -> None:
    jobs = [traced("soft", gpus(1, minimum=1, maximum=2), 40), traced("side", 1, 11)]
    policy = a_policy("fifo", elastic="malleable")
    run = fated(jobs, "2x1", None, 10, policy=policy)
    soft = run.ledger.accounts["soft"]
    assert soft.credited == soft.needed + soft.lost
    assert soft.held == soft.trained + soft.charged
    assert soft.status is Outcome.SUCCEEDED


def test_planned_departures_are_known_at_once() -> None:
    world = replace(IDEAL, node_failures=replace(BREAKAGE, mtbf_ms=None))
    scenario = a_scenario([traced("a", 1, 30)], "2x1", world, node_changes=(at(10, e.NodeLeft(0)),))
    assert finishes(outcome_of(scenario, a_policy("fifo"))) == {"a": 10 + 22}


def test_the_default_world_notices_after_fourteen_seconds_and_the_ideal_one_at_once() -> None:
    assert DEFAULT.node_failures.detection_ms == 14 * SECOND
    assert IDEAL.node_failures.detection_ms == 0


# -- profiling ---------------------------------------------------------------------------------------

SOFT = gpus(2, minimum=1, maximum=2)
EXACT, UNKNOWN = Estimates(), Estimates(known=False)
PROFILED = replace(IDEAL, profiling_ms=7 * SECOND)


def start_of(name: str, size: int | Demand, estimates: Estimates = EXACT) -> float:
    """When it began to train."""
    jobs = [traced("a", size, 30)]
    scenario = replace(a_scenario(jobs, "1x2", PROFILED), estimates=estimates)
    simulation = Simulation(scenario, a_policy(name))
    simulation.run()
    account = simulation.ledger.accounts["a"]
    assert account.held == account.trained + account.charged
    assert account.start_ms is not None
    return account.start_ms / SECOND


@pytest.mark.parametrize("name", ["optimus", "max-min", "afs-l", "goodput", "themis"])
def test_who_decides_by_measured_speeds_pays_for_measuring_them(name: str) -> None:
    assert start_of(name, SOFT) == 7


def test_others_do_not_pay() -> None:
    assert start_of("las", SOFT) == 0
    assert start_of("themis", 2) == 0, "a rigid job has nothing to be measured"
    assert start_of("max-min", SOFT, UNKNOWN) == 0, "a policy that is told nothing pays nothing"


def test_a_job_is_measured_once_however_often_it_is_launched() -> None:
    jobs = [traced("a", SOFT, 30, failed_s=[5])]
    world = replace(PROFILED, has_failures=True)
    result = outcome_of(a_scenario(jobs, "1x2", world), a_policy("max-min"))
    assert finishes(result) == {"a": 7 + 5 + 30}


def test_measuring_that_was_cut_short_begins_anew() -> None:
    """The node fails at 5, while the job is being measured; 7 s are measured on the other one."""
    node_failures = replace(BREAKAGE, detection_ms=0)
    jobs = [traced("a", SOFT, 30)]
    run = fated(
        jobs,
        "2x2",
        5,
        None,
        policy=a_policy("max-min"),
        world=PROFILED,
        node_failures=node_failures,
    )
    assert ends(run) == {"a": 5 + 7 + 30}
