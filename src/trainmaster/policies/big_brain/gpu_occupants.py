"""Who sits on which shared GPU in the course of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.placement import Placement


@dataclass(slots=True)
class Tenants:
    """Who sits on which shared GPU, with what this pass has added."""

    view: View
    draft: Draft
    added: dict[int, list[tuple[JobRecord, Placement]]] = field(default_factory=dict)

    def on(self, gpu: int) -> Iterator[tuple[JobRecord, Placement]]:
        for record in self.view.residents(self.draft.space.node_of[gpu]):
            placement = record.placement
            if placement is None or self.draft.is_evicted(record):
                continue
            if any(piece.gpu == gpu for piece in placement.slices):
                yield record, placement
        yield from self.added.get(gpu, ())

    def start(self, record: JobRecord, placement: Placement) -> None:
        self.draft.start(record, placement)
        for gpu in placement.gpus():
            self.added.setdefault(gpu, []).append((record, placement))
