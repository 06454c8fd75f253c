"""What each run uses of its GPUs: its processes added up, by one look at the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trainmaster.core.state import State
from trainmaster.gpu.driver import GpuProcess
from trainmaster.gpu.watch import Look
from trainmaster.model.job import Run
from trainmaster.model.units import MIB, NOMINAL

LITTLE = 128 * MIB
"""What a GPU may have in use although no program computes on it."""
Holders = Mapping[str, Collection[Run]]
"""The runs that hold each device, by UUID."""


@dataclass(frozen=True, slots=True)
class RunUse:
    """What the processes of one run use together."""

    run: Run
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes on each device, by UUID."""
    util_ppm: Mapping[str, int | None] = field(default_factory=dict)
    """Part of the time in which it computed, for each device; None: the driver does not say."""
    processes: int = 0

    @property
    def total_memory(self) -> int:
        return sum(self.memory.values())

    @property
    def most_memory(self) -> int:
        """On the device where it has most."""
        return max(self.memory.values(), default=0)

    @property
    def mean_util_ppm(self) -> int | None:
        """Over its devices; None where that is not known of all of them."""
        known = [each for each in self.util_ppm.values() if each is not None]
        return sum(known) // len(known) if known and len(known) == len(self.util_ppm) else None


def uses_of(
    look: Look, run_of: Mapping[int, Run | None], holders: Holders | None = None
) -> dict[Run, RunUse]:
    """The processes of each run added up; `run_of` has those that exist on this machine.

    Of a run that is alone on a GPU its use is that of the GPU, where the driver says nothing of its
    processes, or does not name them as this machine does.
    """
    own: dict[Run, list[GpuProcess]] = {}
    on: dict[str, set[Run | None]] = {}
    for process in look.processes:
        run = run_of.get(process.pid)
        on.setdefault(process.uuid, set()).add(run)
        if run is not None:
            own.setdefault(run, []).append(process)
    gpus = {each.uuid: each for each in look.readings}
    found = {}
    for run, processes in own.items():
        memory: dict[str, int] = {}
        busy: dict[str, int | None] = {}
        for uuid in dict.fromkeys(each.uuid for each in processes):
            here = [each for each in processes if each.uuid == uuid]
            memory[uuid] = sum(each.memory for each in here)
            said = [each.util_ppm for each in here if each.util_ppm is not None]
            alone = gpus[uuid].util_ppm if on[uuid] == {run} and uuid in gpus else None
            busy[uuid] = min(NOMINAL, sum(said)) if said else alone
        found[run] = RunUse(run, memory, busy, len({each.pid for each in processes}))
    named = {each.uuid for each in look.processes if each.pid in run_of}
    for uuid, runs in (holders or {}).items():
        reading = gpus.get(uuid)
        if len(runs) == 1 and uuid not in named and reading and reading.memory_used > LITTLE:
            (run,) = runs
            known = found.get(run, RunUse(run))
            memory = {**known.memory, uuid: reading.memory_used}
            found[run] = RunUse(run, memory, {**known.util_ppm, uuid: reading.util_ppm})
    return found


def holders_of(state: State) -> Holders:
    """The runs that are placed on each GPU."""
    uuids = state.topology.uuids
    found: dict[str, set[Run]] = {}
    for record in (each for there in state.residents for each in there.values()):
        if record.placement is not None and uuids:
            for gpu in record.placement.gpus():
                found.setdefault(uuids[gpu], set()).add(record.run)
    return found
