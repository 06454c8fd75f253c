"""Books all accepted deadlines together so that as few as possible are missed.

Two plans are tried. The first keeps all bookings that still suffice and moves only the others. If it leaves a
job late, the second books all jobs again, latest deadline first. A job that cannot meet its deadline gets the
earliest capacity that the others leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.core.state import JobRecord
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import (
    CapacityCalendar,
    CapacityRequest,
    Kinds,
    Stretches,
    keep_needed,
)
from trainmaster.policies.trainmaster.deadlines.commitments import Commitment


@dataclass(frozen=True, slots=True)
class DeadlineClaim:
    """An accepted job with the capacity that it needs now."""

    record: JobRecord
    commitment: Commitment
    request: CapacityRequest

    @property
    def order(self) -> tuple[int, int]:
        """The earlier deadline first."""
        return self.commitment.deadline_ms, self.record.seq


@dataclass(slots=True)
class BookingPlan:
    """Bookings for all claims, and which of them are late."""

    calendar: CapacityCalendar
    stretches: dict[str, Stretches]
    late: set[str]

    def take(self, claim: DeadlineClaim, stretches: Stretches) -> None:
        self.calendar.book(claim.request, stretches)
        self.stretches[claim.record.id] = stretches

    def book_late(self, claims: Sequence[DeadlineClaim]) -> None:
        """Book the earliest capacity left; no stretches if there are never enough GPUs."""
        for claim in sorted(claims, key=lambda each: each.order):
            self.late.add(claim.record.id)
            self.take(claim, self.calendar.earliest(claim.request) or ())


def plan_bookings(
    claims: Sequence[DeadlineClaim], gpus: Mapping[Kinds, int], now: int
) -> BookingPlan:
    """The plan with fewer late jobs; on a tie, the one that keeps current bookings."""
    first = _keep_bookings(claims, gpus, now)
    if not first.late:
        return first
    second = _book_all_again(claims, gpus, now)
    return second if len(second.late) < len(first.late) else first


def compact_bookings(
    claims: Sequence[DeadlineClaim], gpus: Mapping[Kinds, int], now: int
) -> BookingPlan:
    """Book as late as possible to make room for new deadlines, unless that makes a job late."""
    afresh = _book_all_again(claims, gpus, now)
    return afresh if not afresh.late else plan_bookings(claims, gpus, now)


def _keep_bookings(
    claims: Sequence[DeadlineClaim], gpus: Mapping[Kinds, int], now: int
) -> BookingPlan:
    found = BookingPlan(CapacityCalendar(now, gpus), {}, set())
    others = []
    for claim in sorted(claims, key=lambda each: each.order):
        commitment, request = claim.commitment, claim.request
        stretches = None if commitment.is_late else keep_needed(commitment.stretches, request, now)
        if stretches is not None and found.calendar.has_room(request, stretches):
            found.take(claim, stretches)
        else:
            others.append(claim)
    return _in_time_or_late(found, others)


def _book_all_again(
    claims: Sequence[DeadlineClaim], gpus: Mapping[Kinds, int], now: int
) -> BookingPlan:
    found = BookingPlan(CapacityCalendar(now, gpus), {}, set())
    return _in_time_or_late(found, sorted(claims, key=lambda each: each.order, reverse=True))


def _in_time_or_late(found: BookingPlan, claims: Sequence[DeadlineClaim]) -> BookingPlan:
    """Book one claim after another; claims that do not fit before their deadline are booked last."""
    late = []
    for claim in claims:
        stretches = found.calendar.latest(claim.request)
        if stretches is None:
            late.append(claim)
        else:
            found.take(claim, stretches)
    found.book_late(late)
    return found
