"""QSSF (Helios, Hu et al., SC'21): quasi-shortest-service-first, run times predicted from history.

Waiting jobs go in order of predicted GPU time: run time x GPUs. The run time is
`rolling` x what recent runs of the same program took + (1 - `rolling`) x what is learned by attributes
(history_predictor.py), from jobs that have ended, never from estimates; each job is judged once, when
it arrives, and keeps its place. No job is preempted. `backfill` as in `fifo`; `easy` looks ahead by the
predicted run times.

Verified in the authors' released simulator: strict order (the head holds all others up), judged once,
the weight 0.1 of the rolling part, its chain (the user's jobs of like names and as many GPUs, else of
like names, else any user's of like names, else the user's, else all), killed and failed jobs learned
from as well, and jobs in order of their GPUs where nothing is known.

Deviations. Their learned part is gradient-boosted trees trained on the months before; ours begins
empty and is a mean of logarithms by queue, size, user and time of day. Names are alike if they differ
in numbers and hashes only; theirs by edit distance. Recent runs of a program weigh more, as the paper
says and the released code does not. Any user's jobs are those of the job's queue, and 'all' is first
looked for by queue and size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.config.options import choice, fraction, option
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.backfill import BACKFILL, start_in_order
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.model.codec import Json, stored_as
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import NOMINAL
from trainmaster.policies.qssf.history_predictor import RunHistory


@dataclass(frozen=True, slots=True)
class QssfOptions:
    backfill: str = option(
        "none", choice(*BACKFILL), "which jobs may start before a head that does not fit"
    )
    rolling: float = option(
        0.1,
        fraction,
        "weight of recent runs of the same program; the rest is learned by attributes",
    )


def upgraded(body: Mapping[str, Json]) -> Mapping[str, Json]:
    """Predictions had another name in older stores."""
    return {"predicted_ms" if name == "foretold_ms" else name: body[name] for name in body}


@stored_as("qssf.Memo", upgraded)
@dataclass(frozen=True, slots=True)
class QssfMemo:
    """The history of ended jobs, and the predicted run times of live ones."""

    past: RunHistory = field(default_factory=RunHistory)
    predicted_ms: FrozenMap[str, int] = field(default_factory=FrozenMap)
    last_seq: int = -1
    """All jobs up to this one have a prediction."""


class Qssf(BasePolicy[QssfOptions, QssfMemo]):
    name = "qssf"
    options_type = QssfOptions
    preempts = False
    memo_type = QssfMemo

    def __init__(self, options: QssfOptions) -> None:
        super().__init__(options)
        self.allows_overtaking = options.backfill == "skip"

    def plan(self, view: View, memo: QssfMemo, now: int) -> Plan[QssfMemo]:
        memo = self._with_news(view, memo)
        if view.has_nothing_to_schedule():
            return Plan((), memo)
        ranks = self._ranked(view, memo, now, with_running=False)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, self.placer)

        def remaining_ms(record: JobRecord, now: int) -> int:
            return self._run_ms(memo, record) - record.work_at(now) // NOMINAL

        backfill = self.options.backfill
        start_in_order(view, draft, ranks, now, self.placer, backfill, remaining=remaining_ms)
        return draft.plan(memo)

    def _with_news(self, view: View, memo: QssfMemo) -> QssfMemo:
        """Predict newly arrived jobs from the history so far; then add the jobs that have ended."""
        newcomers: dict[str, int] = {}
        last = memo.last_seq
        for record in view.newest_first():
            if record.seq <= memo.last_seq:
                break
            newcomers[record.id] = self._predicted_ms(memo.past, record)
            last = max(last, record.seq)
        for record in view.requeued:
            if record.id in view.jobs and record.id not in memo.predicted_ms:
                newcomers[record.id] = self._predicted_ms(memo.past, record)
        if not newcomers and not view.ended:
            return memo
        predicted = memo.predicted_ms.updated(newcomers)
        if view.ended:
            predicted = predicted.only(view.jobs)
        return QssfMemo(memo.past.with_ended(view.ended), predicted, last)

    def _predicted_ms(self, past: RunHistory, record: JobRecord) -> int:
        rolling, learned = past.rolling_ms(record), past.learned_ms(record)
        weight = round(self.options.rolling * NOMINAL)
        return max(1, (weight * rolling + (NOMINAL - weight) * learned) // NOMINAL)

    def queue_ranking(self, view: View, memo: QssfMemo, now: int) -> RankIndex:
        return self._ranked(view, memo, now, with_running=True)

    def _ranked(self, view: View, memo: QssfMemo, now: int, *, with_running: bool) -> RankIndex:
        """By predicted GPU time."""

        def rank(record: JobRecord) -> Rank:
            return Rank(0, self._run_ms(memo, record) * record.demand.nominal.total_share)

        return self.ranked_by(view, rank, now, with_running)

    def _run_ms(self, memo: QssfMemo, record: JobRecord) -> int:
        """As predicted; for a job that the next plan will judge, as it will be."""
        known = memo.predicted_ms.get(record.id)
        return self._predicted_ms(memo.past, record) if known is None else known
