"""How runs share GPUs that all of them are on, though one was to have left and its part was given away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainmaster.core.state import JobRecord
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.topology import Topology
from trainmaster.model.units import WHOLE

Runs = Mapping[int, tuple[JobRecord, Placement]]
"""By seq: jobs that run, and where."""


def shared_again(topology: Topology, runs: Runs) -> dict[int, Placement]:
    """Where each is to be, so that no more than a whole GPU is given away.

    Beside clients of MPS all are booked as such; those that were not started as clients do not become any.
    """
    if len(runs) == 1:
        return {seq: placement for seq, (_, placement) in runs.items()}
    is_by_mps = any(at.sharing is Sharing.MPS for _, at in runs.values())
    sharing = Sharing.MPS if is_by_mps else Sharing.TIME
    found: dict[int, Placement] = {}
    for seq, (record, old) in runs.items():
        slices = tuple(
            piece._replace(
                share=_shares(runs, piece.gpu, old.role)[seq],
                memory=_memory(topology, record, old, piece),
            )
            for piece in old.slices
        )
        found[seq] = replace(old, slices=slices, sharing=sharing)
    return found


def _memory(topology: Topology, record: JobRecord, at: Placement, piece: Slice) -> int:
    """The memory of a GPU that it may use."""
    if at.sharing is Sharing.EXCLUSIVE:
        return record.memory_on(topology.type_of_gpu[piece.gpu])
    return piece.memory


def _shares(runs: Runs, gpu: int, role: Role) -> dict[int, int]:
    """By seq: the part of this GPU for each run of this role that is on it.

    All keep what they have if that is possible. Else jobs that asked for a part of a GPU have that, and the
    others divide the rest equally. Where nothing would be left for them, all have less in proportion.
    """
    has = {
        seq: (record, WHOLE if at.sharing is Sharing.EXCLUSIVE else piece.share)
        for seq, (record, at) in runs.items()
        for piece in at.slices
        if piece.gpu == gpu and at.role is role
    }
    kept = {seq: share for seq, (_, share) in has.items()}
    if sum(kept.values()) <= WHOLE:
        return kept
    asked = {seq: min(share, record.demand.nominal.share) for seq, (record, share) in has.items()}
    wholes = [seq for seq, (record, _) in has.items() if record.demand.nominal.is_whole]
    rest = WHOLE - sum(share for seq, share in asked.items() if seq not in wholes)
    if rest >= len(wholes):
        return asked | {seq: min(kept[seq], rest // max(1, len(wholes))) for seq in wholes}
    total = sum(asked.values())
    return {seq: max(1, share * WHOLE // total) for seq, share in asked.items()}
