"""Admission of deadlines: which can be met, and whether accepted ones still can.

In each pass `follow` answers new deadlines and checks accepted ones; `wake` says when to check again. Until
its latest safe start an accepted job is ranked like any other, so that deadlines cost other jobs as little as
possible. From then on it is ranked before all others, even runs protected by `min_run_s` (priority.py),
because an accepted deadline is the stronger promise. A job that is predicted to miss its deadline comes right
after the jobs that are expected to meet theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome, Decline
from trainmaster.model.plan import FrozenMap
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import MINUTE, ceil_div
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import (
    CapacityCalendar,
    CapacityRequest,
    Kinds,
    room_after,
)
from trainmaster.policies.trainmaster.deadlines.commitments import Commitment, Commitments
from trainmaster.policies.trainmaster.deadlines.replanning import (
    BookingPlan,
    DeadlineClaim,
    compact_bookings,
    plan_bookings,
)
from trainmaster.policies.trainmaster.deadlines.runtime_bounds import (
    ExpectedService,
    extended_work,
    padded_work,
    type_speed,
    with_errors,
)

WORSE_PART = 10
"""The owner is notified again when the delay has grown by this part of the job's age ..."""
WORSE_LEAST_MS = MINUTE
"""... and by at least this."""
ORDINARY = (Why.NOT_ENOUGH_FREE, Why.FRAGMENTED, Why.BEHIND_OTHERS)
"""Reasons to wait that would not apply if the job were ranked first."""

DeadlineUpdate = tuple[Commitments, tuple[DeadlineNotice, ...]]


@dataclass(frozen=True, slots=True)
class DeadlineAdmission:
    """The rules by which deadlines are accepted; has no state of its own."""

    margin_ppm: int
    """Minimum safety margin, as part of the predicted work."""
    switch_ms: int = 0
    """Time needed to preempt other runs and start the job."""
    expected_service: ExpectedService | None = None
    """Learned service, for jobs without an estimate."""

    # -- each pass -------------------------------------------------------------------------------

    def follow(self, view: View, commitments: Commitments, now: int) -> DeadlineUpdate:
        """Check accepted deadlines, and answer new ones."""
        if view.ended:
            commitments = _without_ended(commitments, view)
        if view.requeued:
            commitments = _without_changed(commitments, view)
        notices: list[DeadlineNotice] = []
        if commitments.accepted:
            commitments, notices = self._check_accepted(view, commitments, now)
        new = _new_jobs(view, commitments.judged)
        if new:
            commitments = replace(commitments, judged=new[-1].seq + 1)
        if view.requeued:
            new += _jobs_to_decide_again(view, commitments, new)
        if new:
            asking = [each for each in new if each.job.deadline_ms is not None]
            if asking:
                commitments, answers = self._decide_new(view, commitments, asking, now)
                notices += answers
        return commitments, tuple(notices)

    def wake(self, view: View, commitments: Commitments, now: int) -> int | None:
        """When to check again without any event; ranks expire separately."""
        times: list[int] = []
        for job, commitment in commitments.accepted.items():
            record = view.jobs.get(job)
            if record is None:
                continue
            if not commitment.is_late:
                if not _has_enough_booked(commitment, record, now):
                    return now + 1
                times.append(commitment.deadline_ms)
            if record.since_ms is not None:
                left = commitment.needs - record.work
                times.append(record.since_ms + ceil_div(left, record.speed_ppm))
            elif not commitment.is_late and record.phase not in ALLOCATED:
                start = commitment.latest_start(record)
                times += [] if start is None else [start + 1]
        return min((time for time in times if time > now), default=None)

    def with_notice(
        self, commitments: Commitments, record: JobRecord, reason: Reason, now: int
    ) -> Reason:
        """The reason why the job waits, with the last notice about its deadline."""
        notice = commitments.notice_of(record.id)
        if notice is None:
            return reason
        commitment = commitments.accepted.get(record.id)
        if commitment is not None and reason.why in ORDINARY:
            is_due, until = commitment.due(record, now)
            if not is_due:
                return replace(reason, why=Why.DEADLINE_LEAVES_TIME, notice=notice, until_ms=until)
        return replace(reason, notice=notice)

    # -- accepted deadlines ----------------------------------------------------------------------

    def _check_accepted(
        self, view: View, commitments: Commitments, now: int
    ) -> tuple[Commitments, list[DeadlineNotice]]:
        """Plan the bookings again if they are no longer sufficient."""
        accepted: dict[str, Commitment] = {}
        for job, commitment in commitments.accepted.items():
            record = view.jobs.get(job)
            if record is not None:
                accepted[job] = self._with_current_work(commitments, commitment, record, now)
        gpus = _gpus(view, [view.jobs[job] for job in accepted])
        is_same = all(commitments.gpus.get(kinds) == count for kinds, count in gpus.items())
        if is_same and all(
            _has_enough_booked(accepted[job], view.jobs[job], now) for job in accepted
        ):
            is_same = len(accepted) == len(commitments.accepted)
            if is_same and all(
                commitments.accepted[job] is commitment for job, commitment in accepted.items()
            ):
                return commitments, []
            return replace(commitments, accepted=FrozenMap(accepted)), []
        found = plan_bookings(_claims(view, accepted, now), gpus, now)
        rebooked, notices = _rebooked(view, accepted, found, now)
        return replace(commitments, accepted=FrozenMap(rebooked), gpus=FrozenMap(gpus)), notices

    def _with_current_work(
        self, commitments: Commitments, commitment: Commitment, record: JobRecord, now: int
    ) -> Commitment:
        """The commitment with the current estimate of its work."""
        known, needs = record.estimate, commitment.needs
        estimate = commitment.estimate if known is None else known.work
        if estimate != commitment.estimate:
            needs = self._work(record, commitments) or needs
        done = record.work_at(now)
        if done >= needs:
            needs = extended_work(done)
        if needs == commitment.needs and estimate == commitment.estimate:
            return commitment
        return replace(commitment, needs=needs, estimate=estimate)

    def _work(self, record: JobRecord, commitments: Commitments) -> int | None:
        errors = commitments.errors_ppm
        return padded_work(record, self.expected_service, self.margin_ppm, errors)

    # -- new deadlines ---------------------------------------------------------------------------

    def _decide_new(
        self, view: View, commitments: Commitments, asking: Sequence[JobRecord], now: int
    ) -> tuple[Commitments, list[DeadlineNotice]]:
        """Decide in order of submission: accept a deadline if it and all accepted ones can be met."""
        accepted = dict(commitments.accepted)
        declined = dict(commitments.declined)
        gpus = _gpus(view, [*(view.jobs[job] for job in accepted), *asking])
        found = compact_bookings(_claims(view, accepted, now), gpus, now)
        accepted, notices = _rebooked(view, accepted, found, now)
        for record in asking:
            answer = self._answer(view, commitments, record, found.calendar, now)
            if isinstance(answer, Commitment):
                accepted[record.id] = answer
                notices.append(answer.notice)
                view.invalidate_rank(record)
            else:
                declined[record.id] = answer
                notices.append(answer)
        kept = _gpus(view, [view.jobs[job] for job in accepted])
        return (
            replace(
                commitments,
                accepted=FrozenMap(accepted),
                declined=FrozenMap(declined),
                gpus=FrozenMap(kept),
            ),
            notices,
        )

    def _answer(
        self,
        view: View,
        commitments: Commitments,
        record: JobRecord,
        calendar: CapacityCalendar,
        now: int,
    ) -> Commitment | DeadlineNotice:
        deadline = record.job.deadline_ms
        assert deadline is not None
        needs = self._work(record, commitments)
        if needs is None:
            return DeadlineNotice(
                record.id, DeadlineOutcome.DECLINED, deadline, why=Decline.NO_ESTIMATE
            )
        kinds = view.occupancy.kinds_for(record.demand)
        pace = max(1, type_speed(view, kinds))
        count, need_ms = record.demand.nominal.count, ceil_div(needs, pace)
        request = CapacityRequest(kinds, count, need_ms, self.switch_ms, deadline)
        end, stretches = calendar.earliest(request), calendar.latest(request)
        feasible = end[-1][1] if end else None
        if stretches is not None:
            calendar.book(request, stretches)
            return Commitment(
                deadline_ms=deadline,
                estimate=None if record.estimate is None else record.estimate.work,
                needs=needs,
                count=count,
                pace_ppm=pace,
                switch_ms=self.switch_ms,
                stretches=stretches,
                booked_ms=now,
                notice=DeadlineNotice(
                    record.id,
                    DeadlineOutcome.ACCEPTED,
                    deadline,
                    finish_ms=stretches[-1][1],
                    feasible_ms=feasible,
                ),
            )
        why = Decline.TOO_LARGE if feasible is None else Decline.TOO_SOON
        return DeadlineNotice(
            record.id, DeadlineOutcome.DECLINED, deadline, feasible_ms=feasible, why=why
        )


def _new_jobs(view: View, judged: int) -> list[JobRecord]:
    """Live jobs from this submission number on, in order of submission."""
    found = []
    for record in view.newest_first():
        if record.seq < judged:
            break
        found.append(record)
    return found[::-1]


def _without_changed(commitments: Commitments, view: View) -> Commitments:
    """Drop answers about deadlines that have been changed since, or whose job has a time limit now."""
    accepted, declined = dict(commitments.accepted), dict(commitments.declined)
    for record in view.requeued:
        notice = commitments.notice_of(record.id)
        if notice is None:
            continue
        is_bounded = notice.why is Decline.NO_ESTIMATE and record.job.max_runtime_ms is not None
        if is_bounded or notice.deadline_ms != record.job.deadline_ms:
            accepted.pop(record.id, None)
            declined.pop(record.id, None)
    return replace(commitments, accepted=FrozenMap(accepted), declined=FrozenMap(declined))


def _jobs_to_decide_again(
    view: View, commitments: Commitments, new: Sequence[JobRecord]
) -> list[JobRecord]:
    """Requeued jobs whose deadline has no answer yet: released from hold, or with a new deadline."""
    known = {record.id for record in new}
    found = {
        record.id: record
        for record in view.requeued
        if record.id in view.jobs
        and record.id not in known
        and not commitments.notice_of(record.id)
    }
    return sorted(found.values(), key=lambda record: record.seq)


def _has_enough_booked(commitment: Commitment, record: JobRecord, now: int) -> bool:
    """Whether its bookings are sufficient."""
    is_there = record.phase in ALLOCATED
    room = room_after(commitment.stretches, now, commitment.switch_ms, is_there=is_there)
    return room >= commitment.need_ms(record, now)


def _claims(view: View, accepted: Mapping[str, Commitment], now: int) -> list[DeadlineClaim]:
    found = []
    for job, commitment in accepted.items():
        record = view.jobs[job]
        kinds = view.occupancy.kinds_for(record.demand)
        found.append(DeadlineClaim(record, commitment, commitment.request(record, kinds, now)))
    return found


def _gpus(view: View, records: Iterable[JobRecord]) -> dict[Kinds, int]:
    """GPUs on open nodes, not set aside, for each set of GPU types that one of these jobs may use."""
    space = view.occupancy
    sets = dict.fromkeys(space.kinds_for(record.demand) for record in records)
    by_type: dict[int, int] = {}
    for node in view.topology.nodes:
        if node.index not in space.closed:
            kind = space.node_type[node.index]
            by_type[kind] = by_type.get(kind, 0) + space.usable[node.index]
    return {kinds: sum(by_type.get(kind, 0) for kind in kinds) for kinds in sets}


def _rebooked(
    view: View, accepted: Mapping[str, Commitment], found: BookingPlan, now: int
) -> tuple[dict[str, Commitment], list[DeadlineNotice]]:
    """The commitments with their new bookings, and notices to their owners."""
    commitments: dict[str, Commitment] = {}
    notices: list[DeadlineNotice] = []
    for job, commitment in accepted.items():
        stretches, is_late = found.stretches[job], job in found.late
        new = commitment
        if stretches != commitment.stretches or is_late != commitment.is_late:
            new = replace(commitment, stretches=stretches, booked_ms=now, is_late=is_late)
            view.invalidate_rank(view.jobs[job])
        notice = _notice(commitment, new, view.jobs[job])
        if notice is not None:
            new = replace(new, notice=notice)
            notices.append(notice)
        commitments[job] = new
    return commitments, notices


def _notice(old: Commitment, new: Commitment, record: JobRecord) -> DeadlineNotice | None:
    """The notice due, if any: the deadline slips, slips further, or can be met again."""
    notice = old.notice
    if new.is_late != old.is_late:
        what = DeadlineOutcome.SLIPPED if new.is_late else DeadlineOutcome.RECOVERED
        return replace(notice, what=what, finish_ms=new.finish_ms, earlier_ms=old.finish_ms)
    if not new.is_late or new.finish_ms is None or notice.finish_ms is None:
        return None
    grown = new.finish_ms - notice.finish_ms
    age = notice.finish_ms - record.job.submit_ms
    if grown < max(WORSE_LEAST_MS, age // WORSE_PART):
        return None
    return replace(notice, finish_ms=new.finish_ms, earlier_ms=notice.finish_ms)


def _without_ended(commitments: Commitments, view: View) -> Commitments:
    errors = with_errors(commitments.errors_ppm, view.ended)
    gone = [record.id for record in view.ended]
    accepted, declined = commitments.accepted, commitments.declined
    if any(job in accepted for job in gone):
        accepted = accepted.only(view.jobs)
    if any(job in declined for job in gone):
        declined = declined.only(view.jobs)
    return replace(commitments, accepted=accepted, declined=declined, errors_ppm=errors)
