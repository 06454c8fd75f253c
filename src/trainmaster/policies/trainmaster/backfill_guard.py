"""Who may be let past a gang that finds no room: whoever does not delay it (EASY, Lifka 1995).

A job that starts behind a blocked gang is no harm where the gang can take its GPUs back at once: where
its rank, counted as that of a run, still stands behind the gang's. One that would not give way may
start if it is expected to end before the gang can start, or takes only what the gang can spare then.
A gang for which not even all runs together leave room, servers being away, is delayed by nobody.
"""

from __future__ import annotations

from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import Key
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service_hazard import bin_of
from trainmaster.mechanisms.backfill import Window, open_window
from trainmaster.mechanisms.rank_order import MayPass
from trainmaster.model.placement import Placement
from trainmaster.policies.trainmaster.gittins_rank import Known


class Gate:
    """The gate of one pass: open until somebody finds no room."""

    def __init__(self, known: Known, view: View, draft: Draft, now: int) -> None:
        self._known = known
        self._view = view
        self._draft = draft
        self._now = now
        self._level = 0
        self._head: JobRecord | None = None
        self._window: Window | None = None
        self._is_hopeless = False

    def shut(self, key: Key, head: JobRecord) -> MayPass | None:
        """Behind this job, only those pass that do not delay it."""
        if head.placement is not None or not self._draft.space.total_free():
            return None
        self._level, self._head = key[0], head
        return self._may_pass

    def _may_pass(self, record: JobRecord, placement: Placement) -> bool:
        if self._known.level_of_run(record, bin_of(record.attained)) > self._level:
            return True
        assert self._head is not None
        window, left = self._opened(self._head), self._known.left_ms(record, self._now)
        return self._is_hopeless or window.admits(left, placement, self._now)

    def _opened(self, head: JobRecord) -> Window:
        if self._window is None:
            view, draft, space = self._view, self._draft, self._draft.space
            self._window = open_window(view, draft, head, self._now, self._known.left_ms)
            free = sum(space.free_gpus[kind] for kind in space.kinds_for(head.demand))
            is_short = free < head.demand.nominal.count
            self._is_hopeless = is_short and self._window.shadow_ms is None
        return self._window
