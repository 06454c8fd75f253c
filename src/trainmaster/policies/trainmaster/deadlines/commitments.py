"""Answers given about deadlines, and the bookings behind them; part of the memo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import ceil_div
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import (
    CapacityRequest,
    Kinds,
    Stretches,
    clip,
    latest_start,
)


def _upgraded(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Reads a commitment of an older store, where the notice had another name."""
    return {"notice" if name == "told" else name: value for name, value in body.items()}


@stored_as("deadlines.Commitment", _upgraded)
@dataclass(frozen=True, slots=True)
class Commitment:
    """An accepted deadline and its bookings."""

    deadline_ms: int
    estimate: int | None
    """The job's estimate of work when booked; None if learned service was used."""
    needs: int
    """Total work expected, with the safety margin: ms x parts per million."""
    count: int
    """Number of GPUs booked."""
    pace_ppm: int
    """Its speed on them."""
    switch_ms: int
    stretches: Stretches
    booked_ms: int
    """When they were booked."""
    notice: DeadlineNotice
    """What its owner was told last."""
    is_late: bool = False
    """Whether it is predicted to miss its deadline."""

    @property
    def finish_ms(self) -> int | None:
        """End of its bookings; None if there are too few GPUs to book any."""
        return self.stretches[-1][1] if self.stretches else None

    def need_ms(self, record: JobRecord, at: int) -> int:
        """Time on its GPUs still needed at `at`; at its current speed if that is lower than booked."""
        left = max(1, self.needs - record.work_at(at))
        pace = self.pace_ppm
        if record.since_ms is not None and record.speed_ppm < pace:
            pace = record.speed_ppm
        return ceil_div(left, pace)

    def request(self, record: JobRecord, kinds: Kinds, now: int) -> CapacityRequest:
        """The request for the capacity that it still needs."""
        return CapacityRequest(
            kinds=kinds,
            count=self.count,
            need_ms=self.need_ms(record, now),
            switch_ms=self.switch_ms,
            deadline_ms=self.deadline_ms,
            is_there=record.phase in ALLOCATED,
        )

    def latest_start(self, record: JobRecord) -> int | None:
        """The latest start that still meets the deadline; None if the job should have started already.

        For a run in progress this is computed as of its start or booking. While it continues at that
        speed it only gets ahead of its bookings, so a job that could wait then can also wait later.
        """
        at = self.booked_ms if record.since_ms is None else max(record.since_ms, self.booked_ms)
        return latest_start(self.stretches, self.need_ms(record, at), self.switch_ms)

    def due(self, record: JobRecord, now: int) -> tuple[bool, int | None]:
        """Whether the job must hold its GPUs now, and until when this holds; None: as long as it runs."""
        start = self.latest_start(record)
        if start is not None:
            if record.since_ms is None and now < start:
                return False, start
            if record.since_ms is not None and max(record.since_ms, self.booked_ms) < start:
                return False, None
        ahead = clip(self.stretches, now)
        if not ahead:
            return False, None
        begin, end = ahead[0]
        if begin > now:
            return False, begin
        return True, end if len(ahead) > 1 else None


@stored_as("deadlines.Commitments")
@dataclass(frozen=True, slots=True)
class Commitments:
    """All answers about deadlines of live jobs, and errors of past predictions."""

    judged: int = 0
    """Jobs with a lower submission number have been answered."""
    accepted: FrozenMap[str, Commitment] = field(default_factory=FrozenMap)
    declined: FrozenMap[str, DeadlineNotice] = field(default_factory=FrozenMap)
    gpus: FrozenMap[Kinds, int] = field(default_factory=FrozenMap)
    """GPUs by set of types when the accepted deadlines were booked."""
    errors_ppm: tuple[int, ...] = ()
    """Measured over predicted run times of the jobs that ended last, oldest first."""

    def notice_of(self, job: str) -> DeadlineNotice | None:
        """What the owner of a live job was told last."""
        commitment = self.accepted.get(job)
        return self.declined.get(job) if commitment is None else commitment.notice


NO_COMMITMENTS = Commitments()
"""Before the first deadline."""
