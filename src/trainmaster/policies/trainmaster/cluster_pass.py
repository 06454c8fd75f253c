"""All jobs of the cluster in one line, placed by what nearness, company and more GPUs are worth to them.

The line itself is that of single_queue.py. Gangs wait for GPUs near together as long as that pays, and runs
are moved to bring GPUs together (delay_scheduling.py, defragmentation.py). Single-GPU jobs that find no
GPU free may join another's (colocation.py). Elastic runs give GPUs to who waits and grow into what is
idle (resizing.py). What each remembers is a value, for the memo.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.rank_order import PlacerOf
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.reasons import Reason
from trainmaster.placement.placers import Placer
from trainmaster.policies.trainmaster.colocation import Pairing
from trainmaster.policies.trainmaster.colocation_state import NOBODY_PACKED, Packed, soonest
from trainmaster.policies.trainmaster.colocation_state import Terms as PackingTerms
from trainmaster.policies.trainmaster.defragmentation import Tidying
from trainmaster.policies.trainmaster.delay_scheduling import Closeness
from trainmaster.policies.trainmaster.delay_scheduling import Terms as NearnessTerms
from trainmaster.policies.trainmaster.locality_estimator import NOTHING_SEEN, Nearness
from trainmaster.policies.trainmaster.ranking import Knowing
from trainmaster.policies.trainmaster.resizing import NO_BREATHS, Breathing, Breaths
from trainmaster.policies.trainmaster.resizing import Terms as BreathingTerms
from trainmaster.policies.trainmaster.single_queue import OneLine


@stored_as("trainmaster.Placed")
@dataclass(frozen=True, slots=True)
class LineMemo:
    """What is remembered of how runs were placed."""

    packed: Packed = NOBODY_PACKED
    breaths: Breaths = NO_BREATHS
    nearness: Nearness = NOTHING_SEEN


@dataclass(frozen=True, slots=True)
class LineTerms:
    """On which terms each mechanism works; None = it is off."""

    nearness: NearnessTerms | None = None
    packing: PackingTerms | None = None
    breathing: BreathingTerms | None = None


class WholeCluster(OneLine[LineMemo]):
    """One line for all."""

    def __init__(self, knowing: Knowing, terms: LineTerms) -> None:
        super().__init__(knowing)
        self._terms = terms
        self._pairing = None if terms.packing is None else Pairing(terms.packing)
        self._breathing: Breathing | None = None
        if terms.breathing is not None:
            self._breathing = Breathing(terms.breathing, self._price_at)
        self._closeness = self._new_closeness()

    def _new_closeness(self) -> Closeness | None:
        terms, left_ms = self._terms.nearness, self._knowing.known.left_ms
        return None if terms is None else Closeness(terms, left_ms)

    def _price_at(self, record: JobRecord, now: int) -> int:
        return self._knowing.known.worth(record, now)

    @property
    def is_moldable(self) -> bool:
        return self._breathing is not None and self._breathing.terms.shrinks

    def first_memo(self) -> LineMemo:
        return LineMemo()

    def forget(self) -> None:
        super().forget()
        self._closeness = self._new_closeness()
        if self._breathing is not None:
            self._breathing.forget()

    # -- who fits where ----------------------------------------------------------------------------

    def placer(self, record: JobRecord) -> Placer:
        if self._closeness is None:
            return super().placer(record)
        return self._closeness.placer(record)

    def group(self, record: JobRecord) -> Hashable:
        group: Hashable = super().group(record)
        if self._closeness is not None:
            group = self._closeness.group(record, group)
        return group if self._pairing is None else self._pairing.group(record, group)

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        ranked = super().rank(view, record, now)
        return ranked if self._closeness is None else self._closeness.rank(record, ranked)

    # -- a pass ------------------------------------------------------------------------------------

    def plan(self, view: View, memo: LineMemo, now: int) -> Plan[LineMemo]:
        gathers = self._closeness is not None and self._closeness.is_due(memo.nearness, now)
        if self._closeness is not None:
            nearness = self._closeness.learn(memo.nearness, view, now)
            memo = memo if nearness is memo.nearness else replace(memo, nearness=nearness)
        is_settled = view.is_settled()
        if is_settled and not gathers and not self._is_busy(view, memo):
            return Plan((), memo)
        ranks = self.in_line(view, now, with_running=True)
        if view.is_stable(ranks, now) and not gathers and not self._is_due(view, memo, now):
            return Plan((), memo, self._wake_at(view, ranks, memo, now))
        draft = Draft(view)
        memo, due = self._placed(view, draft, ranks, memo, now, gathers=gathers)
        return draft.plan(memo, due if is_settled else soonest(ranks.next_expiry(), due))

    def _placed(
        self, view: View, draft: Draft, ranks: RankIndex, memo: LineMemo, now: int, *, gathers: bool
    ) -> tuple[LineMemo, int | None]:
        """Everybody where it may run; what is remembered, and when to look again."""
        promised = self._knowing.is_promised
        placer_of: PlacerOf = self.placer
        due: int | None = None
        sharing = breath = tidying = None
        if self._pairing is not None:
            sharing = self._pairing.begin(view, draft, ranks, memo.packed, now, promised)
            placer_of = sharing.placer_of(self.placer)
        if self._closeness is not None:
            tidying = Tidying(self._closeness, view, draft, now)
            tidying.make_room(ranks)
        if self._breathing is not None and not self._breathing.is_idle(view):
            breath = self._breathing.begin(view, draft, ranks, memo.breaths, now, promised)
            breath.make_room(placer_of)
        self.fill(view, draft, ranks, now, placer_of)
        if self._closeness is not None:
            self._closeness.unstick(self.stuck)
        if sharing is not None:
            packed, due = sharing.end(self.placer)
            memo = memo if packed is memo.packed else replace(memo, packed=packed)
        if tidying is not None and gathers:
            tidying.gather()
        if breath is not None:
            breaths, rested = breath.end(self.placer)
            due = soonest(due, rested)
            memo = memo if breaths is memo.breaths else replace(memo, breaths=breaths)
        return memo, due

    def _is_busy(self, view: View, memo: LineMemo) -> bool:
        """Whether there is something to do although nobody waits."""
        breathes = self._breathing is not None and not self._breathing.is_idle(view)
        return breathes or bool(memo.packed.crowds)

    def _is_due(self, view: View, memo: LineMemo, now: int) -> bool:
        if self._breathing is not None and self._breathing.is_due(memo.breaths, now):
            return True
        return self._pairing is not None and self._pairing.is_due(view, memo.packed, now)

    def _wake_at(self, view: View, ranks: RankIndex, memo: LineMemo, now: int) -> int | None:
        due = None if self._pairing is None else self._pairing.wake(view, memo.packed, now)
        rested = memo.breaths.due_ms
        due = soonest(due, rested if rested is not None and rested > now else None)
        return soonest(ranks.next_expiry(), due)

    def wake(self, view: View, memo: LineMemo, now: int) -> int | None:
        """A run that has just started comes to another rank at a time that is known now."""
        if view.is_settled() and not self._is_busy(view, memo):
            return None
        return self._wake_at(view, self.line(view, memo, now), memo, now)

    def explain(self, view: View, memo: LineMemo, record: JobRecord, now: int) -> Reason:
        """Why it waits, by the places that it would accept now."""
        if self._closeness is not None:
            self._closeness.show(memo.nearness, view, now)
        return super().explain(view, memo, record, now)

    def line(self, view: View, memo: LineMemo, now: int) -> RankIndex:
        if self._closeness is not None:
            self._closeness.show(memo.nearness, view, now)
        return super().line(view, memo, now)
