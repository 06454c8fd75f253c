"""Who trains beside whom, on shared GPUs and on the wires between GPUs, and how fast in that company."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL
from trainmaster.perf.perf_model import Speeds

if TYPE_CHECKING:
    from trainmaster.sim.sim_run import SimRun

Crowd = dict[int, dict[str, "SimRun"]]
"""By GPU or wire: the runs that train there, by job."""


NOBODY: Sequence[SimRun] = ()


class Company:
    """Runs that may feel each other: only they are looked at when one comes or goes."""

    def __init__(self, speeds: Speeds) -> None:
        self._speeds = speeds
        self._has_wires = bool(speeds.world.neighbours)
        self._on_gpu: Crowd = {}
        self._on_wire: Crowd = {}

    def join(self, run: SimRun) -> Sequence[SimRun]:
        """Begin to train; those who may feel it."""
        run.alone_ppm = self._speeds.alone(run.account.traced.job, run.placement)
        run.wires = self._speeds.wires(run.placement) if self._has_wires else ()
        is_shared = run.placement.sharing is not Sharing.EXCLUSIVE
        if not run.wires and not is_shared:
            return NOBODY
        felt: dict[str, SimRun] = {}
        self._talk(run, felt)
        if is_shared:
            for gpu in run.placement.gpus():
                there = self._on_gpu.setdefault(gpu, {})
                felt.update(there)
                there[run.run.job] = run
        return tuple(felt.values())

    def _talk(self, run: SimRun, felt: dict[str, SimRun]) -> None:
        """Use its wires; who is more crowded than before feels it."""
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
        """Train no longer; those who may feel it."""
        is_shared = run.placement.sharing is not Sharing.EXCLUSIVE
        if not run.wires and not is_shared:
            return NOBODY
        felt: dict[str, SimRun] = {}
        self._fall_silent(run, felt)
        if is_shared:
            for gpu in run.placement.gpus():
                felt.update(_without(self._on_gpu, gpu, run))
        return tuple(felt.values())

    def _fall_silent(self, run: SimRun, felt: dict[str, SimRun]) -> None:
        """Use no wire any more; who was as crowded as its fullest wire may be less so."""
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
        """How fast a run trains where it is, among those who are there."""
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
            speed = speed * speeds.among_gangs(job, placement, run.gangs) // NOMINAL
        return max(1, speed)


def _without(crowd: Crowd, place: int, run: SimRun) -> dict[str, SimRun]:
    """Take a run away from a place; who stays there."""
    there = crowd[place]
    del there[run.run.job]
    if not there:
        del crowd[place]
    return there
