"""Running policies one after another: timed, with a progress bar, and interruptible."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.cli.support.errors import is_debugging
from trainmaster.cli.support.progress_bar import ProgressBar
from trainmaster.model.reasons import Refused
from trainmaster.model.result import Result
from trainmaster.model.units import SECOND
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.text.formatting import clock, plural
from trainmaster.text.reasons import reason_sentence

PATIENCE_S = 1.0
"""Shorter runs show no progress bar."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one policy's run found, how long it took, and whether it was cut short by Ctrl-C."""

    result: Result
    wall_s: float
    interrupted: bool
    raised: bool
    """Whether the policy itself raised an error: its figures mean little."""


def run_all(scenario: Scenario, policies: Sequence[Any]) -> list[Ran]:
    """Every policy over the same scenario; an interruption ends the series."""
    found: list[Ran] = []
    for policy in policies:
        found.append(_run(scenario, policy))
        if found[-1].interrupted:
            break
    return found


def _run(scenario: Scenario, policy: Any) -> Ran:
    simulation = Simulation(scenario, policy)
    interrupted = False
    began = time.perf_counter()
    with ProgressBar(policy.name, after_s=PATIENCE_S) as bar:
        try:
            simulation.run(
                lambda ended, jobs, now: bar.update(ended, jobs, f"simulated {clock(now / SECOND)}")
            )
        except KeyboardInterrupt:
            interrupted = True
    wall_s = time.perf_counter() - began
    is_cut = interrupted or scenario.until_ms is not None
    remarks = tuple(_remarks(simulation, is_cut=is_cut))
    error = simulation.controller.policy_error
    if error is not None and is_debugging():
        traceback.print_exception(error)
    raised = any(each.why is Refused.POLICY_RAISED for each in simulation.refusals)
    return Ran(replace(result_of(simulation), warnings=remarks), wall_s, interrupted, raised)


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
