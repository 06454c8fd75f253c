"""Running policies one after another: timed, with a progress bar, and interruptible."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from trainmaster.model.reasons import Refused
from trainmaster.model.result import Result
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.text.formatting import clock, plural
from trainmaster.text.reasons import reason_sentence

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0
"""Shorter runs show no progress bar."""
REFRESH_S = 0.1


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
    with Meter(policy.name, len(simulation.accepted), began) as meter:
        try:
            simulation.run(meter)
        except KeyboardInterrupt:
            interrupted = True
    wall_s = time.perf_counter() - began
    is_cut = interrupted or scenario.until_ms is not None
    remarks = tuple(_remarks(simulation, is_cut=is_cut))
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
    stuck = [] if is_cut else simulation.stuck()
    if stuck:
        found.append(
            f"{name} lets {plural(len(stuck), 'job')} wait for ever, such as {stuck[0]}:"
            f" {_why_it_waits(simulation, stuck[0])}"
        )
    return found


def _why_it_waits(simulation: Simulation, job: str) -> str:
    """The policy's own reason; one of somebody else's may have none, or raise."""
    try:
        said = reason_sentence(simulation.controller.explain(job), simulation.now)
    except Exception as error:
        return f"the policy cannot say why ({type(error).__name__}: {error})"
    return f"{said[0].lower()}{said[1:-1]}"


class Meter:
    """A progress bar on standard error that appears only when a run is long and somebody watches."""

    def __init__(self, policy: str, jobs: int, began: float) -> None:
        self._policy = policy
        self._jobs = jobs
        self._next = began + PATIENCE_S
        self._is_watched = sys.stderr.isatty()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, ended: int, jobs: int, now: int) -> None:
        if not self._is_watched or time.perf_counter() < self._next:
            return
        if self._bar is None:
            self._bar = self._appear()
            self._task = self._bar.add_task(self._policy, total=self._jobs, simulated="")
        assert self._task is not None
        self._bar.update(self._task, completed=ended, simulated=clock(now / 1_000))
        self._bar.refresh()
        self._next = time.perf_counter() + REFRESH_S

    def _appear(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("jobs, simulated {task.fields[simulated]}"),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        bar.start()
        return bar

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
