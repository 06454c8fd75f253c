"""Gandiva (Xiao et al., OSDI'18): early feedback and busy GPUs by time-slices, packing and migration.

A job goes to a server that hosts jobs of its size (affinity) with GPUs free, else to an empty one, else
to one of another affinity with GPUs free, else it joins the least loaded server of its affinity, which is
then over-subscribed: its jobs take turns of `quantum_s`. Without such a server it queues. While jobs
take turns, jobs that leave GPUs idle are packed in pairs on trial and separated if that does more harm than
good (trial_packing.py); departures trigger migrations that improve locality (migration.py); jobs that declare
a range of sizes grow into idle GPUs of their servers, and shrink to nominal size as soon as a job waits.

Deviations. Quanta end at whole multiples of `quantum_s` in the whole cluster, so that gangs on several
servers can take turns; a job that joins an over-subscribed server gets its first turn then. A server that has
become empty has no affinity. Pairs are of equal size, on one server, of jobs whose memory and
utilisation are known; packing is by turns of the driver (`time`), not MPS. Verdicts compare speeds relative
to alone, as the authors' rule does for equal jobs. Jobs for parts of GPUs run where they fit and take no
turns. A starving job (`starve_after_s`) may over-subscribe any server, at once (starvation.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.config.options import choice, option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.mechanisms.resize import grow_into_idle, shrink_to_nominal
from trainmaster.mechanisms.unmeasured_jobs import with_unmeasured
from trainmaster.model.codec import stored_as
from trainmaster.model.packing_score import PackingScore
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.reasons import Reason
from trainmaster.model.units import ceil_div, to_ms
from trainmaster.policies.gandiva.affinity import Home
from trainmaster.policies.gandiva.migration import REST_QUANTA, Migration, Move
from trainmaster.policies.gandiva.server_index import ServerIndex, is_measured, takes_turns
from trainmaster.policies.gandiva.starvation import StarvingJobs
from trainmaster.policies.gandiva.time_slicing import TimeSlicing, measured_at
from trainmaster.policies.gandiva.trial_packing import (
    MODEL,
    Packed,
    Pair,
    TrialPacking,
    packing_scores,
)

SWITCH = ("on", "off")


@dataclass(frozen=True, slots=True)
class GandivaOptions(PreemptiveOptions):
    quantum_s: float = option(
        60.0, positive_seconds, "length of a turn on an over-subscribed server, in seconds"
    )
    packing: str = option(
        "on", choice(*SWITCH), "try pairs of jobs on the same GPUs while jobs wait"
    )
    migration: str = option("on", choice(*SWITCH), "migrate jobs when others have ended")
    grow: str = option(
        "on", choice(*SWITCH), "let elastic jobs grow into idle GPUs of their servers"
    )
    trial_s: float = option(
        60.0, positive_seconds, "how long a pair or a move is measured, in seconds"
    )


@stored_as("gandiva.Memo")
@dataclass(frozen=True, slots=True)
class GandivaMemo:
    """What Gandiva remembers."""

    turn_end_ms: int | None = None
    """When the present quantum ends; None while no job waits for a turn."""
    homes: FrozenMap[str, Home] = field(default_factory=FrozenMap)
    """Where suspended jobs ran."""
    pairs: FrozenMap[Pair, Packed] = field(default_factory=FrozenMap)
    refuted: frozenset[Pair] = frozenset()
    alone: FrozenMap[str, int] = field(default_factory=FrozenMap)
    moves: FrozenMap[str, Move] = field(default_factory=FrozenMap)
    keeps: bool = False
    """Whether GPUs are kept for a starving job until others may yield."""


class Gandiva(BasePolicy[GandivaOptions, GandivaMemo]):
    name = "gandiva"
    options_type = GandivaOptions
    memo_type = GandivaMemo

    def __init__(self, options: GandivaOptions) -> None:
        super().__init__(options)
        self._quantum = to_ms(options.quantum_s)
        self._trial = to_ms(options.trial_s)
        self._migrates = options.migration == "on"
        self._index: ServerIndex | None = None

    def forget(self) -> None:
        super().forget()
        self._index = None

    def plan(self, view: View, memo: GandivaMemo, now: int) -> Plan[GandivaMemo]:
        index, draft = self._indexed(view, memo, now), Draft(view)
        least_turn = max(1, self._quantum // 2)
        slicing = TimeSlicing(draft, index, self.guards, now, least_turn, self._migrates)
        packing = TrialPacking(slicing, self._trial, memo.pairs, memo.refuted, memo.alone)
        migration = Migration(slicing, self._trial, REST_QUANTA * self._quantum, memo.moves)
        starving = StarvingJobs(slicing)
        is_done = self._decide(slicing, packing, migration, starving, memo)
        is_busy = bool(index.holding) or not draft.is_empty()
        has_turns = is_busy and (bool(slicing.homes) or slicing.awaits_turn())
        turn_end = self._turn_end(slicing, now) if has_turns else None
        index.drop_assumptions()
        jobs = view.jobs
        later = GandivaMemo(
            turn_end if is_done else memo.turn_end_ms,
            _homes(memo.homes, slicing.homes, jobs),
            FrozenMap(packing.pairs),
            frozenset(pair for pair in packing.refuted if _is_alive(jobs, pair)),
            FrozenMap({job: speed for job, speed in packing.alone.items() if job in jobs}),
            FrozenMap(migration.moves),
            starving.has_kept,
        )
        wake_at = self._wake_at(view, starving, later, now) if is_done else now + 1
        return draft.plan(later, wake_at)

    def explain(self, view: View, memo: GandivaMemo, record: JobRecord, now: int) -> Reason:
        """Where its memory or utilisation, or theirs who hold the GPUs, is not measured: that, too."""
        reason = super().explain(view, memo, record, now)
        if self.options.packing == "off":
            return reason
        return with_unmeasured(view, record, reason, takes_turns, is_measured)

    def _indexed(self, view: View, memo: GandivaMemo, now: int) -> ServerIndex:
        index = self._index
        if index is None or not index.keep_up(view, memo.homes, now):
            index = self._index = ServerIndex(view, memo.homes, self.guards, self._quantum, now)
        return index

    def _decide(
        self,
        slicing: TimeSlicing,
        packing: TrialPacking,
        migration: Migration,
        starving: StarvingJobs,
        memo: GandivaMemo,
    ) -> bool:
        """Whether every job has had the turn that is due."""
        view, draft, index = slicing.view, slicing.draft, slicing.index
        is_end = memo.turn_end_ms is not None and slicing.now >= memo.turn_end_ms
        has_shrunk, is_done = False, True
        if view.draining:
            evacuate(view, draft, self.placer)
        packing.judge()
        migration.judge()
        if index.line.has_waiting():
            has_shrunk = shrink_to_nominal(draft, index.elastic_runs(draft))
            starving.fill()
            if is_end and self.options.packing == "on":
                packing.try_pairs()
                starving.fill()
            if self._migrates and not has_shrunk:  # moves come before GPUs are given back
                migration.make_room(for_all=is_end or bool(view.ended))
            if memo.turn_end_ms is not None and is_end:
                is_done = slicing.rotate(memo.turn_end_ms)
                starving.fill()
        if self._migrates and view.ended and not has_shrunk:
            migration.improve_locality()
        may_spread = (packing.pairs or index.elastic) and not has_shrunk
        if may_spread and slicing.has_served_everyone():
            packing.separate_if_idle()
            # Not in a pass that takes GPUs from others: those are not idle before they have been left.
            is_taking = any(draft.is_evicted(record) for record in index.holding.values())
            if self.options.grow == "on" and draft.budget is None and not is_taking:
                grow_into_idle(draft, index.elastic_runs(draft))
        return is_done

    def _turn_end(self, slicing: TimeSlicing, now: int) -> int:
        """The end of the quantum; where switching takes time, of the next one in which a run may yield."""
        quantum, end = self._quantum, (now // self._quantum + 1) * self._quantum
        tries_pairs = self.options.packing == "on" and len(slicing.index.packable) > 1
        if tries_pairs or not slicing.view.switch_ms:
            return end
        yields_at = slicing.next_yield()
        return end if yields_at is None else max(end, ceil_div(yields_at, quantum) * quantum)

    def _wake_at(
        self, view: View, starving: StarvingJobs, memo: GandivaMemo, now: int
    ) -> int | None:
        due = [self._judged_at(view, memo, now), memo.turn_end_ms, starving.again_at]
        if self.guards.are_on:
            due.append(starving.slicing.index.line.next_expiry())
        return min((time for time in due if time is not None and time > now), default=None)

    def wake(self, view: View, memo: GandivaMemo, now: int) -> int | None:
        """When a pair or a move can be judged; at once where a starving job waits for one that began."""
        return now + 1 if memo.keeps else self._judged_at(view, memo, now)

    def packing_scores(
        self, view: View, memo: GandivaMemo, record: JobRecord, now: int
    ) -> tuple[PackingScore, ...]:
        return packing_scores(view.jobs, memo.pairs.values(), memo.refuted, record)

    def _judged_at(self, view: View, memo: GandivaMemo, now: int) -> int | None:
        """When the next pair or move will have been measured."""
        jobs, trial = view.jobs, self._trial
        due = [
            measured_at((jobs.get(pair.guest), jobs.get(pair.host)), trial)
            for pair in memo.pairs.values()
            if not pair.is_kept
        ]
        due += [
            measured_at((jobs.get(job),), trial, Sharing.EXCLUSIVE)
            for job, move in memo.moves.items()
            if not move.is_judged
        ]
        return min((time for time in due if time is not None and time > now), default=None)


def _homes(
    known: FrozenMap[str, Home], new: Mapping[str, Home], jobs: Mapping[str, JobRecord]
) -> FrozenMap[str, Home]:
    """Where suspended jobs ran; without jobs that have ended or run again."""
    waiting = {job for job in known if job in jobs and jobs[job].placement is None}
    if not new and len(waiting) == len(known):
        return known
    return FrozenMap({job: home for job, home in known.items() if job in waiting} | dict(new))


def _is_alive(jobs: Mapping[str, JobRecord], pair: Pair) -> bool:
    """Whether a verdict can still matter: both jobs are live, or it is about models."""
    return all(name in jobs or name.startswith(MODEL) for name in pair)
