"""Jobs that their owners hold and release at any moment, under every policy."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive
from tests.property.meddling import Meddler
from tests.property.test_invariants import some
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.sim.driver import Scenario

every_contender = pytest.mark.parametrize("contender", CONTENDERS)


def driven(scenario: Scenario, contender: str, seed: int, **how: object) -> Drive:
    name, options = CONTENDERS[contender]
    policy = a_policy(name, **options)
    return Drive(scenario, policy, meddler=Meddler(seed), **how).run()  # type: ignore[arg-type]


@every_contender
@settings(some, max_examples=5)
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_a_held_job_is_left_alone_and_ends_after_all(
    contender: str, scenario: Scenario, seed: int
) -> None:
    drive = driven(scenario, contender, seed)
    drive.everything_ended()
    drive.work_is_conserved()


@every_contender
@settings(some, max_examples=4)
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_dropping_every_cache_changes_no_order(
    contender: str, scenario: Scenario, seed: int
) -> None:
    remembering = driven(scenario, contender, seed, checked=False)
    forgetting = driven(scenario, contender, seed, checked=False, forgetful=Random(seed))
    assert forgetting.orders() == remembering.orders()
