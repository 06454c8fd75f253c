"""Policies that order by rank and let elastic runs breathe: only to try the mechanism in tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.policies.gittins_host import LearningGittins
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.rank_order import run_in_order
from trainmaster.mechanisms.starvation import PreemptiveOptions
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.units import MINUTE, WHOLE
from trainmaster.placement.placers import RELAXING, Placer
from trainmaster.policies.gittins import GittinsOptions
from trainmaster.policies.trainmaster.resizing import (
    NO_BREATHS,
    Breathing,
    Breaths,
    IsExempt,
    Terms,
)


@dataclass(frozen=True, slots=True)
class Memo:
    learned: Observations = field(default_factory=Observations)
    breaths: Breaths = NO_BREATHS


class _Breathing(BasePolicy[GittinsOptions]):
    """A pass of any policy with ranks, with the mechanism plugged in."""

    breathing: Breathing
    is_exempt: IsExempt = staticmethod(lambda record: False)

    @property
    def is_moldable(self) -> bool:
        return self.breathing.terms.shrinks

    def price_at(self, record: JobRecord, now: int) -> int:
        """As in least attained service: who has had little is expected to end soon."""
        return record.attained_at(now) + MINUTE * WHOLE

    def forget(self) -> None:
        super().forget()
        self.breathing.forget()

    def passed(self, view: View, memo: Memo, now: int) -> Plan:
        settled = view.is_settled()
        if self.breathing.is_idle(view) and settled:
            return Plan((), memo)
        order = None if settled else self.in_line(view, now, with_running=True)
        is_due = self.breathing.is_due(memo.breaths, now)
        if order is not None and view.is_stable(order, now) and not is_due:
            return Plan((), memo, soonest(order.next_expiry(), memo.breaths.due_ms))
        draft = Draft(view)
        breath = self.breathing.begin(view, draft, order, memo.breaths, now, self.is_exempt)
        if order is not None:
            breath.make_room(self.placer)
            run_in_order(view, draft, order, now, self.group, self.placer, self.stuck)
        breaths, due = breath.end(self.placer)
        expiry = order.next_expiry() if order is not None else None
        return draft.plan(Memo(memo.learned, breaths), soonest(due, expiry))


def soonest(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)


class BreathingFifo(_Breathing):
    """In order of submission, earlier jobs preempting later ones."""

    name = "breathing-fifo"
    options_type = PreemptiveOptions

    def __init__(self, terms: Terms, min_run_s: float = 0.0, placer: Placer = RELAXING) -> None:
        super().__init__(GittinsOptions(min_run_s=min_run_s))
        self._placer = placer
        self.breathing = Breathing(terms, self.price_at)

    def placer(self, record: JobRecord) -> Placer:
        return self._placer

    def first_memo(self) -> Memo:
        return Memo()

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        return self.passed(view, memo, now)


class BreathingGittins(LearningGittins, _Breathing):
    """By the learned index, which is also the price of a completion."""

    name = "breathing-gittins"

    def __init__(self, terms: Terms, quantum_s: float = 60.0, min_run_s: float = 60.0) -> None:
        super().__init__(GittinsOptions(quantum_s=quantum_s, min_run_s=min_run_s))
        self.breathing = Breathing(terms, self.price_at)

    def first_memo(self) -> Memo:  # type: ignore[override]
        return Memo(super().first_memo())

    def price_at(self, record: JobRecord, now: int) -> int:
        return self.cost(record, now)

    def forget(self) -> None:
        super().forget()
        self.breathing.forget()

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        learned = self.learn(memo.learned, view, now)
        return self.passed(view, Memo(learned, memo.breaths), now)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        assert isinstance(memo, Memo)
        self.seen = memo.learned
        return super().wake(view, memo.learned, now)
