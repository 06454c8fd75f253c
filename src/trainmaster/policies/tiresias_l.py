"""Tiresias-L (Gu et al., NSDI'19): discretised two-dimensional LAS with skew-based placement.

A job starts in the first queue and is demoted when its attained service (GPUs x time) reaches the
queue's threshold; higher queues go before lower ones; inside a queue, first in first out by first
start, never-started jobs after started ones in order of submission. With `promote_knob` k > 0, a
started job that has waited k times as long as it has run returns to the first queue, and its attained
service counts from zero again. Models whose largest tensor is more than `pack_limit` of the whole are
consolidated on the fewest nodes or wait; others take any free GPUs, fewest nodes first.

Deviations. Demotion is noticed at whole seconds, as in the simulators that it is compared with
(docs/design/0004). Preemption costs what `perf` says, the authors' simulator takes it as free. Their
simulator mixes GPU-seconds with seconds in the time of the next demotion; ours does not. PACKLIMIT is
an option, not learned.
"""

from __future__ import annotations

from trainmaster.core.rank_index import RankIndex
from trainmaster.core.view import View
from trainmaster.mechanisms.discretized_queues import DiscretizedQueues, Resets, TiresiasOptions
from trainmaster.model.plan import FrozenMap, Plan


class TiresiasL(DiscretizedQueues[Resets]):
    name = "tiresias-l"
    options_type = TiresiasOptions
    memo_type = FrozenMap

    def plan(self, view: View, memo: Resets, now: int) -> Plan[Resets]:
        return self.run_queues(view, memo, now, self.by_start)

    def queue_ranking(self, view: View, memo: Resets, now: int) -> RankIndex:
        return self.queue_order(view, memo, now, self.by_start)
