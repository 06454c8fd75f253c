"""Two guards of every preemptive policy: no job starves, and no run is preempted too soon.

A job that has waited `starve_after_s` goes before all others but protected runs, and keeps that rank
until it has run as long. A run younger than `min_run_s` is not preempted. Both are ranks, so policies
that order jobs by rank have them at once; a policy that does not asks `is_starving` and `is_protected`.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import at_least_zero, option
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import JobRecord
from trainmaster.model.plan import Rank
from trainmaster.model.units import to_ms

PROTECTED = -(1 << 81)
"""Level of a run that may not be preempted yet: before all jobs that wait."""
STARVING = -(1 << 80)
"""Level of a job that has waited too long: before all but protected runs."""
MIN_RUN = "min_run_s"
"""The rule that protects a run, as people know it: the name of the option."""


@dataclass(frozen=True, slots=True)
class PreemptiveOptions:
    """Options of every preemptive policy."""

    starve_after_s: float = option(
        0.0, at_least_zero, "seconds of waiting after which a job goes first; 0: off"
    )
    min_run_s: float = option(
        0.0, at_least_zero, "seconds a run must have run before it may be preempted"
    )


@dataclass(frozen=True, slots=True)
class PreemptionGuards:
    """The two options in ms; 0 = off."""

    starve_after_ms: int = 0
    min_run_ms: int = 0

    @classmethod
    def of(cls, options: object) -> PreemptionGuards:
        """The guards of the policy's options; none if it has no such options."""
        if not isinstance(options, PreemptiveOptions):
            return cls()
        return cls(to_ms(options.starve_after_s), to_ms(options.min_run_s))

    @property
    def are_on(self) -> bool:
        return bool(self.starve_after_ms or self.min_run_ms)

    def is_protected(self, record: JobRecord, now: int) -> bool:
        """Whether it holds GPUs and must not be preempted, or not yet."""
        return record.is_spared or self._is_young(record, now)

    def _is_young(self, record: JobRecord, now: int) -> bool:
        if not self.min_run_ms or record.phase not in ALLOCATED:
            return False
        return record.run_since_ms is None or now < record.run_since_ms + self.min_run_ms

    def is_starving(self, record: JobRecord, now: int) -> bool:
        """Whether it has waited too long, or did before this run and has not run as long yet."""
        if not self.starve_after_ms:
            return False
        if record.run_since_ms is None:
            return now - record.waiting_since_ms >= self.starve_after_ms
        waited = record.run_since_ms - record.waiting_since_ms
        return waited >= self.starve_after_ms and now < record.run_since_ms + self.starve_after_ms

    def rank(self, record: JobRecord, rank: Rank, now: int) -> Rank:
        """The policy's rank, overruled where a guard holds, and valid until one may begin to."""
        if self._is_young(record, now):
            return Rank(PROTECTED, record.seq, until_ms=self._until(record, self.min_run_ms))
        if self.is_starving(record, now):
            until = self._until(record, self.starve_after_ms)
            return Rank(STARVING, record.waiting_since_ms, until_ms=until)
        if self.starve_after_ms and record.run_since_ms is None:
            due = record.waiting_since_ms + self.starve_after_ms
            until = due if rank.until_ms is None else min(due, rank.until_ms)
            return rank._replace(until_ms=until)
        return rank

    def _until(self, record: JobRecord, length_ms: int) -> int | None:
        """When the current run will have lasted that long; unknown until it starts."""
        return None if record.run_since_ms is None else record.run_since_ms + length_ms

    def next_due(self, record: JobRecord, now: int) -> int | None:
        """When a guard of this job begins or ends to hold, for policies without ranks."""
        since = record.run_since_ms
        if since is None:
            due = [record.waiting_since_ms + self.starve_after_ms] if self.starve_after_ms else []
        else:
            due = [since + length for length in (self.min_run_ms, self.starve_after_ms) if length]
        return min((time for time in due if time > now), default=None)


NO_GUARDS = PreemptionGuards()
