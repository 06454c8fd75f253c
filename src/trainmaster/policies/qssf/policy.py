"""QSSF (Helios, Hu et al., SC'21): quasi-shortest-service-first, run times foretold from history.

Waiting jobs go in order of foretold GPU time: run time x GPUs. The run time is
`rolling` x what recent runs of the same program took + (1 - `rolling`) x what is learned by attributes
(history_predictor.py), from jobs that have ended, never from estimates; each job is judged once, when
it arrives, and keeps its place. Nobody is preempted. `backfill` as in `fifo`; `easy` looks ahead by the
foretold run times.

Verified in the authors' released simulator: strict order (the head holds everybody up), judged once,
the weight 0.1 of the rolling part, its chain (the user's jobs of like names and as many GPUs, else of
like names, else anybody's of like names, else the user's, else all), killed and failed jobs learned
from as well, and jobs in order of their GPUs where nothing is known.

Deviations. Their learned part is gradient-boosted trees trained on the months before; ours begins
empty and is a mean of logarithms by queue, size, user and time of day. Names are alike if they differ
in numbers and hashes only; theirs by edit distance. Recent runs of a program weigh more, as the paper
says and the released code does not. Anybody's jobs are those of the job's queue, and 'all' is first
looked for by queue and size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.config.options import choice, fraction, option
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.backfill import BACKFILL, start_in_order
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.rank_order import evacuate
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import NOMINAL
from trainmaster.policies.qssf.history_predictor import Past


@dataclass(frozen=True, slots=True)
class QssfOptions:
    backfill: str = option("none", choice(*BACKFILL), "who may overtake a head that does not fit")
    rolling: float = option(
        0.1, fraction, "weight of what the same program took lately against what attributes say"
    )


@stored_as("qssf.Memo")
@dataclass(frozen=True, slots=True)
class Memo:
    """What is remembered of jobs that ended, and what was foretold of those that are here."""

    past: Past = field(default_factory=Past)
    foretold_ms: FrozenMap[str, int] = field(default_factory=FrozenMap)
    last_seq: int = -1
    """Everybody up to this one has been judged."""


NOTHING = Memo()


class Qssf(BasePolicy[QssfOptions, Memo]):
    name = "qssf"
    options_type = QssfOptions

    def __init__(self, options: QssfOptions) -> None:
        super().__init__(options)
        self._memo = NOTHING

    def first_memo(self) -> Memo:
        return NOTHING

    def forget(self) -> None:
        super().forget()
        self._memo = NOTHING

    @property
    def skips(self) -> bool:
        return self.options.backfill == "skip"

    def plan(self, view: View, memo: Memo, now: int) -> Plan[Memo]:
        memo = self._memo = self._with_news(view, memo)
        if view.is_settled():
            return Plan((), memo)
        ranks = self.in_line(view, now, with_running=False)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, self.placer)
        start_in_order(
            view, draft, ranks, now, self.placer, self.options.backfill, remaining=self.remaining_ms
        )
        return draft.plan(memo)

    def _with_news(self, view: View, memo: Memo) -> Memo:
        """Judge who has arrived by what was known before; then learn from who has ended."""
        newcomers: dict[str, int] = {}
        last = memo.last_seq
        for record in view.newest_first():
            if record.seq <= memo.last_seq:
                break
            newcomers[record.id] = self._foretold_ms(memo.past, record)
            last = max(last, record.seq)
        for record in view.requeued:
            if record.id in view.jobs and record.id not in memo.foretold_ms:
                newcomers[record.id] = self._foretold_ms(memo.past, record)
        if not newcomers and not view.ended:
            return memo
        foretold = memo.foretold_ms.updated(newcomers)
        if view.ended:
            foretold = foretold.only(view.jobs)
        return Memo(memo.past.with_ended(view.ended), foretold, last)

    def _foretold_ms(self, past: Past, record: JobRecord) -> int:
        rolling, learned = past.rolling_ms(record), past.learned_ms(record)
        weight = round(self.options.rolling * NOMINAL)
        return max(1, (weight * rolling + (NOMINAL - weight) * learned) // NOMINAL)

    def line(self, view: View, memo: Memo, now: int) -> RankIndex:
        self._memo = memo
        return self.in_line(view, now, with_running=True)

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(0, self._run_ms(record) * record.demand.nominal.total_share)

    def _run_ms(self, record: JobRecord) -> int:
        """As judged; a job that the next plan will judge, as it will be."""
        known = self._memo.foretold_ms.get(record.id)
        return self._foretold_ms(self._memo.past, record) if known is None else known

    def remaining_ms(self, record: JobRecord, now: int) -> int:
        """What is left of the foretold run time."""
        return self._run_ms(record) - record.work_at(now) // NOMINAL
