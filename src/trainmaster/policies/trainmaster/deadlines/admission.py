"""Where deadlines are judged, watched and kept: what a policy plugs in.

In each pass `follow` answers new deadlines and looks after accepted ones; `rank` overrules the policy's
own rank while an accepted job has to hold its GPUs; `wake` says when to look again. Until its latest
safe start an accepted job is ranked like any other, so that promises cost the others no more than they
must. Then it goes before everybody, `min_run_s` included: an accepted deadline is the stronger promise.
Who is predicted to be late all the same goes before everybody but those who are in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome, Decline
from trainmaster.model.plan import FrozenMap, Rank
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import MINUTE, NOMINAL, ceil_div
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import (
    Bookings,
    Kinds,
    Stretches,
    Want,
    room_after,
)
from trainmaster.policies.trainmaster.deadlines.commitments import Pledge, Pledges
from trainmaster.policies.trainmaster.deadlines.replanning import Booked, Claim, booked, tidied
from trainmaster.policies.trainmaster.deadlines.runtime_bounds import (
    ExpectedService,
    Predictions,
    Sizes,
    nominal_size,
    outlived,
    type_speed,
    with_errors,
)

DUE = -(1 << 82)
"""Level of a job whose accepted deadline leaves no more time: before everybody, the protected too."""
LATE = DUE + 1
"""Level of one that is predicted to be late."""
WORSE_PART = 10
"""A slip that grows is told again when it has grown by this part of the job's age ..."""
WORSE_LEAST_MS = MINUTE
"""... and by this."""
ORDINARY = (Why.NOT_ENOUGH_FREE, Why.FRAGMENTED, Why.BEHIND_OTHERS)
"""Why a job waits that would not wait if it went first."""

News = tuple[Pledges, tuple[DeadlineNotice, ...]]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The terms on which deadlines are accepted; holds no memory."""

    margin_ppm: int
    """Part of the predicted work that is added for error, at least."""
    switch_ms: int = 0
    """What it takes to make room for a job and start it."""
    expected_service: ExpectedService | None = None
    """What the policy has learned, for jobs without an estimate."""
    sizes: Sizes = field(default=nominal_size)

    # -- each pass -------------------------------------------------------------------------------

    def follow(self, view: View, pledges: Pledges, now: int) -> News:
        """Look after what was accepted, and answer whoever is new."""
        if view.ended:
            pledges = _without_ended(pledges, view)
        if view.requeued:
            pledges = _without_changed(pledges, view)
        notices: list[DeadlineNotice] = []
        if pledges.accepted:
            pledges, notices = self._watched(view, pledges, now)
        new = _newcomers(view, pledges.judged)
        if new:
            pledges = replace(pledges, judged=new[-1].seq + 1)
        if view.requeued:
            new += _again(view, pledges, new)
        if new:
            asking = [each for each in new if each.job.deadline_ms is not None]
            if asking:
                pledges, answers = self._judged(view, pledges, asking, now)
                notices += answers
        return pledges, tuple(notices)

    def rank(self, pledges: Pledges, record: JobRecord, rank: Rank, now: int) -> Rank:
        """The policy's rank, overruled while the job has to hold its GPUs."""
        pledge = pledges.accepted.get(record.id)
        if pledge is None:
            return rank
        is_due, until = pledge.due(record, now)
        if is_due:
            level = LATE if pledge.is_late else DUE
            return Rank(level, pledge.deadline_ms, until_ms=until)
        if until is None or (rank.until_ms is not None and rank.until_ms <= until):
            return rank
        return rank._replace(until_ms=until)

    def wake(self, view: View, pledges: Pledges, now: int) -> int | None:
        """When to look again, should nothing happen before; ranks have ends of their own."""
        times: list[int] = []
        for job, pledge in pledges.accepted.items():
            record = view.jobs.get(job)
            if record is None:
                continue
            if not pledge.is_late:
                if not _is_enough(pledge, record, now):
                    return now + 1
                times.append(pledge.deadline_ms)
            if record.since_ms is not None:
                left = pledge.needs - record.work
                times.append(record.since_ms + ceil_div(left, record.speed_ppm))
            elif not pledge.is_late and record.phase not in ALLOCATED:
                start = pledge.latest_start(record)
                times += [] if start is None else [start + 1]
        return min((time for time in times if time > now), default=None)

    def explained(self, pledges: Pledges, record: JobRecord, reason: Reason, now: int) -> Reason:
        """The reason why it waits, with what was said of its deadline."""
        told = pledges.told(record.id)
        if told is None:
            return reason
        pledge = pledges.accepted.get(record.id)
        if pledge is not None and reason.why in ORDINARY:
            is_due, until = pledge.due(record, now)
            if not is_due:
                return replace(reason, why=Why.DEADLINE_LEAVES_TIME, told=told, until_ms=until)
        return replace(reason, told=told)

    # -- looking after accepted ones -------------------------------------------------------------

    def _watched(
        self, view: View, pledges: Pledges, now: int
    ) -> tuple[Pledges, list[DeadlineNotice]]:
        """Book again where what was booked is not enough any more."""
        accepted: dict[str, Pledge] = {}
        for job, pledge in pledges.accepted.items():
            record = view.jobs.get(job)
            if record is not None:
                accepted[job] = self._renewed(pledges, pledge, record, now)
        gpus = _gpus(view, [view.jobs[job] for job in accepted])
        is_same = all(pledges.gpus.get(kinds) == count for kinds, count in gpus.items())
        if is_same and all(_is_enough(accepted[job], view.jobs[job], now) for job in accepted):
            is_same = len(accepted) == len(pledges.accepted)
            if is_same and all(pledges.accepted[job] is pledge for job, pledge in accepted.items()):
                return pledges, []
            return replace(pledges, accepted=FrozenMap(accepted)), []
        found = booked(_claims(view, accepted, now), gpus, now)
        rebooked, notices = _rebooked(view, accepted, found, now)
        return replace(pledges, accepted=FrozenMap(rebooked), gpus=FrozenMap(gpus)), notices

    def _renewed(self, pledges: Pledges, pledge: Pledge, record: JobRecord, now: int) -> Pledge:
        """With what is known now of the work that it needs."""
        known, needs = record.estimate, pledge.needs
        estimate = pledge.estimate if known is None else known.work
        if estimate != pledge.estimate:
            needs = self._predictions.work(record, pledges.errors_ppm) or needs
        done = record.work_at(now)
        if done >= needs:
            needs = outlived(done)
        if needs == pledge.needs and estimate == pledge.estimate:
            return pledge
        return replace(pledge, needs=needs, estimate=estimate)

    @property
    def _predictions(self) -> Predictions:
        return Predictions(self.margin_ppm, self.expected_service)

    # -- answering new ones ----------------------------------------------------------------------

    def _judged(
        self, view: View, pledges: Pledges, asking: Sequence[JobRecord], now: int
    ) -> tuple[Pledges, list[DeadlineNotice]]:
        """Each in order of submission: accepted if all accepted ones and it can be in time."""
        accepted = dict(pledges.accepted)
        declined = dict(pledges.declined)
        gpus = _gpus(view, [*(view.jobs[job] for job in accepted), *asking])
        found = tidied(_claims(view, accepted, now), gpus, now)
        accepted, notices = _rebooked(view, accepted, found, now)
        for record in asking:
            answer = self._answer(view, pledges, record, found.bookings, now)
            if isinstance(answer, Pledge):
                accepted[record.id] = answer
                notices.append(answer.told)
                view.restate(record)
            else:
                declined[record.id] = answer
                notices.append(answer)
        kept = _gpus(view, [view.jobs[job] for job in accepted])
        return (
            replace(
                pledges,
                accepted=FrozenMap(accepted),
                declined=FrozenMap(declined),
                gpus=FrozenMap(kept),
            ),
            notices,
        )

    def _answer(
        self, view: View, pledges: Pledges, record: JobRecord, bookings: Bookings, now: int
    ) -> Pledge | DeadlineNotice:
        deadline = record.job.deadline_ms
        assert deadline is not None
        needs = self._predictions.work(record, pledges.errors_ppm)
        if needs is None:
            return DeadlineNotice(
                record.id, DeadlineOutcome.DECLINED, deadline, why=Decline.NO_ESTIMATE
            )
        ways = [self._way(view, record, needs, *size) for size in self.sizes(record)]
        ends = [bookings.earliest(want) for want, _ in ways]
        feasible = min((end[-1][1] for end in ends if end), default=None)
        for want, pace in ways:
            stretches = bookings.latest(want)
            if stretches is not None:
                bookings.book(want, stretches)
                return _pledge(record, needs, want, pace, stretches, feasible, now)
        why = Decline.TOO_LARGE if feasible is None else Decline.TOO_SOON
        return DeadlineNotice(
            record.id, DeadlineOutcome.DECLINED, deadline, feasible_ms=feasible, why=why
        )

    def _way(
        self, view: View, record: JobRecord, needs: int, count: int, speed_ppm: int
    ) -> tuple[Want, int]:
        """What it would take on so many GPUs, and its pace there."""
        kinds = view.occupancy.kinds_for(record.demand)
        pace = max(1, speed_ppm * type_speed(view, kinds) // NOMINAL)
        assert record.job.deadline_ms is not None
        need_ms = ceil_div(needs, pace)
        return Want(kinds, count, need_ms, self.switch_ms, record.job.deadline_ms), pace


def _newcomers(view: View, judged: int) -> list[JobRecord]:
    """Live jobs with this number of submission or a higher one, in that order."""
    found = []
    for record in view.newest_first():
        if record.seq < judged:
            break
        found.append(record)
    return found[::-1]


def _without_changed(pledges: Pledges, view: View) -> Pledges:
    """What was said of deadlines that have been changed holds no more."""
    accepted, declined = dict(pledges.accepted), dict(pledges.declined)
    for record in view.requeued:
        told = pledges.told(record.id)
        if told is not None and told.deadline_ms != record.job.deadline_ms:
            accepted.pop(record.id, None)
            declined.pop(record.id, None)
    return replace(pledges, accepted=FrozenMap(accepted), declined=FrozenMap(declined))


def _again(view: View, pledges: Pledges, new: Sequence[JobRecord]) -> list[JobRecord]:
    """Others that are to be judged: released, with a new deadline, and not answered yet."""
    known = {record.id for record in new}
    found = {
        record.id: record
        for record in view.requeued
        if record.id in view.jobs and record.id not in known and not pledges.told(record.id)
    }
    return sorted(found.values(), key=lambda record: record.seq)


def _pledge(
    record: JobRecord,
    needs: int,
    want: Want,
    pace: int,
    stretches: Stretches,
    feasible: int | None,
    now: int,
) -> Pledge:
    finish = stretches[-1][1]
    return Pledge(
        deadline_ms=want.deadline_ms,
        estimate=None if record.estimate is None else record.estimate.work,
        needs=needs,
        count=want.count,
        pace_ppm=pace,
        switch_ms=want.switch_ms,
        stretches=stretches,
        booked_ms=now,
        told=DeadlineNotice(
            record.id,
            DeadlineOutcome.ACCEPTED,
            want.deadline_ms,
            finish_ms=finish,
            feasible_ms=feasible,
        ),
    )


def _is_enough(pledge: Pledge, record: JobRecord, now: int) -> bool:
    """Whether what is booked for it will do."""
    is_there = record.phase in ALLOCATED
    room = room_after(pledge.stretches, now, pledge.switch_ms, is_there=is_there)
    return room >= pledge.need_ms(record, now)


def _claims(view: View, accepted: Mapping[str, Pledge], now: int) -> list[Claim]:
    found = []
    for job, pledge in accepted.items():
        record = view.jobs[job]
        kinds = view.occupancy.kinds_for(record.demand)
        found.append(Claim(record, pledge, pledge.want(record, kinds, now)))
    return found


def _gpus(view: View, records: Iterable[JobRecord]) -> dict[Kinds, int]:
    """GPUs on open nodes, for each set of types that one of these jobs may use."""
    space = view.occupancy
    sets = dict.fromkeys(space.kinds_for(record.demand) for record in records)
    by_type: dict[int, int] = {}
    for node in view.topology.nodes:
        if node.index not in space.closed:
            kind = space.node_type[node.index]
            by_type[kind] = by_type.get(kind, 0) + node.gpus
    return {kinds: sum(by_type.get(kind, 0) for kind in kinds) for kinds in sets}


def _rebooked(
    view: View, accepted: Mapping[str, Pledge], found: Booked, now: int
) -> tuple[dict[str, Pledge], list[DeadlineNotice]]:
    """The pledges as they are booked now, and what their owners should know of it."""
    pledges: dict[str, Pledge] = {}
    notices: list[DeadlineNotice] = []
    for job, pledge in accepted.items():
        stretches, is_late = found.stretches[job], job in found.late
        new = pledge
        if stretches != pledge.stretches or is_late != pledge.is_late:
            new = replace(pledge, stretches=stretches, booked_ms=now, is_late=is_late)
            view.restate(view.jobs[job])
        notice = _news(pledge, new, view.jobs[job])
        if notice is not None:
            new = replace(new, told=notice)
            notices.append(notice)
        pledges[job] = new
    return pledges, notices


def _news(old: Pledge, new: Pledge, record: JobRecord) -> DeadlineNotice | None:
    """What there is to tell: it slips, slips further, or is in time again."""
    told = old.told
    if new.is_late != old.is_late:
        what = DeadlineOutcome.SLIPPED if new.is_late else DeadlineOutcome.RECOVERED
        return replace(told, what=what, finish_ms=new.finish_ms, earlier_ms=old.finish_ms)
    if not new.is_late or new.finish_ms is None or told.finish_ms is None:
        return None
    grown = new.finish_ms - told.finish_ms
    age = told.finish_ms - record.job.submit_ms
    if grown < max(WORSE_LEAST_MS, age // WORSE_PART):
        return None
    return replace(told, finish_ms=new.finish_ms, earlier_ms=told.finish_ms)


def _without_ended(pledges: Pledges, view: View) -> Pledges:
    errors = with_errors(pledges.errors_ppm, view.ended)
    gone = [record.id for record in view.ended]
    accepted, declined = pledges.accepted, pledges.declined
    if any(job in accepted for job in gone):
        accepted = accepted.only(view.jobs)
    if any(job in declined for job in gone):
        declined = declined.only(view.jobs)
    return replace(pledges, accepted=accepted, declined=declined, errors_ppm=errors)
