"""Two guards of every preemptive policy: no job starves, and no run is preempted too soon.

A job that has waited `starve_after_s` goes before all others but young runs, and keeps that rank
until it has run as long. A run younger than `min_run_s`, or than `SWITCHES_PER_RUN` times what a switch was
seen to cost when it started, is not preempted: so at most one part in eleven of the GPUs' time goes into
switching, and where switching is free nothing is held back. A policy with a quantum preempts at the ends
of quanta, doubled until they are long enough for that, so that the GPUs of a gang can be taken together.

Both are ranks, so policies that order jobs by rank have them at once; a policy that does not asks
`is_starving` and `may_preempt`.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import at_least_zero, option
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import JobRecord
from trainmaster.model.plan import Rank
from trainmaster.model.units import ceil_div, to_ms

SWITCHES_PER_RUN = 10
"""A run lasts at least this many times the cost of a switch, unless it ends by itself."""
SWITCH_SLACK = 2
"""Times that cost: a run that started no later after the end of a quantum began with the next one."""
YOUNG = -(1 << 81)
"""Level of a run that may not be preempted yet: before all jobs that wait."""
STARVING = -(1 << 80)
"""Level of a job that has waited too long: before all but young runs."""
MIN_RUN, SWITCH_COST = "min_run_s", "what a switch costs"
"""The rules that protect a run, as people know them: the name of the option, or in words."""


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
    """The two options and the quantum in ms; 0 = off, none."""

    starve_after_ms: int = 0
    min_run_ms: int = 0
    switches_per_run: int = 0
    quantum_ms: int = 0

    @classmethod
    def of(cls, options: object, switches_per_run: int = SWITCHES_PER_RUN) -> PreemptionGuards:
        """The guards of the policy's options; none if it has no such options."""
        if not isinstance(options, PreemptiveOptions):
            return cls()
        return cls(
            to_ms(options.starve_after_s),
            to_ms(options.min_run_s),
            switches_per_run,
            to_ms(getattr(options, "quantum_s", 0.0)),
        )

    @property
    def are_on(self) -> bool:
        """Whether the user asked for one of them."""
        return bool(self.starve_after_ms or self.min_run_ms)

    def hold(self, switch_ms: int) -> bool:
        """Whether one of them may hold for a job, if a switch costs that much."""
        return self.are_on or self.switches_per_run * switch_ms > 0

    def least_run_ms(self, switch_ms: int) -> int:
        """How long a run lasts before it may be preempted, if a switch costs that much."""
        return max(self.min_run_ms, self.switches_per_run * switch_ms)

    def may_preempt(self, record: JobRecord, now: int) -> bool:
        """Whether the policy may take its GPUs: its run is neither protected nor young."""
        return not record.is_protected and not self.is_young(record, now)

    def is_young(self, record: JobRecord, now: int) -> bool:
        """Whether it has not had its GPUs for long enough to be preempted."""
        if not self.least_run_ms(record.switch_ms) or record.phase not in ALLOCATED:
            return False
        until = self.young_until(record)
        return until is None or now < until

    def young_until(self, record: JobRecord) -> int | None:
        """When its current run may be preempted; unknown until it starts."""
        since, cost = record.run_since_ms, record.switch_ms
        if since is None:
            return None
        until = since + self.least_run_ms(cost)
        if not (self.quantum_ms and self.switches_per_run and cost):
            return until
        quantum = self._long_enough(cost)
        return max(until, ceil_div(since - SWITCH_SLACK * cost, quantum) * quantum + quantum)

    def rule(self, record: JobRecord) -> str:
        """Which of the two protects a run for longer."""
        by_cost = self.switches_per_run * record.switch_ms
        return SWITCH_COST if by_cost > self.min_run_ms else MIN_RUN

    def _long_enough(self, cost: int) -> int:
        """The quantum, doubled as often as it takes to be worth a switch."""
        quantum, least = self.quantum_ms, (self.switches_per_run + SWITCH_SLACK) * cost
        return quantum << (ceil_div(least, quantum) - 1).bit_length()

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
        if self.is_young(record, now):
            return Rank(YOUNG, record.seq, until_ms=self.young_until(record))
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
            due = [since + self.starve_after_ms] if self.starve_after_ms else []
            due += [until for until in [self.young_until(record)] if until is not None]
        return min((time for time in due if time > now), default=None)


NO_GUARDS = PreemptionGuards()
