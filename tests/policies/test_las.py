"""Least attained service: when the policy asks to be called again."""

from __future__ import annotations

import pytest

from tests.builders import a_job, a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.model import events as e
from trainmaster.model.actions import Launch
from trainmaster.model.job import Run
from trainmaster.model.units import NOMINAL, SECOND


@pytest.mark.parametrize(
    "at_ms",
    [
        pytest.param(None, id="known at once"),
        pytest.param(100, id="known in the same millisecond"),
        pytest.param(40, id="learned late: the run has received service before it is known"),
    ],
)
def test_it_is_called_at_the_end_of_the_quantum_in_which_runs_overtake_a_waiting_job(
    at_ms: int | None,
) -> None:
    controller = Controller(cluster("1x2"), a_policy("las", quantum_s=1), can_freeze=True)
    decision = controller.step(0, [e.JobSubmitted(a_job(name)) for name in "abc"])
    assert [type(order) for order in decision.orders] == [Launch, Launch]
    started = [e.RunStarted(Run(name, 1), NOMINAL, at_ms=at_ms) for name in "ab"]
    assert controller.step(100, started).wake_at == SECOND
