"""What holds for every policy on every cluster and workload, whatever breaks."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS, OPPORTUNISTIC, calm_scenarios, scenarios
from trainmaster.catalog import POLICIES
from trainmaster.model.job import Job
from trainmaster.sim.driver import Scenario
from trainmaster.sim.metrics import result_of
from trainmaster.sim.result_json import to_json

some = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
every_contender = pytest.mark.parametrize("contender", CONTENDERS)


def driven(scenario: Scenario, contender: str, **how: object) -> Drive:
    name, options = CONTENDERS[contender]
    return Drive(scenario, a_policy(name, **options), **how).run()  # type: ignore[arg-type]


def test_every_policy_of_the_catalog_is_among_the_contenders() -> None:
    assert {name for name, _ in CONTENDERS.values()} == set(POLICIES)


@every_contender
@some
@given(scenario=scenarios())
def test_nothing_is_overbooked_lost_or_left_over(contender: str, scenario: Scenario) -> None:
    drive = driven(scenario, contender)
    drive.everything_ended()
    if scenario.failure_rules is None:  # a job that fails in its pre-run has not done its work
        drive.work_is_conserved()


@every_contender
@settings(some, max_examples=8)
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_dropping_every_cache_changes_no_order(
    contender: str, scenario: Scenario, seed: int
) -> None:
    remembering = driven(scenario, contender, checked=False)
    forgetting = driven(scenario, contender, checked=False, forgetful=Random(seed))
    assert forgetting.orders() == remembering.orders()


@every_contender
@settings(some, max_examples=8)
@given(scenario=scenarios())
def test_the_same_seed_gives_the_same_bytes(contender: str, scenario: Scenario) -> None:
    first, second = (driven(scenario, contender, checked=False) for _ in range(2))
    assert written(first) == written(second)


def written(drive: Drive) -> str:
    return to_json([result_of(drive.simulation)], {})


@every_contender
@settings(some, max_examples=8)
@given(scenario=calm_scenarios())
def test_under_ideal_a_job_trains_exactly_as_long_as_it_needs(
    contender: str, scenario: Scenario
) -> None:
    drive = driven(scenario, contender)
    for account in drive.simulation.ledger.accounts.values():
        job, service = account.traced.job, account.traced.service_ms
        assert account.trained_ms == service, job.id
        if contender not in OPPORTUNISTIC:
            assert account.held == service * job.demand.nominal.total_share
        assert account.charged == account.lost == 0


@every_contender
@settings(some, max_examples=8)
@given(scenario=calm_scenarios())
def test_equal_jobs_start_in_order_of_submission_then_row(
    contender: str, scenario: Scenario
) -> None:
    drive = driven(scenario, contender)
    earlier: dict[tuple[object, ...], int] = {}
    for account in drive.simulation.ledger.accounts.values():
        job = account.traced.job
        queue = job.queue if hasattr(drive.policy.options, "queues") else ""
        born = job.submit_ms if drive.policy.name in JUDGED_BY_THEIR_LIVES else None
        twins = (_likeness(job), queue, account.traced.service_ms, born)
        assert account.start_ms is not None
        assert account.start_ms >= earlier.get(twins, 0), f"{job.id} overtook its twin"
        earlier[twins] = account.start_ms


JUDGED_BY_THEIR_LIVES = ("themis", "qssf")
"""Only twins of one birth are alike: others had other company, and so another rho, or were predicted from
another history."""


def _likeness(job: Job) -> tuple[object, ...]:
    """What a policy could tell two jobs apart by, but for their place in the file."""
    return (job.demand, job.model, job.priority)
