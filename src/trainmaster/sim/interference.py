"""Interference between runs: which share GPUs or links, and how fast each is because of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL
from trainmaster.perf.perf_model import Speeds

if TYPE_CHECKING:
    from trainmaster.sim.sim_run import SimRun

RunsByResource = dict[int, dict[str, "SimRun"]]
"""By GPU or wire: the runs that train there, by job."""


NOBODY: Sequence[SimRun] = ()


class InterferenceTracker:
    """Tracks runs that slow each other down: only those are updated when one starts or stops."""

    def __init__(self, speeds: Speeds) -> None:
        self._speeds = speeds
        self._has_wires = bool(speeds.perf.neighbours)
        self._on_gpu: RunsByResource = {}
        self._on_wire: RunsByResource = {}

    def join(self, run: SimRun) -> Sequence[SimRun]:
        """Start training; the runs that this may slow down."""
        run.alone_ppm = self._speeds.alone(run.account.traced.job, run.placement)
        run.wires = self._speeds.wires(run.placement) if self._has_wires else ()
        is_shared = run.placement.sharing is not Sharing.EXCLUSIVE
        if not run.wires and not is_shared:
            return NOBODY
        felt: dict[str, SimRun] = {}
        self._use_links(run, felt)
        if is_shared:
            for gpu in run.placement.gpus():
                there = self._on_gpu.setdefault(gpu, {})
                felt.update(there)
                there[run.run.job] = run
        return tuple(felt.values())

    def _use_links(self, run: SimRun, felt: dict[str, SimRun]) -> None:
        """Use its links; runs on links that are more crowded now are affected."""
        run.gangs = 1
        for wire in run.wires:
            there = self._on_wire.setdefault(wire, {})
            gangs = len(there) + 1
            for job, other in there.items():
                if other.gangs < gangs:
                    other.gangs = gangs
                    felt[job] = other
            there[run.run.job] = run
            run.gangs = max(run.gangs, gangs)

    def leave(self, run: SimRun) -> Sequence[SimRun]:
        """Stop training; the runs that this may speed up."""
        is_shared = run.placement.sharing is not Sharing.EXCLUSIVE
        if not run.wires and not is_shared:
            return NOBODY
        felt: dict[str, SimRun] = {}
        self._release_links(run, felt)
        if is_shared:
            for gpu in run.placement.gpus():
                felt.update(_without(self._on_gpu, gpu, run))
        return tuple(felt.values())

    def _release_links(self, run: SimRun, felt: dict[str, SimRun]) -> None:
        """Release its links; runs as crowded as its fullest link may be less so."""
        crowded: dict[str, SimRun] = {}
        for wire in run.wires:
            there = _without(self._on_wire, wire, run)
            gangs = len(there) + 1
            crowded.update({job: other for job, other in there.items() if other.gangs == gangs})
        for job, other in crowded.items():
            gangs = max(len(self._on_wire[wire]) for wire in other.wires)
            if gangs != other.gangs:
                other.gangs = gangs
                felt[job] = other

    def speed(self, run: SimRun) -> int:
        """How fast a run trains beside its present neighbours."""
        speeds, placement, job = self._speeds, run.placement, run.account.traced.job
        speed = run.alone_ppm
        if placement.sharing is not Sharing.EXCLUSIVE:
            near: dict[str, SimRun] = {}
            for gpu in placement.gpus():
                near.update(self._on_gpu[gpu])
            del near[run.run.job]
            others = [(each.account.traced.job, each.placement) for each in near.values()]
            speed = speed * speeds.slowdown(job, placement, others) // NOMINAL
        if run.wires and run.gangs > 1:
            speed = speed * speeds.network_slowdown(job, placement, run.gangs) // NOMINAL
        return max(1, speed)


def _without(runs: RunsByResource, place: int, run: SimRun) -> dict[str, SimRun]:
    """Remove a run from a GPU or link; the runs that remain there."""
    there = runs[place]
    del there[run.run.job]
    if not there:
        del runs[place]
    return there
