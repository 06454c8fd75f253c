"""Policies that order by rank and let single-GPU jobs share: only to try the mechanism in tests."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from tests.policies.gittins_host import LearningGittins
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View, by_demand
from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.rank_order import run_in_order
from trainmaster.mechanisms.starvation import PreemptiveOptions
from trainmaster.model.plan import Plan, Rank
from trainmaster.policies.gittins import GittinsOptions
from trainmaster.policies.trainmaster.colocation import IsExempt, Pairing
from trainmaster.policies.trainmaster.colocation_state import NOBODY_PACKED, Packed, Terms, soonest


@dataclass(frozen=True, slots=True)
class Memo:
    learned: Observations = field(default_factory=Observations)
    packed: Packed = NOBODY_PACKED


class _Packing(BasePolicy[GittinsOptions]):
    """A pass of any policy with ranks, with the mechanism plugged in."""

    terms: Terms
    is_exempt: IsExempt

    def packs(self, terms: Terms, is_exempt: IsExempt = lambda record: False) -> None:
        self.pairing = Pairing(terms)
        self.is_exempt = is_exempt

    def group(self, record: JobRecord) -> Hashable:
        return self.pairing.group(record, by_demand(record))

    def passed(self, view: View, memo: Memo, now: int) -> Plan:
        packed = memo.packed
        if view.is_settled() and not packed.crowds:
            return Plan((), memo)
        order = self.in_line(view, now, with_running=True)
        if view.is_stable(order, now) and not self.pairing.is_due(view, packed, now):
            return Plan((), memo, soonest(order.next_expiry(), self.wake(view, memo, now)))
        draft = Draft(view)
        sharing = self.pairing.begin(view, draft, order, packed, now, self.is_exempt)
        placer_of = sharing.placer_of(self.placer)
        run_in_order(view, draft, order, now, self.group, placer_of, self.stuck)
        packed, due = sharing.end(self.placer)
        wake_at = soonest(self.wake_at(order, draft, now), due)
        return draft.plan(replace(memo, packed=packed), wake_at)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        assert isinstance(memo, Memo)
        ranks = self.in_line(view, now, with_running=True).next_expiry()
        return soonest(ranks, self.pairing.wake(view, memo.packed, now))


class PackingGittins(_Packing, LearningGittins):
    """`gittins`, with company."""

    def __init__(
        self, terms: Terms, is_exempt: IsExempt = lambda record: False, **options: object
    ) -> None:
        LearningGittins.__init__(self, GittinsOptions(**options))  # type: ignore[arg-type]
        self.packs(terms, is_exempt)

    def first_memo(self) -> Memo:  # type: ignore[override]
        return Memo()

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        return self.passed(view, replace(memo, learned=self.learn(memo.learned, view, now)), now)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        assert isinstance(memo, Memo)
        self.seen = memo.learned
        return _Packing.wake(self, view, memo, now)


class PackingFifo(_Packing):
    """First come, first served, whoever does not fit is skipped: easy to foresee by hand."""

    name = "fifo with company"
    options_type = PreemptiveOptions

    def __init__(self, terms: Terms, is_exempt: IsExempt = lambda record: False) -> None:
        super().__init__(PreemptiveOptions())  # type: ignore[arg-type]
        self.packs(terms, is_exempt)

    def first_memo(self) -> Memo:
        return Memo()

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        return self.passed(view, memo, now)
