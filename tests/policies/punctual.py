"""Least attained service with deadlines plugged in: the mechanism under test in the plainest policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.builders import traced
from trainmaster.config.options import at_least_zero, option
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.rank_order import run_in_order
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.reasons import Reason
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, to_ms
from trainmaster.policies.las import Las, LasOptions
from trainmaster.policies.trainmaster.deadlines.admission import Deadlines
from trainmaster.policies.trainmaster.deadlines.commitments import NO_PLEDGES, Pledges
from trainmaster.policies.trainmaster.deadlines.runtime_bounds import (
    ExpectedService,
    Sizes,
    nominal_size,
)


@dataclass(frozen=True, slots=True)
class PunctualOptions(LasOptions):
    deadline_margin: float = option(
        0.1, at_least_zero, "part added to predicted run times, at least"
    )
    switch_s: float = option(0.0, at_least_zero, "what a switch is taken to cost")


class Punctual(Las):
    """LAS that keeps accepted deadlines."""

    name = "punctual"
    options_type = PunctualOptions
    options: PunctualOptions

    def __init__(
        self,
        options: PunctualOptions,
        expected_service: ExpectedService | None = None,
        sizes: Sizes = nominal_size,
    ) -> None:
        super().__init__(options)
        self._deadlines = Deadlines(
            margin_ppm=round(options.deadline_margin * NOMINAL),
            switch_ms=to_ms(options.switch_s),
            expected_service=expected_service,
            sizes=sizes,
        )
        self._pledges = NO_PLEDGES

    def first_memo(self) -> Pledges:
        return NO_PLEDGES

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Pledges)
        pledges, notices = self._deadlines.follow(view, memo, now)
        self._pledges = pledges
        wake = self._deadlines.wake(view, pledges, now)
        if view.is_settled():
            return Plan((), pledges, wake, notices)
        ranks = self.in_line(view, now, with_running=True)
        draft = Draft(view)
        run_in_order(view, draft, ranks, now, self.group, self.placer, self.stuck)
        times = [time for time in (self.wake_at(ranks, draft, now), wake) if time is not None]
        return draft.plan(pledges, min(times, default=None), notices)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        assert isinstance(memo, Pledges)
        self._pledges = memo
        wake = self._deadlines.wake(view, memo, now)
        if view.is_settled():
            return wake
        expiry = self.in_line(view, now, with_running=True).next_expiry()
        return min((time for time in (wake, expiry) if time is not None), default=None)

    def in_line(self, view: View, now: int, *, with_running: bool) -> RankIndex:
        def rank(record: JobRecord) -> Rank:
            ranked = self.rank(view, record, now)
            ranked = self.guards.rank(record, ranked, now) if self.guards.are_on else ranked
            return self._deadlines.rank(self._pledges, record, ranked, now)

        return view.ranked(rank, now, group=self.group, with_running=with_running)

    def explain(self, view: View, memo: object, record: JobRecord, now: int) -> Reason:
        assert isinstance(memo, Pledges)
        reason = super().explain(view, memo, record, now)
        return self._deadlines.explained(memo, record, reason, now)


def punctual(*, margin: float = 0.0, switch_s: float = 0.0, **options: float) -> Punctual:
    """With nothing added to predictions unless said."""
    chosen = {"quantum_s": 5.0} | options
    return Punctual(PunctualOptions(deadline_margin=margin, switch_s=switch_s, **chosen))


def by(within_s: float, job: TracedJob) -> TracedJob:
    """The same job with a deadline so long after its submission."""
    deadline = job.job.submit_ms + to_ms(within_s)
    return replace(job, job=replace(job.job, deadline_ms=deadline))


def asked(name: str, size: int, service_s: float, within_s: float, at_s: float = 0.0) -> TracedJob:
    """A job with a deadline so long after its submission."""
    return by(within_s, traced(name, size, service_s, at_s=at_s))
