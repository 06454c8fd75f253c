"""Booking all accepted deadlines together, so that as few as possible are missed.

Two ways are tried: keep what is booked as far as it still does and move only the others; or book all
afresh, the latest deadline first. The second is tried where the first leaves a job late. A job that
cannot be in time gets the earliest GPUs that the others leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.core.state import JobRecord
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import (
    Bookings,
    Kinds,
    Stretches,
    Want,
    kept,
)
from trainmaster.policies.trainmaster.deadlines.commitments import Commitment


@dataclass(frozen=True, slots=True)
class Claim:
    """An accepted job with what it needs now."""

    record: JobRecord
    commitment: Commitment
    want: Want

    @property
    def order(self) -> tuple[int, int]:
        """The earlier deadline first."""
        return self.commitment.deadline_ms, self.record.seq


@dataclass(slots=True)
class Booked:
    """A way to serve all claims."""

    bookings: Bookings
    stretches: dict[str, Stretches]
    late: set[str]

    def take(self, claim: Claim, stretches: Stretches) -> None:
        self.bookings.book(claim.want, stretches)
        self.stretches[claim.record.id] = stretches

    def serve_late(self, claims: Sequence[Claim]) -> None:
        """As early as the others leave room; no stretches where there are too few GPUs at all."""
        for claim in sorted(claims, key=lambda each: each.order):
            self.late.add(claim.record.id)
            self.take(claim, self.bookings.earliest(claim.want) or ())


def booked(claims: Sequence[Claim], gpus: Mapping[Kinds, int], now: int) -> Booked:
    """The better of the two ways; the first where they are alike."""
    first = _keeping(claims, gpus, now)
    if not first.late:
        return first
    second = _afresh(claims, gpus, now)
    return second if len(second.late) < len(first.late) else first


def tidied(claims: Sequence[Claim], gpus: Mapping[Kinds, int], now: int) -> Booked:
    """As late as possible, to make room before a newcomer is judged; as it is where that harms."""
    afresh = _afresh(claims, gpus, now)
    return afresh if not afresh.late else booked(claims, gpus, now)


def _keeping(claims: Sequence[Claim], gpus: Mapping[Kinds, int], now: int) -> Booked:
    found = Booked(Bookings(now, gpus), {}, set())
    others = []
    for claim in sorted(claims, key=lambda each: each.order):
        commitment, want = claim.commitment, claim.want
        stretches = None if commitment.is_late else kept(commitment.stretches, want, now)
        if stretches is not None and found.bookings.has_room(want, stretches):
            found.take(claim, stretches)
        else:
            others.append(claim)
    return _in_time_or_late(found, others)


def _afresh(claims: Sequence[Claim], gpus: Mapping[Kinds, int], now: int) -> Booked:
    found = Booked(Bookings(now, gpus), {}, set())
    return _in_time_or_late(found, sorted(claims, key=lambda each: each.order, reverse=True))


def _in_time_or_late(found: Booked, claims: Sequence[Claim]) -> Booked:
    """One after the other; a job that finds no room before its deadline comes after all the others."""
    late = []
    for claim in claims:
        stretches = found.bookings.latest(claim.want)
        if stretches is None:
            late.append(claim)
        else:
            found.take(claim, stretches)
    found.serve_late(late)
    return found
