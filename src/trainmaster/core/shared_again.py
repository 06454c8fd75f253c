"""How runs share GPUs that all of them are on, though one was to have left and its part was given away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainmaster.core.state import JobRecord, can_rebind
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.topology import Topology
from trainmaster.model.units import WHOLE

Runs = Mapping[int, tuple[JobRecord, Placement]]
"""By seq: jobs that run, and where."""


def shared_again(topology: Topology, runs: Runs) -> dict[int, Placement] | None:
    """Where each is to be, so that no more than a whole GPU is given away; None where that cannot be."""
    if len(runs) == 1:
        return {seq: placement for seq, (_, placement) in runs.items()}
    modes = [at.sharing for _, at in runs.values() if at.sharing is not Sharing.EXCLUSIVE]
    found: dict[int, Placement] = {}
    for seq, (record, old) in runs.items():
        slices = tuple(_part(topology, runs, record, old, piece) for piece in old.slices)
        new = replace(old, slices=slices, sharing=modes[0] if modes else Sharing.TIME)
        if any(piece.share < 1 for piece in slices) or not can_rebind(topology, old, new):
            return None
        found[seq] = new
    return found


def _part(topology: Topology, runs: Runs, record: JobRecord, at: Placement, piece: Slice) -> Slice:
    """Its part of a GPU, with the memory that it may use."""
    most = _most_share(runs, piece.gpu, at.role)
    share = WHOLE if at.sharing is Sharing.EXCLUSIVE else piece.share
    memory = piece.memory
    if at.sharing is Sharing.EXCLUSIVE:
        memory = record.memory_on(topology.type_of_gpu[piece.gpu])
    share = min(share, most) if record.demand.nominal.is_whole or most < 1 else share
    return piece._replace(share=share, memory=memory)


def _most_share(runs: Runs, gpu: int, role: Role) -> int:
    """What a job for whole GPUs may have of this one; less than 1: there is too little.

    Jobs that asked for a part of a GPU keep it; the others divide the rest equally, where they have more
    together. Guaranteed and opportunistic runs are counted apart.
    """
    rest, has = WHOLE, []
    for record, at in runs.values():
        for piece in [each for each in at.slices if each.gpu == gpu and at.role is role]:
            if record.demand.nominal.is_whole:
                has.append(WHOLE if at.sharing is Sharing.EXCLUSIVE else piece.share)
            else:
                rest -= piece.share
    if not has:
        return WHOLE if rest >= 0 else rest
    return WHOLE if sum(has) <= rest else rest // len(has)
