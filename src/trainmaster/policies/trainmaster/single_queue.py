"""Jobs in one line by what is known of them: those of one queue, or all."""

from __future__ import annotations

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy, M
from trainmaster.mechanisms.rank_order import PlacerOf, run_in_order
from trainmaster.model.plan import Plan, Rank
from trainmaster.policies.trainmaster.checkpoint_tiebreak import freshness
from trainmaster.policies.trainmaster.ranking import Knowing


class OneLine(BasePolicy[object, M]):
    """The best-ranked that fit together run. It holds nothing: what is known is shown to it."""

    name = "one line"

    def __init__(self, knowing: Knowing) -> None:
        super().__init__(None)
        self._knowing = knowing

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        """By what is known; of equally ranked runs the one that loses least gives way first."""
        ranked = self._knowing.rank(record, now)
        if view.saves_on_demand or ranked.level < 0 or record.phase not in ALLOCATED:
            return ranked
        return ranked._replace(value=freshness(view, record))

    def plan(self, view: View, memo: M, now: int) -> Plan[M]:
        if view.is_settled():
            return Plan((), memo)
        ranks = self.in_line(view, now, with_running=True)
        if view.is_stable(ranks, now):
            return Plan((), memo, ranks.next_expiry())
        draft = Draft(view)
        self.fill(view, draft, ranks, now, self.placer)
        return draft.plan(memo, ranks.next_expiry())

    def fill(
        self, view: View, draft: Draft, ranks: RankIndex, now: int, placer_of: PlacerOf
    ) -> None:
        """Let the first in line run, each where it fits."""
        run_in_order(view, draft, ranks, now, self.group, placer_of, self.stuck)

    def wake(self, view: View, memo: M, now: int) -> int | None:
        """A run that has just started comes to another rank at a time that is known now."""
        return None if view.is_settled() else self.line(view, memo, now).next_expiry()

    def line(self, view: View, memo: M, now: int) -> RankIndex:
        return self.in_line(view, now, with_running=True)
