"""Guaranteed runs and opportunistic ones on the same GPU: each in a layer of its own, memory in common.

A guaranteed run takes GPUs of which no other guaranteed run has a part; an opportunistic one joins
the least busy GPUs that leave it enough idle cycles and memory. All of them share by turns, so that
no job is launched again when another comes or goes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import chain

from trainmaster.core.occupancy import Occupancy, is_opportunistic
from trainmaster.core.state import JobRecord, kept_memory
from trainmaster.model.job import Demand, Part, Shape
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.placement.fractions import idle_gpus, place_parts, shared_gpus
from trainmaster.placement.placers import RELAXING, is_barred

SHARING = Sharing.TIME
NOWHERE: frozenset[int] = frozenset()


def place_guaranteed(space: Occupancy, record: JobRecord, share: int) -> Placement | None:
    """The nominal shape on unused GPUs, each booked with `share` of its guaranteed layer.

    With a share below a whole GPU, also beside other guaranteed runs, where its memory is known.
    """
    demand, shape = record.demand, record.demand.nominal
    wanted, shares = parts_of(shape), guaranteed_shares(record, share)
    if shape.is_whole and shares[0] == WHOLE:
        found = RELAXING.shaped(space, demand, shape)
    else:
        parts = tuple(
            Part(shares[at], _at_most(space, record, part)) for at, part in enumerate(wanted)
        )
        found = place_parts(space, demand, Shape(len(parts), parts=parts), SHARING, Role.GUARANTEED)
    if found is None:
        return None
    slices = tuple(
        Slice(*piece[:2], shares[at], memory_on(space, piece.gpu, record, wanted[at]), stage)
        for at, piece in enumerate(found.slices)
        for stage in (at if shape.parts else 0,)
    )
    placement = Placement(slices, found.span, SHARING, Role.GUARANTEED)
    return None if space.refusal(placement, demand) else placement


def _at_most(space: Occupancy, record: JobRecord, part: Part) -> int:
    """The memory to look for: a measured peak with its margin may be more than any GPU has."""
    if part.memory or not record.demand.nominal.is_whole:
        return part.memory
    types = [space.topology.types[kind] for kind in space.kinds_for(record.demand)]
    return max((record.memory_on(kind) for kind in types), default=0)


def parts_of(shape: Shape) -> tuple[Part, ...]:
    """Its pieces, equal or not."""
    return shape.parts or (Part(shape.share, shape.memory),) * shape.count


def guaranteed_shares(record: JobRecord, share: int) -> list[int]:
    """What each piece books of a GPU's guaranteed layer: `share`, or all where memory is unknown.

    A job that asks for a part of a GPU books that part.
    """
    shape = record.demand.nominal
    if shape.is_whole:
        return [share if record.gpu_memory else WHOLE] * shape.count
    if not shape.parts:
        return [shape.share] * shape.count
    return [max(share, part.share) for part in shape.parts]


def guaranteed_size(record: JobRecord, share: int) -> int:
    """What the nominal shape books in all."""
    return sum(guaranteed_shares(record, share))


def memory_on(space: Occupancy, gpu: int, record: JobRecord, part: Part) -> int:
    """What a piece may use there: what is known of it, else its part of the GPU's memory."""
    kind = space.topology.type_of_gpu[gpu]
    if record.demand.nominal.is_whole:
        return record.memory_on(kind)
    return part.memory or kind.memory * part.share // WHOLE


def guest_memory_on(space: Occupancy, gpu: int, record: JobRecord, part: Part) -> int:
    """The same of an opportunistic job; beside others, a part of the GPU's where nothing is known of it."""
    if space.mode[gpu] is None or not record.demand.nominal.is_whole:
        return memory_on(space, gpu, record, part)
    return record.memory_beside(space.topology.type_of_gpu[gpu])


def unguaranteed(space: Occupancy, demand: Demand, most: int) -> tuple[Slice, ...]:
    """Up to `most` GPUs that no guaranteed run uses or has reserved, idle ones first."""
    chosen: list[Slice] = []
    loads: dict[int, int] = {}
    kinds = space.kinds_for(demand)
    for gpu in chain(idle_gpus(space, kinds), shared_gpus(space, kinds, SHARING, WHOLE)):
        if len(chosen) == most:
            break
        if demand.forbids(gpu):
            continue
        node = space.node_of[gpu]
        load = loads.get(node, 0) + WHOLE
        if space.has_host_room(node, load, demand):
            loads[node] = load
            chosen.append(space.whole_slices[gpu])
    return tuple(chosen)


def utilisation(record: JobRecord) -> int:
    """Part of a GPU's cycles that a job keeps busy, all of them where it is unknown."""
    return NOMINAL if record.util_ppm is None else record.util_ppm


class SpareCycles:
    """GPUs that an opportunistic run may join in this pass, the least busy first."""

    def __init__(self, space: Occupancy, busy: Callable[[int], int], limit_ppm: int) -> None:
        self._space = space
        self._limit = limit_ppm
        self._open: list[tuple[int, int]] = []
        """(utilisation, GPU), growing."""
        for gpu in [gpu for gpu, free in enumerate(space.free_memory) if free > 0]:
            mode = space.mode[gpu]
            if mode not in (None, SHARING) or not space.free_spare[gpu]:
                continue
            if space.reserved_gpus.get(gpu, True) and space.is_offered(gpu):
                used = busy(gpu) if mode is not None else 0
                if mode is None or used < limit_ppm:
                    self._open.append((used, gpu))
        self._open.sort()

    def place(self, record: JobRecord, avoided: AbstractSet[int] = NOWHERE) -> Placement | None:
        """All its pieces, each on the least busy GPU that has the memory for it, or None.

        A frozen run goes on where it is, if there is room for it.
        """
        space, demand = self._space, record.demand
        if record.frozen is not None and self._has_room_again(record, record.frozen, avoided):
            return record.frozen
        if record.loses_work_elsewhere:
            return None
        parts = parts_of(demand.nominal)
        if len(parts) > len(self._open):
            return None
        kinds = set(space.kinds_for(demand))
        chosen: dict[int, Slice] = {}
        loads: dict[int, int] = {}
        for stage, part in sorted(enumerate(parts), key=lambda each: -each[1].memory):
            piece = self._least_busy(record, part, stage, kinds, chosen, loads, avoided)
            if piece is None:
                return None
            chosen[piece.gpu] = piece
            loads[piece.node] = loads.get(piece.node, 0) + piece.share
        has_stages = bool(demand.nominal.parts)
        slices = tuple(
            piece if has_stages else piece._replace(stage=0)
            for piece in sorted(chosen.values(), key=lambda each: each.stage)
        )
        span = space.topology.span_of_gpus([piece.gpu for piece in slices])
        return Placement(slices, span, SHARING, Role.OPPORTUNISTIC)

    def _has_room_again(
        self, record: JobRecord, frozen: Placement, avoided: AbstractSet[int]
    ) -> bool:
        """Whether its frozen run could share its GPUs again with those that have them now."""
        gpus, space = tuple(frozen.gpus()), self._space
        is_open = set(gpus) <= {gpu for _, gpu in self._open} - avoided
        if not is_open or is_barred(record, frozen) or not is_opportunistic(frozen):
            return False
        host, memory, *_ = kept_memory(space.topology, record, frozen)
        return space.refusal_without(gpus, memory, host, frozen, record.demand) is None

    def _least_busy(
        self,
        record: JobRecord,
        part: Part,
        stage: int,
        kinds: set[int],
        chosen: dict[int, Slice],
        loads: dict[int, int],
        avoided: AbstractSet[int],
    ) -> Slice | None:
        space, demand = self._space, record.demand
        for _, gpu in self._open:
            if gpu in avoided:
                continue
            node = space.node_of[gpu]
            memory = guest_memory_on(space, gpu, record, part)
            if gpu in chosen or space.node_type[node] not in kinds or demand.forbids(gpu):
                continue
            if space.free_memory[gpu] < memory:
                continue
            share = self._share(record, part, gpu)
            load = loads.get(node, 0) + share
            if share <= space.free_spare[gpu] and space.has_host_room(
                node, load, demand, is_spare=True
            ):
                return Slice(node, gpu, share, memory, stage)
        return None

    def _share(self, record: JobRecord, part: Part, gpu: int) -> int:
        """What it keeps busy of the idle cycles, as far as other opportunists leave them."""
        if not record.demand.nominal.is_whole:
            return part.share
        wanted = utilisation(record) * WHOLE // NOMINAL
        return max(1, min(wanted, self._space.free_spare[gpu]))

    def note(self, record: JobRecord, placement: Placement) -> None:
        """It runs there from now on: those GPUs are busier, or closed."""
        used = utilisation(record)
        mine = set(placement.gpus())
        busier = [(busy + used, gpu) for busy, gpu in self._open if gpu in mine]
        self._open = [entry for entry in self._open if entry[1] not in mine]
        for entry in busier:
            if entry[0] < self._limit and self._space.free_spare[entry[1]]:
                insort(self._open, entry)
