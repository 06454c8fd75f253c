"""Runs whose memory was measured after their start: booked again, so that others fit beside them.

A job that states no memory is alone until it has been measured (docs/design/0009). From then on it holds its
peak with a margin instead of all memory of its GPUs, shared by turns; its processes do not notice.
"""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.units import WHOLE


def measured_placement(
    draft: Draft, record: JobRecord, share: int | None = None
) -> Placement | None:
    """The same GPUs by turns, with its measured memory and this share of each; None: that is no news.

    Without a share it keeps the one that it has. A client of MPS stays as it was launched.
    """
    placement, demand = record.placement, record.demand
    is_measured = record.measured_memory > 0 and not demand.nominal.memory
    if placement is None or not is_measured or not demand.nominal.is_whole:
        return None
    if record.phase is not Phase.RUNNING or draft.is_touched(record):
        return None
    if placement.sharing is Sharing.MPS or demand.sharing is Sharing.EXCLUSIVE:
        return None
    types, is_whole = draft.space.topology.type_of_gpu, placement.sharing is Sharing.EXCLUSIVE
    slices = tuple(
        piece._replace(
            share=share or (WHOLE if is_whole else piece.share),
            memory=record.memory_on(types[piece.gpu]),
        )
        for piece in placement.slices
    )
    found = replace(placement, slices=slices, sharing=Sharing.TIME)
    return None if found == placement else found


def rebook_measured(draft: Draft, record: JobRecord, share: int | None = None) -> bool:
    """Book it with its measured memory where that is news and fits; returns whether it was."""
    better = measured_placement(draft, record, share)
    if better is None or not draft.fits_instead(record, better):
        return False
    draft.resize(record, better)
    return True
