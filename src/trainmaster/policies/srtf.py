"""Shortest remaining time first, preemptive, with perfect knowledge: an oracle, not a contender.

The classic bound for mean completion time on one server. Whole gangs, in order of true remaining
time, skipping what does not fit. Ties: earlier submission. Remaining time is counted at nominal speed
for all jobs: with a running job's current speed, a slow placement would make two jobs preempt each other
endlessly. Deviations: none known; checked against two other simulators on philly1k (docs/policies/srtf.md).
"""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.model.plan import Rank


class Srtf(BasePolicy[PreemptiveOptions]):
    name = "srtf"
    options_type = PreemptiveOptions
    needs_oracle = True
    switches_per_run = 0  # what is left of a run only shrinks: jobs cannot take turns

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        left = view.true_work_left(record)
        if record.since_ms is None:
            return Rank(0, left)
        return Rank(0, left + record.since_ms * record.speed_ppm, rate=-record.speed_ppm)
