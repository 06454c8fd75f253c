"""Gandiva (Xiao et al., OSDI'18): early feedback and busy GPUs by time-slices, packing and migration.

A job goes to a server that hosts jobs of its size (affinity) with GPUs free, else to an empty one, else
to one of another affinity with GPUs free, else it joins the least loaded server of its affinity, which is
then over-subscribed: its jobs take turns of `quantum_s`. Without such a server it queues. While jobs
take turns, those that leave GPUs idle are packed in pairs on trial and parted where they do more harm than
good (trial_packing.py); departures set off moves that mend locality (migration.py); jobs that declare it grow
into idle GPUs of their servers and shrink at once when somebody waits.

Deviations. Quanta end at whole multiples of `quantum_s` in the whole cluster, so that gangs on several
servers can take turns; who joins an over-subscribed server gets his first turn then. A server that has
become empty has no affinity. Pairs are of equal size, on one server, of jobs whose memory and
utilisation are known; packing is by turns of the driver (`time`), not MPS. Verdicts compare speeds relative
to alone, as the authors' rule does for equal jobs. Jobs for parts of GPUs run where they fit and take no
turns. A starving job (`starve_after_s`) may over-subscribe any server, at once (starvation.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainmaster.config.options import choice, option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.mechanisms.starvation import PreemptiveOptions
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.units import to_ms
from trainmaster.placement.affinity import Home
from trainmaster.policies.gandiva.grow_shrink import grow, shrink
from trainmaster.policies.gandiva.migration import REST_QUANTA, Migration, Move, judgements
from trainmaster.policies.gandiva.server_index import ServerIndex
from trainmaster.policies.gandiva.starvation import StarvingJobs
from trainmaster.policies.gandiva.time_slicing import TimeSlicing
from trainmaster.policies.gandiva.trial_packing import MODEL, Packed, Pair, TrialPacking, trial_ends

SWITCH = ("on", "off")


@dataclass(frozen=True, slots=True)
class GandivaOptions(PreemptiveOptions):
    quantum_s: float = option(60.0, positive_seconds, "seconds of a turn on a crowded server")
    packing: str = option("on", choice(*SWITCH), "try two jobs on one GPU while others wait")
    migration: str = option("on", choice(*SWITCH), "move jobs when others have left")
    grow: str = option("on", choice(*SWITCH), "elastic jobs grow into idle GPUs of their servers")
    trial_s: float = option(60.0, positive_seconds, "seconds that a pair or a move is measured for")


@stored_as("gandiva.Memo")
@dataclass(frozen=True, slots=True)
class Memo:
    """What Gandiva remembers."""

    turn_end_ms: int | None = None
    """When the present quantum ends; None while nobody waits for a turn."""
    homes: FrozenMap[str, Home] = field(default_factory=FrozenMap)
    """Where suspended jobs ran."""
    pairs: FrozenMap[Pair, Packed] = field(default_factory=FrozenMap)
    refuted: frozenset[Pair] = frozenset()
    alone: FrozenMap[str, int] = field(default_factory=FrozenMap)
    moves: FrozenMap[str, Move] = field(default_factory=FrozenMap)
    keeps: bool = False
    """Whether GPUs are kept for a starving job until others may yield."""


class Gandiva(BasePolicy[GandivaOptions, Memo]):
    name = "gandiva"
    options_type = GandivaOptions

    def __init__(self, options: GandivaOptions) -> None:
        super().__init__(options)
        self._quantum = to_ms(options.quantum_s)
        self._trial = to_ms(options.trial_s)
        self._packs = options.packing == "on"
        self._migrates = options.migration == "on"
        self._grows = options.grow == "on"
        self._roster: ServerIndex | None = None

    def first_memo(self) -> Memo:
        return Memo()

    def forget(self) -> None:
        super().forget()
        self._roster = None

    def plan(self, view: View, memo: Memo, now: int) -> Plan[Memo]:
        roster, draft = self._rostered(view, memo, now), Draft(view)
        least = max(1, self._quantum // 2)
        shift = TimeSlicing(view, draft, roster, self.guards, now, least, self._migrates)
        known = dict(memo.pairs), set(memo.refuted), dict(memo.alone)
        packing = TrialPacking(view, draft, roster, shift, self._trial, now, *known)
        shift.partner, shift.start_pair = packing.partner, packing.start_pair
        rest = REST_QUANTA * self._quantum
        moving = Migration(view, draft, roster, shift, self._trial, rest, now, dict(memo.moves))
        starving = StarvingJobs(shift)
        is_done = self._decide(shift, packing, moving, starving, memo)
        is_busy = bool(roster.holding) or not draft.is_empty()
        has_turns = is_busy and (bool(shift.homes) or shift.awaits_turn())
        turn_end = (now // self._quantum + 1) * self._quantum if has_turns else None
        starving.give_back()
        roster.take_back()
        if not is_done:
            turn_end = memo.turn_end_ms
        later = self._remembered(memo, shift, packing, moving, turn_end)
        later = replace(later, keeps=starving.has_kept)
        wake_at = self._wake_at(view, starving, later, now) if is_done else now + 1
        return draft.plan(later, wake_at)

    def _rostered(self, view: View, memo: Memo, now: int) -> ServerIndex:
        roster = self._roster
        if roster is None or not roster.keep_up(view, memo.homes, now):
            roster = self._roster = ServerIndex(view, memo.homes, self.guards, self._quantum, now)
        return roster

    def _decide(
        self,
        shift: TimeSlicing,
        packing: TrialPacking,
        moving: Migration,
        starving: StarvingJobs,
        memo: Memo,
    ) -> bool:
        """Whether everybody has had the turn that is due."""
        view, draft, roster = shift.view, shift.draft, shift.roster
        is_end = memo.turn_end_ms is not None and shift.now >= memo.turn_end_ms
        has_shrunk, is_done = False, True
        if view.draining:
            evacuate(view, draft, self.placer)
        if packing.pairs:
            packing.judge()
        if moving.moves:
            moving.judge()
        if roster.line.has_waiting():
            has_shrunk = shrink(shift)
            starving.fill()
            if is_end and self._packs:
                packing.try_pairs()
                starving.fill()
            if self._migrates and not has_shrunk:  # moves come before GPUs are given back
                moving.make_room(for_all=is_end or bool(view.ended))
            if memo.turn_end_ms is not None and is_end:
                is_done = shift.rotate(memo.turn_end_ms)
                starving.fill()
        if self._migrates and view.ended and not has_shrunk:
            moving.tidy()
        may_spread = (packing.pairs or roster.elastic) and not has_shrunk
        if may_spread and shift.has_served_everyone():
            packing.part_where_idle()
            if self._grows:
                grow(shift)
        return is_done

    def _remembered(
        self,
        memo: Memo,
        shift: TimeSlicing,
        packing: TrialPacking,
        moving: Migration,
        turn_end: int | None,
    ) -> Memo:
        """The memo after this pass; what nobody can need any more is dropped."""
        jobs, homes = shift.view.jobs, memo.homes
        if shift.homes or any(_is_settled(jobs, job) for job in homes):
            kept = {job: homes[job] for job in homes if not _is_settled(jobs, job)}
            homes = FrozenMap({**kept, **shift.homes})
        alone = {job: speed for job, speed in packing.alone.items() if job in jobs}
        refuted = {pair for pair in packing.refuted if _is_alive(jobs, pair)}
        return Memo(
            turn_end,
            homes,
            FrozenMap(packing.pairs),
            frozenset(refuted),
            FrozenMap(alone),
            FrozenMap(moving.moves),
        )

    def _wake_at(self, view: View, starving: StarvingJobs, memo: Memo, now: int) -> int | None:
        due = [self._judged_at(view, memo, now), memo.turn_end_ms, starving.again_at]
        if self.guards.are_on:
            due.append(starving.shift.roster.line.next_expiry())
        return min((time for time in due if time is not None and time > now), default=None)

    def wake(self, view: View, memo: Memo, now: int) -> int | None:
        """When a pair or a move can be judged; at once where a starving job waits for who began."""
        return now + 1 if memo.keeps else self._judged_at(view, memo, now)

    def _judged_at(self, view: View, memo: Memo, now: int) -> int | None:
        due = [
            *trial_ends(view.jobs, memo.pairs, self._trial),
            *judgements(view.jobs, memo.moves, self._trial),
        ]
        return min((time for time in due if time > now), default=None)


def _is_settled(jobs: Mapping[str, JobRecord], job: str) -> bool:
    """Whether a job that was suspended has ended, or runs again."""
    record = jobs.get(job)
    return record is None or record.placement is not None


def _is_alive(jobs: Mapping[str, JobRecord], pair: Pair) -> bool:
    """Whether a verdict can still matter: models live for ever."""
    return all(name in jobs or name.startswith(MODEL) for name in pair)
