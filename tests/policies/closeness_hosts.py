"""Policies that order by rank and let gangs wait for nearness: only to try the mechanism in tests."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from tests.policies.gittins_host import LearningGittins
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.rank_order import run_in_order
from trainmaster.mechanisms.starvation import PreemptiveOptions
from trainmaster.model.plan import Plan, Rank
from trainmaster.placement.placers import Placer
from trainmaster.policies.gittins import GittinsOptions
from trainmaster.policies.trainmaster.defragmentation import Tidying
from trainmaster.policies.trainmaster.delay_scheduling import Closeness, Terms
from trainmaster.policies.trainmaster.locality_estimator import Nearness

USUAL = Terms()


@dataclass(frozen=True, slots=True)
class Memo:
    learned: Observations = field(default_factory=Observations)
    nearness: Nearness = field(default_factory=Nearness)


class _Near(BasePolicy[GittinsOptions]):
    """A pass of any policy with ranks, with the mechanism plugged in."""

    gathers = True
    makes_room = True
    terms: Terms

    def is_near(self, terms: Terms, *, gathers: bool, makes_room: bool) -> None:
        self.terms, self.gathers, self.makes_room = terms, gathers, makes_room
        self.closeness = Closeness(terms, self.left_ms)

    def left_ms(self, record: JobRecord, now: int) -> int:
        raise NotImplementedError

    def forget(self) -> None:
        super().forget()
        self.closeness = Closeness(self.terms, self.left_ms)

    def placer(self, record: JobRecord) -> Placer:
        return self.closeness.placer(record)

    def group(self, record: JobRecord) -> Hashable:
        return self.closeness.group(record, record.group)

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return self.closeness.rank(record, super().rank(view, record, now))

    def passed(self, view: View, learned: Observations, nearness: Nearness, now: int) -> Plan:
        is_due = self.gathers and self.closeness.is_due(nearness, now)
        memo = Memo(learned, self.closeness.learn(nearness, view, now))
        if view.is_settled() and not is_due:
            return Plan((), memo)
        draft, wake_at = Draft(view), None
        tidying = Tidying(self.closeness, view, draft, now)
        if not view.is_settled():
            ranks = self.in_line(view, now, with_running=True)
            wake_at = ranks.next_expiry()
            if not view.is_stable(ranks, now):
                if self.makes_room:
                    tidying.make_room(ranks)
                run_in_order(view, draft, ranks, now, self.group, self.placer, self.stuck)
                self.closeness.unstick(self.stuck)
        if is_due:
            tidying.gather()
        return draft.plan(memo, wake_at)

    def line(self, view: View, memo: object, now: int) -> RankIndex:
        assert isinstance(memo, Memo)
        self.closeness.show(memo.nearness, view, now)
        return self.in_line(view, now, with_running=True)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        return None if view.is_settled() else self.line(view, memo, now).next_expiry()


class NearGittins(_Near, LearningGittins):
    """`gittins`, with gangs that wait for nearness as long as that pays."""

    def __init__(
        self,
        terms: Terms = USUAL,
        *,
        gathers: bool = True,
        makes_room: bool = True,
        **options: object,
    ) -> None:
        LearningGittins.__init__(self, GittinsOptions(**options))  # type: ignore[arg-type]
        self.is_near(terms, gathers=gathers, makes_room=makes_room)

    def left_ms(self, record: JobRecord, now: int) -> int:
        return self.cost(record, now) // record.demand.nominal.total_share

    def first_memo(self) -> Memo:  # type: ignore[override]
        return Memo()

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        return self.passed(view, self.learn(memo.learned, view, now), memo.nearness, now)

    def line(self, view: View, memo: object, now: int) -> RankIndex:
        assert isinstance(memo, Memo)
        self.seen = memo.learned
        return _Near.line(self, view, memo, now)


class _Fifo(BasePolicy[PreemptiveOptions]):
    name = "near fifo"
    options_type = PreemptiveOptions

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)


class NearFifo(_Near, _Fifo):  # type: ignore[misc]
    """First come, first served, whoever does not fit is skipped; every job is to last `left_s` more."""

    def __init__(
        self,
        terms: Terms = USUAL,
        *,
        gathers: bool = True,
        makes_room: bool = True,
        left_s: int = 10_000,
    ) -> None:
        BasePolicy.__init__(self, PreemptiveOptions())  # type: ignore[arg-type]
        self._left_ms = left_s * 1000
        self.is_near(terms, gathers=gathers, makes_room=makes_room)

    def left_ms(self, record: JobRecord, now: int) -> int:
        return self._left_ms

    def first_memo(self) -> Memo:
        return Memo()

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        return self.passed(view, None, memo.nearness, now)
