"""Which jobs remain on a GPU during a pass."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.model.placement import Placement


def remaining_jobs(draft: Draft, gpu: int) -> Iterator[tuple[JobRecord, Placement]]:
    """Runs that were on a GPU before the pass and that the draft has not taken off it."""
    for record in draft.view.residents(draft.space.node_of[gpu]):
        placement = record.placement
        if placement is None or draft.is_evicted(record):
            continue
        if any(piece.gpu == gpu for piece in placement.slices):
            yield record, placement
