"""Rules for one action of a plan: which shapes a job may have, and which runs a policy may end."""

from __future__ import annotations

from trainmaster.core.occupancy import is_opportunistic
from trainmaster.core.state import JobRecord, State
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.reasons import Refused


def ending_refusal(record: JobRecord) -> Refused | None:
    """Why a policy must not end its run, be it to start it again with another placement."""
    if not record.job.preemptible:
        return Refused.NOT_PREEMPTIBLE
    return Refused.WORK_WOULD_BE_LOST if record.cannot_save else None


def avoidance_refusal(record: JobRecord, placement: Placement) -> Refused | None:
    """Why a policy must not start it there: it failed there, and still waits for other devices."""
    demand = record.demand
    if not demand.must_avoid:
        return None
    return Refused.AVOIDED if not set(demand.avoid).isdisjoint(placement.gpus()) else None


def kept_free_refusal(record: JobRecord, placement: Placement) -> Refused | None:
    """Why nobody may start it there: the devices are kept free of it."""
    barred = record.demand.barred
    return Refused.KEPT_FREE if barred and not set(barred).isdisjoint(placement.gpus()) else None


def shape_refusal(state: State, record: JobRecord, placement: Placement) -> Refused | None:
    """Whether these slices are one of the job's admissible shapes."""
    demand = record.demand
    is_as_asked = placement.sharing is demand.mode
    if not is_as_asked and placement.sharing is not Sharing.TIME and demand.sharing is not None:
        return Refused.NOT_ADMISSIBLE
    is_whole = demand.nominal.is_whole
    if (is_as_asked or not is_whole) and _is_shape_of(demand, placement):
        return None
    return _packing_refusal(state, record, placement) if is_whole else Refused.NOT_ADMISSIBLE


def _is_shape_of(demand: Demand, placement: Placement) -> bool:
    """Whether each piece has at least what the nominal shape, or a split, states for it."""
    count = len(placement.slices)
    for split in (demand.nominal, *demand.splits) if demand.nominal.parts else demand.splits:
        if len(split.parts) == count and all(
            piece.share >= part.share and piece.memory >= part.memory
            for piece, part in zip(placement.slices, split.parts, strict=True)
        ):
            return True
    if not demand.min_count <= count <= demand.max_count:
        return False
    share, memory = demand.nominal.share, demand.nominal.memory
    if placement.sharing is Sharing.EXCLUSIVE and not memory:
        return True  # an exclusive slice books the whole GPU, whatever it says
    return all(piece.share >= share and piece.memory >= memory for piece in placement.slices)


def _packing_refusal(state: State, record: JobRecord, placement: Placement) -> Refused | None:
    """Whole GPUs may be shared with others in any parts, where the memory it may use is booked.

    So may the pieces of a split. An opportunistic run of unknown memory needs only a part of a GPU's: it is
    measured there, and leaves where guaranteed runs need that memory.
    """
    demand, types = record.demand, state.topology.type_of_gpu
    if placement.sharing is Sharing.EXCLUSIVE:
        return Refused.NOT_ADMISSIBLE
    for split in demand.splits:
        if len(split.parts) == len(placement.slices) and all(
            piece.share >= 1 and piece.memory >= part.memory > 0
            for piece, part in zip(placement.slices, split.parts, strict=True)
        ):
            return None
    if not demand.min_count <= len(placement.slices) <= demand.max_count:
        return Refused.NOT_ADMISSIBLE
    is_guest = is_opportunistic(placement)
    for piece in placement.slices:
        kind = types[piece.gpu]
        least = record.memory_beside(kind) if is_guest else record.memory_on(kind)
        if piece.share < 1 or piece.memory < least:
            return Refused.NOT_ADMISSIBLE
    return None
