"""Running one policy over a scenario: timed, and interruptible."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.model.reasons import Refused
from trainmaster.model.result import Result
from trainmaster.model.units import SECOND
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.text.formatting import clock, plural
from trainmaster.text.reasons import reason_sentence

Progress = Callable[[int, int, str], object]
"""Takes how many jobs have ended, of how many, and when that is in the trace."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one policy's run found, how long it took, and whether it was cut short by Ctrl-C."""

    result: Result
    wall_s: float
    interrupted: bool
    error: Exception | None
    """The last error that the policy itself raised: then its figures mean little."""
    raised: bool


def run_policy(scenario: Scenario, policy: Any, progress: Progress) -> Ran:
    """A policy over the scenario, up to its end or Ctrl-C."""
    simulation = Simulation(scenario, policy)
    interrupted = False

    def on_progress(ended: int, jobs: int, now: int) -> None:
        progress(ended, jobs, f"simulated {clock(now / SECOND)}")

    began = time.perf_counter()
    try:
        simulation.run(on_progress)
    except KeyboardInterrupt:
        interrupted = True
    wall_s = time.perf_counter() - began
    is_cut = interrupted or scenario.until_ms is not None
    remarks = tuple(_remarks(simulation, is_cut=is_cut))
    raised = any(each.why is Refused.POLICY_RAISED for each in simulation.refusals)
    result = replace(result_of(simulation), warnings=remarks)
    return Ran(result, wall_s, interrupted, simulation.controller.policy_error, raised)


def _remarks(simulation: Simulation, *, is_cut: bool) -> list[str]:
    """What the user of this policy should know."""
    name, found = simulation.policy.name, []
    raised = [each for each in simulation.refusals if each.why is Refused.POLICY_RAISED]
    refused = [each for each in simulation.refusals if each.why is not Refused.POLICY_RAISED]
    if raised:
        times = plural(len(raised), "time")
        found.append(f"{name} raised an error {times}, the first was {raised[0].detail}")
    if refused:
        first = refused[0]
        found.append(
            f"{name} had {plural(len(refused), 'action')} refused, the first for job {first.job}:"
            f" {first.why.value}{f' ({first.detail})' if first.detail else ''}"
        )
    if simulation.is_thrashing:
        found.append(
            f"{name} suspends runs before they have saved anything, so that no job ends:"
            " raise min_run_s or quantum_s, or lower checkpoint_every_s"
        )
        return found
    stuck = [] if is_cut or raised else simulation.stuck()
    if stuck:
        found.append(
            f"{name} never starts {plural(len(stuck), 'job')}, such as {stuck[0]}:"
            f" {_why_it_waits(simulation, stuck[0])}"
        )
    return found


def _why_it_waits(simulation: Simulation, job: str) -> str:
    """The policy's own reason; a policy from a file may have none, or raise."""
    try:
        said = reason_sentence(simulation.controller.explain(job), simulation.now)
    except Exception as error:
        return f"the policy cannot say why ({type(error).__name__}: {error})"
    return f"{said[0].lower()}{said[1:-1]}"
