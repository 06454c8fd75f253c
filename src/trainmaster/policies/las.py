"""Least attained service, two-dimensional (Tiresias, NSDI'19, section 3): GPUs x time so far.

The job that has received the least GPU time runs first, without knowing how long any will take.
Compared again on every arrival and end, and every `quantum_s` while a job waits; quanta end at
whole multiples of the quantum. Equal jobs degenerate to time-sharing: that is why Tiresias
discretises (`tiresias-l`). Deviations: none known; the run order of Figure 7 is a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.model.plan import Rank
from trainmaster.model.units import to_ms


@dataclass(frozen=True, slots=True)
class LasOptions(PreemptiveOptions):
    quantum_s: float = option(
        60.0, positive_seconds, "seconds between priority updates while jobs wait"
    )


class Las(BasePolicy[LasOptions]):
    name = "las"
    options_type = LasOptions

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        if record.since_ms is None:
            return Rank(0, record.attained)
        return Rank(0, record.attained - record.since_ms * record.rate, rate=record.rate)

    def wake_at(self, ranks: RankIndex, draft: Draft, now: int) -> int | None:
        if not ranks.has_running() and draft.is_empty():
            return None
        quantum = to_ms(self.options.quantum_s)
        end = (now // quantum + 1) * quantum
        due = ranks.next_expiry()
        return end if due is None else min(end, due)
