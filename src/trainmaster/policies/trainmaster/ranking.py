"""What `trainmaster` knows and has promised, and what that makes of a job's rank.

One value for the memo (`Knowledge`): what was seen of jobs' service, what a change of hands costs, debts
to those who fell behind, pledged deadlines. Each pass brings it up to date and shows it to whoever ranks;
what is held here besides is a cache of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.chances import ChanceForecast
from trainmaster.estimators.service.predictor import (
    BY_CHANCES,
    Observations,
    ServicePredictor,
    service_bound,
)
from trainmaster.mechanisms.starvation import Guards
from trainmaster.model.codec import stored_as
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.plan import Rank
from trainmaster.model.reasons import Reason
from trainmaster.policies.trainmaster.deadlines.admission import Deadlines
from trainmaster.policies.trainmaster.deadlines.commitments import NO_PLEDGES, Pledges
from trainmaster.policies.trainmaster.gittins_rank import Known, rank_by_worth
from trainmaster.policies.trainmaster.starvation_guard import NO_DEBTS, OWED, Debts, Guard

WORTH_SWITCHES = 2
"""A run is left at least so many times as long as a change of hands costs."""


@stored_as("trainmaster.Knowledge")
@dataclass(frozen=True, slots=True)
class Knowledge:
    """All of it, as a value."""

    seen: Observations = field(default_factory=Observations)
    switch_ms: int = 0
    debts: Debts = NO_DEBTS
    pledges: Pledges = NO_PLEDGES


@dataclass(frozen=True, slots=True)
class Terms:
    """How ranks are made of it."""

    asks_classes: bool
    asks_programs: bool
    asks_siblings: bool
    kept_ppm: int
    cap_ppm: int
    charges_switches: bool
    guard: Guard
    guards: Guards
    margin_ppm: int | None
    """Added to the predictions of jobs with deadlines; None = deadlines are not looked at."""


class Knowing:
    """What is known, shown to whoever asks."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.known = Known(self._new_predictor(), terms.kept_ppm, terms.cap_ppm)
        self._knowledge = Knowledge()
        self._desk = self._deadlines(0)
        self.guards = terms.guards

    def forget(self) -> None:
        self.known.predictor = self._new_predictor()
        self._desk = self._deadlines(self._knowledge.switch_ms)

    def _new_predictor(self) -> ServicePredictor[ChanceForecast]:
        terms = self._terms
        classes = (len(BY_CHANCES.weights) - (not terms.asks_programs)) * terms.asks_classes
        return ServicePredictor(BY_CHANCES, classes, asks_siblings=terms.asks_siblings)

    # -- a pass ------------------------------------------------------------------------------------

    def learn(
        self, view: View, known: Knowledge, now: int
    ) -> tuple[Knowledge, tuple[DeadlineNotice, ...]]:
        """What is known now, and what owners of deadlines should know."""
        seen = self.known.seen = self.known.predictor.learn(known.seen, view, now)
        switch_ms = known.switch_ms
        if seen.made_ms != known.seen.made_ms and self._terms.charges_switches:
            switch_ms = view.switch_ms
        debts = self._terms.guard.looked(view, known.debts, now)
        pledges = known.pledges
        notices: tuple[DeadlineNotice, ...] = ()
        if self._terms.margin_ppm is not None:
            pledges, notices = self._deadlines(switch_ms).follow(view, pledges, now)
        known = replace(known, seen=seen, switch_ms=switch_ms, debts=debts, pledges=pledges)
        self.show(known)
        return known, notices

    def show(self, known: Knowledge) -> None:
        """Answer from this from now on."""
        self._knowledge = known
        self._desk = self._deadlines(known.switch_ms)
        self.known.seen, self.known.switch_ms = known.seen, known.switch_ms
        least = max(self._terms.guards.min_run_ms, WORTH_SWITCHES * known.switch_ms)
        if least != self.guards.min_run_ms:
            self.guards = replace(self.guards, min_run_ms=least)

    def _deadlines(self, switch_ms: int) -> Deadlines:
        margin = self._terms.margin_ppm or 0
        return Deadlines(margin, switch_ms, self._service_bound)

    def _service_bound(self, record: JobRecord) -> int | None:
        return service_bound(self.known.predictor, self.known.seen, record)

    def wake(self, view: View, now: int) -> int | None:
        """When a look is due, should nothing happen before; ranks have ends of their own."""
        known, times = self._knowledge, list[int]()
        if self._terms.guard.is_on and not (view.is_settled() or view.is_idle()):
            times.append(max(known.debts.next_look_ms, now + 1))
        if known.pledges.accepted:
            due = self._desk.wake(view, known.pledges, now)
            times += [] if due is None else [due]
        return min(times, default=None)

    # -- answering ---------------------------------------------------------------------------------

    def rank(self, record: JobRecord, now: int) -> Rank:
        """By worth, unless it is protected, owed a run, or has a deadline to keep."""
        known = self._knowledge
        ranked = rank_by_worth(self.known, record, now)
        if self.guards.are_on:
            ranked = self.guards.rank(record, ranked, now)
        if known.debts.until:
            ranked = self._terms.guard.rank(record, ranked, known.debts, now)
        if known.pledges.accepted:
            ranked = self._desk.rank(known.pledges, record, ranked, now)
        return ranked

    def is_promised(self, record: JobRecord) -> bool:
        """Whether a debt or a deadline says that it is to run as it is."""
        known = self._knowledge
        return record.id in known.debts.until or record.id in known.pledges.accepted

    def promised_now(self, view: View, now: int) -> list[JobRecord]:
        """Jobs that are owed a run or have a deadline to keep, the most pressing first."""
        known, found = self._knowledge, list[tuple[Rank, int, JobRecord]]()
        for job in {**known.debts.until, **known.pledges.accepted}:
            record = view.jobs.get(job)
            if record is not None:
                rank = self.rank(record, now)
                if rank.level <= OWED:
                    found.append((rank._replace(until_ms=None), record.seq, record))
        return [record for _, _, record in sorted(found)]

    def explained(self, record: JobRecord, reason: Reason, now: int) -> Reason:
        return self._desk.explained(self._knowledge.pledges, record, reason, now)
