"""What an opportunistic job waits for: measurements of the jobs beside it, their idle cycles, or memory."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.placement import Sharing
from trainmaster.model.reasons import PartShortage, Why
from trainmaster.policies.antman.opportunistic_colocation import (
    SHARING,
    guest_memory_on,
    parts_of,
    utilisation,
)

NAMED = 5
Obstacle = tuple[Why | None, tuple[str, ...], PartShortage | None]
"""Why, the jobs in the way, and what memory is missing."""


def guest_obstacle(
    view: View, record: JobRecord, limit_ppm: int, avoided: AbstractSet[int]
) -> Obstacle:
    """What keeps it from the GPUs that are in use; nothing where that is not what it waits for.

    First what ends by itself: a job there has not been measured yet. Then memory, then cycles. `avoided`:
    GPUs of jobs beside which it stood still.
    """
    space = view.occupancy
    kinds = set(space.kinds_for(record.demand))
    part = parts_of(record.demand.nominal)[0]
    unmeasured: dict[int, JobRecord] = {}
    busy: dict[int, JobRecord] = {}
    memory: list[PartShortage] = []
    for gpu, node in enumerate(space.node_of):
        usable = space.is_offered(gpu) and space.node_type[node] in kinds
        if not usable or space.mode[gpu] not in (SHARING, Sharing.EXCLUSIVE):
            continue
        there = [each for each in view.residents(node) if _is_on(each, gpu)]
        unknown = [each for each in there if not _is_measured(each)]
        unmeasured |= {each.seq: each for each in unknown}
        if unknown:
            continue
        if gpu in avoided or sum(map(utilisation, there)) >= limit_ppm:
            busy |= {each.seq: each for each in there}
            continue
        needed = guest_memory_on(space, gpu, record, part)
        memory.append(PartShortage(needed, space.free_memory[gpu], SHARING, SHARING))
    if unmeasured:
        return Why.NOT_MEASURED, _ids(unmeasured), None
    if memory and max(memory, key=lambda each: each.excess).excess < 0:
        return Why.GPU_MEMORY_TAKEN, (), max(memory, key=lambda each: each.excess)
    return (Why.GPU_BUSY, _ids(busy), None) if busy else (None, (), None)


def _is_on(record: JobRecord, gpu: int) -> bool:
    return record.placement is not None and gpu in record.placement.gpus()


def _is_measured(record: JobRecord) -> bool:
    """Whether it is known what it uses of its GPUs; parts of GPUs are booked as asked for."""
    is_known = record.gpu_memory > 0 or not record.demand.nominal.is_whole
    return is_known and record.util_ppm is not None


def _ids(records: dict[int, JobRecord]) -> tuple[str, ...]:
    return tuple(records[seq].id for seq in sorted(records))[:NAMED]
