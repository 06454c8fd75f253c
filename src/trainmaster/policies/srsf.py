"""Shortest remaining service first (Tiresias, NSDI'19, section 3): remaining time x GPUs, an oracle.

Like `srtf`, but a job's size counts: a small long job may go before a large short one. Both are at
nominal speed and size. Deviations: none known; the worked example of Figure 7 (mean 9.33) is a test.
"""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.model.plan import Rank


class Srsf(BasePolicy[PreemptiveOptions]):
    name = "srsf"
    options_type = PreemptiveOptions
    needs_oracle = True
    switches_per_run = 0  # what is left of a run only shrinks: jobs cannot take turns

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        left, size = view.true_work_left(record), record.demand.nominal.total_share
        if record.since_ms is None:
            return Rank(0, left * size)
        speed = record.speed_ppm * size
        return Rank(0, left * size + record.since_ms * speed, rate=-speed)
