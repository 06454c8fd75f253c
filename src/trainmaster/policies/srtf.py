"""Shortest remaining time first, preemptive, with perfect knowledge: an oracle, not a contender.

The classic bound for mean completion time on one server. Whole gangs, in order of true remaining
time, skipping what does not fit. Ties: earlier submission. A running job's remaining time is at its
present speed, a waiting one's at nominal speed. Deviations: none known; checked against two other
simulators on philly1k (docs/simulator.md).
"""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.plan import Rank
from trainmaster.policies.base import BasePolicy
from trainmaster.policies.options import NoOptions


class Srtf(BasePolicy[NoOptions]):
    name = "srtf"
    options_type = NoOptions
    needs_oracle = True

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        finish = view.true_finish(record, now)
        if record.since_ms is None:
            return Rank(0, finish - now)
        return Rank(0, finish, rate=-1)
