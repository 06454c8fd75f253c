"""Least attained service, two-dimensional (Tiresias, NSDI'19, section 3): GPUs x time so far.

The job that has received the least GPU time runs first, without knowing how long any will take.
Compared again on every arrival and end, and every `quantum_s` while a job waits; quanta end at
whole multiples of the quantum, and one in which nothing can change is skipped. Equal jobs degenerate
to time-sharing: that is why Tiresias discretises (`tiresias-l`). The run order of Figure 7 is a test.
Deviation: where a switch takes time, a run keeps its GPUs for a quantum (mechanisms/preemption_guards.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.model.plan import Rank
from trainmaster.model.units import WHOLE, ceil_div, to_ms


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
        return self._next_round(ranks, draft.space, now, is_planned=True)

    def wake(self, view: View, memo: None, now: int) -> int | None:
        """When a run that has just started, or another, may have to go."""
        if view.has_nothing_to_schedule():
            return None
        ranks = self.ranked_jobs(view, now, with_running=True)
        return self._next_round(ranks, view.occupancy, now, is_planned=False)

    def _next_round(
        self, ranks: RankIndex, space: Occupancy, now: int, *, is_planned: bool
    ) -> int | None:
        """The end of the quantum in which a waiting job will have received less than runs in its way."""
        quantum = to_ms(self.options.quantum_s)
        due, next_end, soonest = ranks.next_expiry(), (now // quantum + 1) * quantum, None
        for head in ranks.heads():
            time = _overtaken_at(ranks, space, head, now, is_planned=is_planned)
            if time is not None and (soonest is None or time < soonest):
                soonest = time
                if soonest <= next_end:
                    break
        if soonest is None:
            return due
        end = max(next_end, ceil_div(soonest, quantum) * quantum)
        return end if due is None else min(end, due)


def _overtaken_at(
    ranks: RankIndex, space: Occupancy, head: JobRecord, now: int, *, is_planned: bool
) -> int | None:
    """The earliest time at which runs with enough GPUs will have received more than a waiting job.

    A pass that has just been made did what could be done up to now, so one more run has to come. Without one
    the runs may be there: a start that is learned late has received service before it.
    """
    key = ranks.key_of(head, now)
    assert key is not None
    missing = head.demand.nominal.total_share if head.is_whole else 0
    missing -= WHOLE * sum(space.free_gpus[kind] for kind in space.kinds_for(head.demand))
    coming: list[tuple[int, int]] = []
    for line in ranks.running.values():
        for level, value, submit, seq, run in reversed(line.entries):
            if (level, value + line.rate * now, submit, seq) > key:
                missing -= _share(run)
            elif level == key[0] and line.rate:
                coming.append((ceil_div(key[1] - value, line.rate), _share(run)))
            else:
                break
    if missing <= 0 and not is_planned:
        return now
    for time, share in sorted(coming):
        missing -= share
        if missing <= 0:
            return time
    return None


def _share(run: JobRecord) -> int:
    return run.placement.total_share if run.placement is not None else 0
