"""What the next attempt of a job asks for after a failure: other devices, more memory.

A job waits for other devices even while those on which it failed are free, but not for ever: after a while
it only prefers others, and so it does from the beginning where the others would never be enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord, State
from trainmaster.model.job import Demand
from trainmaster.model.units import MINUTE

AVOID_MS = 5 * MINUTE
"""How long a job waits for other devices than those on which it failed."""


def ask_for_more(state: State, record: JobRecord, gpu_memory: int, memory: int) -> None:
    """Let a job that holds nothing ask for so much memory from now on, where devices can give it."""
    asked = record.demand_after_prerun or record.demand
    if can_have_more(state.occupancy, asked, gpu_memory, memory):
        change_demand(state, record, lambda demand: _with_more(demand, gpu_memory, memory))


def can_have_more(space: Occupancy, asked: Demand, gpu_memory: int = 0, memory: int = 0) -> bool:
    """Whether so much memory is more than is asked for, and enough devices are offered that have it."""
    wanted = _with_more(asked, gpu_memory, memory)
    return wanted != asked and devices_for(space, wanted) >= wanted.nominal.count


def _with_more(demand: Demand, gpu_memory: int, memory: int) -> Demand:
    nominal = demand.nominal
    if gpu_memory > nominal.memory and not nominal.parts:
        demand = replace(demand, nominal=replace(nominal, memory=gpu_memory))
    if memory:
        demand = replace(demand, host_memory=max(memory, demand.host_memory or 0))
    return demand


def limit_size(state: State, record: JobRecord) -> None:
    """Ask for no more GPUs than its program can use, once its run has no more than those."""
    demand, held = record.demand_after_prerun or record.demand, record.placement
    if record.most_gpus is None or (held is not None and len(held.slices) > record.most_gpus):
        return
    most = max(demand.nominal.count, min(record.job.demand.max_count, record.most_gpus))
    if most == demand.max_count:
        return
    limited = replace(demand, max_count=most)
    if record.demand_after_prerun is not None:
        record.demand_after_prerun = limited
        return
    change_demand(state, record, lambda _: limited)
    state.log.caches_stale = state.log.needs_pass = True


def avoid_devices(
    state: State, record: JobRecord, devices: Iterable[tuple[int, int]], begin_ms: int
) -> None:
    """Keep a job that holds nothing from these devices, for a while counted from then; () ends it."""
    node_of = state.topology.node_of_gpu
    avoid = tuple(
        sorted({gpu for node, gpu in devices if 0 <= gpu < len(node_of) and node_of[gpu] == node})
    )
    if not avoid and not record.demand.avoid:
        return
    asked = replace(record.demand, avoid=())
    others = devices_for(state.occupancy, asked, frozenset(avoid))
    must = bool(avoid) and others >= asked.nominal.count
    change_demand(state, record, lambda demand: replace(demand, avoid=avoid, must_avoid=must))
    if must:
        record.avoid_until_ms = begin_ms + AVOID_MS
        state.avoiding[record.id] = record
    else:
        _stop_waiting(state, record)


def check_avoidance(state: State, record: JobRecord) -> None:
    """A job that asks for more devices than before: it does not wait for others that are too few now."""
    demand = record.demand
    if demand.must_avoid:
        others = devices_for(state.occupancy, demand, frozenset(demand.avoid))
        if others < demand.nominal.count:
            _stop_waiting(state, record)


def end_avoidance(state: State, now: int) -> None:
    """Let jobs start where they failed if nothing else is free, once they have waited long enough."""
    for record in list(state.avoiding.values()):
        if record.avoid_until_ms is not None and record.avoid_until_ms <= now:
            _stop_waiting(state, record)
            state.log.caches_stale = state.log.needs_pass = True


def _stop_waiting(state: State, record: JobRecord) -> None:
    """From now on it only prefers other devices."""
    record.avoid_until_ms = None
    state.avoiding.pop(record.id, None)
    change_demand(state, record, lambda demand: replace(demand, must_avoid=False))


def remap_avoided(state: State, record: JobRecord, gpus: Mapping[int, int]) -> None:
    """The same devices under their new indices; those that are gone need not be avoided."""

    def moved(demand: Demand) -> Demand:
        avoid, barred = (
            tuple(sorted(gpus[gpu] for gpu in each if gpu in gpus))
            for each in (demand.avoid, demand.barred)
        )
        return replace(demand, avoid=avoid, barred=barred, warm=())

    change_demand(state, record, moved)


def change_demand(state: State, record: JobRecord, changed: Callable[[Demand], Demand]) -> None:
    """Another demand, now and after its pre-run."""
    state.log.note_job(record)
    record.demand = changed(record.demand)
    if record.demand_after_prerun is not None:
        record.demand_after_prerun = changed(record.demand_after_prerun)
    record.group = state.group_of(record.demand)
    state.log.note_job(record)


def devices_for(space: Occupancy, demand: Demand, avoid: frozenset[int] = frozenset()) -> int:
    """Devices of present nodes that could carry it, those to avoid left out."""
    found = 0
    kinds = space.kinds_for(demand)
    for node in space.topology.nodes:
        if space.node_type[node.index] in kinds and node.index not in space.closed:
            own = range(node.first_gpu, node.first_gpu + node.gpus)
            usable = sum(gpu not in avoid and space.is_offered(gpu) for gpu in own)
            found += min(space.most_on(node, demand), usable)
    return found
