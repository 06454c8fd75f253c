"""AntMan (Xiao et al., OSDI'20): guaranteed jobs as if alone, opportunistic ones on what they leave idle.

Section 4. Guaranteed jobs are charged to their queue's quota, one per GPU; the queue that holds the
smallest part of its quota goes next, first in first out inside; a gang that finds only a part of its
GPUs holds that part, closed to other guaranteed jobs and open to opportunistic ones. Opportunistic
jobs have no quota: each goes to the least busy GPU among those with a utilisation below `util_limit`
that has the memory for it, sharing it with the jobs there. A guaranteed job that has waited
`opportunistic_after_s` may start as an opportunistic one, and is upgraded when quota and a GPU are
free. A guaranteed job whose memory does not fit evicts opportunistic runs, never guaranteed ones. A
queue's maximum bounds all that it holds.

Deviations. Every GPU is shared by turns, so that no job is launched again when another joins. Memory is
booked, not spilled to the host; cutting an opportunistic job's cycles belongs to the run's supervisor.
Utilisation is what is known of each job (unknown = all of the GPU); the 10 s window belongs to what
measures it. A gang larger than its queue's quota is opportunistic from the start. An upgrade may move a job
to free GPUs. Only jobs that asked for a guarantee are upgraded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainmaster.config.options import (
    Pairs,
    at_least_zero,
    choice,
    fraction,
    option,
    queue_weights,
    whole_number,
)
from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.queue_views import QueueView, queue_views_of
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.measured_memory import measured_placement
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Role
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.reasons import QueueStanding, Reason, Why
from trainmaster.model.units import NOMINAL, WHOLE, to_ms
from trainmaster.policies.antman.guest_obstacle import guest_obstacle
from trainmaster.policies.antman.opportunistic_colocation import guaranteed_size
from trainmaster.policies.antman.quotas import QueueLimits, Quotas
from trainmaster.policies.antman.scheduling_pass import (
    GUARANTEED,
    LATE,
    OPPORTUNISTIC,
    AntManPass,
    AntManTerms,
    Host,
    gpus_of_unbearable,
)


@stored_as("antman.Memo")
@dataclass(frozen=True, slots=True)
class AntManMemo:
    """What AntMan remembers."""

    opportunistic: tuple[str, ...] | None = None
    """Opportunistic runs; None = not known, to be found among all jobs."""
    unbearable: FrozenMap[str, tuple[Host, ...]] = field(default_factory=FrozenMap)
    """By opportunistic job: guaranteed ones beside which it stood still, and what they used then."""


@dataclass(frozen=True, slots=True)
class AntManOptions(PreemptiveOptions):
    queues: Pairs[int] = option(Pairs(), queue_weights, "quotas by weight, as name:weight,...")
    util_limit: float = option(0.8, fraction, "opportunistic jobs join GPUs below this utilisation")
    opportunistic_after_s: float = option(
        1800.0,
        at_least_zero,
        "wait in seconds after which a guaranteed job may run as opportunistic; 0: never",
    )
    classes: str = option(
        "on",
        choice("on", "off"),
        "tell job classes apart; off: all jobs within their quota are guaranteed",
    )
    reserve: str = option(
        "on", choice("on", "off"), "reserve free GPUs for a gang until it has all of them"
    )
    upgrade: str = option(
        "on", choice("on", "off"), "make opportunistic runs guaranteed when quota is free"
    )
    guaranteed_per_gpu: int = option(1, whole_number(1, 16), "most guaranteed jobs on one GPU")


class AntMan(BasePolicy[AntManOptions, AntManMemo]):
    name = "antman"
    obeys_queues = True
    options_type = AntManOptions
    memo_type = AntManMemo
    switches_per_run = (
        0  # guaranteed jobs do not wait for opportunistic ones, who come back only to idle GPUs
    )

    def __init__(self, options: AntManOptions) -> None:
        super().__init__(options)
        self._patience = to_ms(options.opportunistic_after_s)
        self._weights = dict(options.queues.items)
        self._quotas: Quotas | None = None
        self._rules = AntManTerms(
            util_limit_ppm=round(options.util_limit * NOMINAL),
            share=WHOLE // options.guaranteed_per_gpu,
            reserves=options.reserve == "on",
            upgrades=options.upgrade == "on",
            guards=self.guards,
        )

    def forget(self) -> None:
        super().forget()
        self._quotas = None

    def plan(self, view: View, memo: AntManMemo, now: int) -> Plan[AntManMemo]:
        opportunistic = self._opportunistic(view, memo)
        if view.has_nothing_to_schedule() and not _has_changed(view, opportunistic):
            return Plan((), replace(memo, opportunistic=tuple(run.id for run in opportunistic)))
        quotas = self._known_quotas(view)
        parts = queue_views_of(view)
        waiting = [part for part in parts.values() if part.waiting_count]
        lines = {part.queue: self._line(part, quotas, now) for part in waiting}
        draft = Draft(view)
        for job in view.reservations:
            draft.release(view.jobs[job])
        held = {queue: part.allocated for queue, part in parts.items()}
        for run in opportunistic:
            assert run.placement is not None
            held[run.job.queue] -= run.placement.total_share
        limits = _limits(view, parts, opportunistic)
        turn = AntManPass(draft, now, self._rules, quotas, opportunistic, lines, held, limits)
        turn.unbearable |= {job: at for job, at in memo.unbearable.items() if job in view.jobs}
        if view.draining:
            turn.leave_draining()
        turn.rebook_measured()
        turn.serve_guaranteed()
        turn.suspend_still_runs()
        turn.serve_opportunistic()
        due = [line.next_expiry() for line in lines.values()] + [turn.again_at]
        wake_at = min((time for time in due if time is not None), default=None)
        here = {run.id: None for run in opportunistic} | dict.fromkeys(draft.placed())
        return draft.plan(AntManMemo(tuple(here), FrozenMap(turn.unbearable)), wake_at)

    def _opportunistic(self, view: View, memo: AntManMemo) -> list[JobRecord]:
        """Opportunistic runs, in order of submission."""
        jobs, ids = view.jobs, memo.opportunistic
        known = jobs.values() if ids is None else [jobs[job] for job in ids if job in jobs]
        return sorted(
            (job for job in known if _is_opportunistic(job)), key=lambda record: record.seq
        )

    def _known_quotas(self, view: View) -> Quotas:
        total = view.topology.training_gpus * WHOLE
        quotas = Quotas.of(view.queues, self._weights, total)
        if quotas != self._quotas:
            self._quotas = quotas
            view.forget()  # which jobs may ever be guaranteed has changed: all are ranked again
        return quotas

    def _line(self, part: QueueView, quotas: Quotas, now: int) -> RankIndex:
        def rank(record: JobRecord) -> Rank:
            job = record.job
            until = None
            if self._patience and self._tag(record, quotas, now) == GUARANTEED:
                until = record.waiting_since_ms + self._patience
            waits = record.placement is None
            ranked = Rank(-job.priority, job.submit_ms, until_ms=until if waits else None)
            return self.guards.rank(record, ranked, now)

        def group(record: JobRecord) -> Hashable:
            return (self._tag(record, quotas, now), record.group)

        return part.ranked(rank, now, group=group, with_running=True)

    def _tag(self, record: JobRecord, quotas: Quotas, now: int) -> str:
        """The class of a waiting job: guaranteed, opportunistic, or late (either)."""
        has_classes = self.options.classes == "on"
        if has_classes and record.job.role is Role.OPPORTUNISTIC:
            return OPPORTUNISTIC
        size = guaranteed_size(record, self._rules.share)
        if not quotas.allow(record.job.queue, size):
            return LATE
        is_late = self._patience and now - record.waiting_since_ms >= self._patience
        return LATE if is_late and has_classes else GUARANTEED

    def wake(self, view: View, memo: AntManMemo, now: int) -> int | None:
        """A start changes nothing here."""
        return None

    def explain(self, view: View, memo: AntManMemo, record: JobRecord, now: int) -> Reason:
        """The queue's quota where that is in the way, else what the GPUs say."""
        queue, size = record.job.queue, guaranteed_size(record, self._rules.share)
        limits = _limits(
            view, queue_views_of(view), [each for each in view.running() if _is_opportunistic(each)]
        )
        if limits.never_holds(queue, record.demand.nominal.total_share):
            return Reason(Why.NEVER_FITS, size)
        quota = Quotas.of(view.queues, self._weights, view.topology.training_gpus * WHOLE)
        mine = [
            each
            for each in view.running()
            if each.job.queue == queue and not _is_opportunistic(each)
        ]
        held = sum(each.placement.total_share for each in mine if each.placement is not None)
        is_spent = record.job.role is Role.GUARANTEED and not quota.allow(queue, held + size)
        if is_spent or not limits.has_room(queue, record.demand.nominal.total_share):
            share = quota.of_queue(queue) or 0
            return Reason(
                *(Why.SHARE_USED_UP, size, max(0, share - held), 0),
                held_by=tuple(each.id for each in mine[:5]),
                queue=QueueStanding(queue, held, share),
            )
        found = super().explain(view, memo, record, now)
        avoided = gpus_of_unbearable(view, memo.unbearable.get(record.id, ()))
        is_guest = self._tag(record, quota, now) != GUARANTEED
        has_gpus = found.why not in (Why.NOT_ENOUGH_FREE, Why.RESERVED) and not avoided
        if not is_guest or has_gpus or record.placement is not None:
            return found
        why, there, part = guest_obstacle(view, record, self._rules.util_limit_ppm, avoided)
        return found if why is None else replace(found, why=why, held_by=there, part=part)


def _limits(
    view: View, parts: Mapping[str, QueueView], opportunistic: Iterable[JobRecord]
) -> QueueLimits:
    """Maxima, with all that queues hold; opportunistic runs count with the GPUs that they asked for."""
    limits = QueueLimits(view.queues, parts)
    for run in opportunistic:
        assert run.placement is not None
        more = run.demand.nominal.total_share - run.placement.total_share
        limits.give(run.job.queue, more)
    return limits


def _is_opportunistic(record: JobRecord) -> bool:
    """Whether it runs as an opportunistic job."""
    placement = record.placement
    return placement is not None and placement.role is Role.OPPORTUNISTIC


def _has_changed(view: View, opportunistic: list[JobRecord]) -> bool:
    """Whether one may be upgraded or stands still, or runs beside them have been measured again."""
    for run in opportunistic:
        may_be_upgraded = run.job.role is Role.GUARANTEED and run.phase in ALLOCATED
        if may_be_upgraded or run.still_since_ms is not None:
            return True
    draft = Draft(view)
    return bool(opportunistic) and any(
        measured_placement(draft, run) is not None for run in view.measured_runs()
    )
