"""Two jobs of half a GPU share it at once under every policy."""

from __future__ import annotations

import pytest

from tests.builders import a_job, a_policy, fraction
from trainmaster.catalog import POLICIES
from trainmaster.core.controller import Controller
from trainmaster.gpu.devices import machine_of
from trainmaster.gpu.driver import Gpu
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Oracle, Run
from trainmaster.model.units import GIB, NOMINAL, SECOND

H200 = machine_of(
    [Gpu(0, "NVIDIA H200", "GPU-0", 140 * GIB, frozenset({0}))], "node", 16_000, 128 * GIB
).topology


def starts_beside(policy: str, first: Demand, other: Demand) -> bool:
    """Whether b, which comes three seconds after a, starts at once."""
    controller = Controller(H200, a_policy(policy), cannot_save_at_first=True)
    oracle = Oracle(100 * SECOND * NOMINAL)
    controller.step(0, [e.JobSubmitted(a_job("a", first), oracle=oracle)])
    controller.step(1, [e.RunStarted(Run("a", 1), NOMINAL)])
    controller.step(3 * SECOND, [e.JobSubmitted(a_job("b", other, at_s=3), oracle=oracle)])
    assert controller.state.jobs["a"].placement is not None
    return controller.state.jobs["b"].placement is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_two_halves_share_a_gpu_at_once(policy: str) -> None:
    assert starts_beside(policy, fraction(0.5), fraction(0.5))
