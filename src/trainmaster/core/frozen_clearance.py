"""Makes room where no job runs and only the memory of frozen runs keeps waiting ones from starting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.core.lifecycle import WAITING, Cause, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.pending_launches import begin_release, launch
from trainmaster.core.state import JobRecord, State, kept_memory
from trainmaster.model import actions as a
from trainmaster.model.job import Demand


def clear_frozen(state: State, now: int) -> None:
    """No job runs, and the memory of frozen runs may keep waiting jobs from starting: make room.

    Frozen runs save and end where a waiting job could start then. Else those that wait go on where they
    are, so that their memory is free when they are done. A run that cannot save is never ended for this.
    """
    frozen = [record for record in state.jobs.values() if record.frozen is not None]
    waiting = [record for record in frozen if record.phase is not Phase.HELD]
    if len(waiting) == state.waiting:
        return  # only frozen jobs wait
    safe = [each for each in frozen if not each.cannot_save and each.run not in state.leaving]
    if not _would_make_room(state, safe):
        for record in waiting:
            _thaw_in_place(state, record, now)
        return
    for record in safe:
        if record.frozen is not None:
            begin_release(state, record.run, record.frozen.slices)
            state.outbox.append(a.Halt(record.run))


def _would_make_room(state: State, frozen: Sequence[JobRecord]) -> bool:
    """Whether a job that waits, and is not frozen itself, has too little memory only while these stay."""
    demands = {
        record.group: record.demand
        for record in state.jobs.values()
        if record.phase in WAITING and record.frozen is None
    }.values()
    before = [_rooms(state.occupancy, demand) for demand in demands]
    _count_memory(state, frozen, -1)
    after = [_rooms(state.occupancy, demand) for demand in demands]
    _count_memory(state, frozen, 1)
    return any(
        larger != rooms and sum(larger) >= demand.min_count
        for demand, rooms, larger in zip(demands, before, after, strict=True)
    )


def _count_memory(state: State, frozen: Iterable[JobRecord], sign: int) -> None:
    """Book (1) or unbook (-1) what these frozen runs keep, for a trial."""
    for record in frozen:
        at = record.frozen
        assert at is not None
        host, memory, *_ = kept_memory(state.topology, record, at)
        state.occupancy.book_frozen(at.gpus(), sign * memory, sign * host)


def _rooms(space: Occupancy, demand: Demand) -> list[int]:
    """How many free GPUs of each open node, or such parts of them, it can carry for a job."""
    kinds, shape = space.kinds_for(demand), demand.nominal
    share = max((part.share for part in shape.parts), default=shape.share)
    rooms: list[int] = []
    for node in space.topology.nodes:
        if node.index in space.closed or space.node_type[node.index] not in kinds:
            continue
        idle = [local for local in range(node.gpus) if space.whole[node.index] >> local & 1]
        free = sum(space.free_memory[node.first_gpu + local] >= shape.memory for local in idle)
        while free and not space.has_host_room(node.index, free * share, demand):
            free -= 1
        rooms.append(free)
    return rooms


def _thaw_in_place(state: State, record: JobRecord, now: int) -> None:
    """Let it go on where it is, if there is room."""
    if record.frozen is None or record.run in state.leaving:
        return
    if state.allocate(record, record.frozen) is None:
        state.move(record, Cause.START_ORDERED)
        launch(state, record, now)
