"""Trainmaster's own policy: the mechanisms of the published systems as stages of one pass.

Priority (priority.py). Jobs run in order of the Gittins index (Tiresias, NSDI'19), the expected service per
completion. It is predicted from similar jobs that have ended or still run: jobs of the same class (`learn`),
the user's earlier runs of the same program (`history`), and above all the job's `siblings`, submitted just
before and after it. Until anything is known the order is least attained service. A cost is limited to `cap`
times the attained service, and a job that falls too far behind its fair share is guaranteed a run
(`guard_ratio`).

Preemption has to pay. The observed cost of a preemption is added to the cost of waiting jobs
(`charge_switches`), a running job's cost can be reduced (`hysteresis`), and no run is preempted earlier than
`min_run_s` or twice that cost after its start.

Placement. A gang waits for GPUs close together as long as that pays, given what distance costs its model
(`locality`). While jobs wait, single-GPU jobs share a GPU if that gains throughput (`packing`). Elastic jobs
grow into idle GPUs (`grow`).

Queues (queues.py). GPUs are divided between stated queues by max-min fairness, taking past usage into account
(`half_life_s`); inside a queue the order is the one above. A job with a deadline is told at submission
whether the deadline can be met (`deadlines`), and an accepted one is ranked first when it has to be.
"""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.bins import NO_END
from trainmaster.mechanisms.base_policy import BasePolicy, waiting_reason
from trainmaster.mechanisms.fair_share.hierarchical_policy import capacity, share_reason
from trainmaster.mechanisms.fair_share.queue_tree import TreeCache
from trainmaster.mechanisms.preemptive_scheduling import run_in_order
from trainmaster.mechanisms.type_choice import TypeChoice
from trainmaster.model.packing_score import PackingScore
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Reason, Why
from trainmaster.policies.trainmaster import colocation, resizing
from trainmaster.policies.trainmaster.colocation import separate_pairs, spread_pairs
from trainmaster.policies.trainmaster.colocation_scores import packing_scores
from trainmaster.policies.trainmaster.defragmentation import consolidate_gangs, make_room_for_gangs
from trainmaster.policies.trainmaster.delay_scheduling import (
    drop_relaxed_failures,
    learn_locality,
    use_locality,
)
from trainmaster.policies.trainmaster.memo import TrainmasterMemo
from trainmaster.policies.trainmaster.options import Settings, TrainmasterOptions
from trainmaster.policies.trainmaster.priority import cost, left_ms, rank_order
from trainmaster.policies.trainmaster.queues import (
    QueueRanks,
    TrainmasterQueuePass,
    divide_between_queues,
    remember_shares,
)
from trainmaster.policies.trainmaster.resizing import grow_runs, reclaim_growth
from trainmaster.policies.trainmaster.scheduling_pass import Caches, Pass, Stage


def learn_service(p: Pass) -> None:
    """Record the service of jobs that have ended, and the cost of preemptions."""
    before = p.memo.service
    service = p.caches.predictor.learn(before, p.view, p.now)
    p.remember(service=service)
    if service.made_ms != before.made_ms and p.settings.charges_switches:
        p.remember(handover_ms=p.view.handover_ms)


def find_guaranteed_runs(p: Pass) -> None:
    """Find the jobs that have fallen too far behind their fair share."""
    p.remember(owed=p.settings.guard.guaranteed_runs(p.view, p.memo.owed, p.now))


def admit_deadlines(p: Pass) -> None:
    """Answer new deadlines, and check the accepted ones."""
    if p.settings.deadline_margin_ppm is not None:
        deadlines, p.notices = p.deadlines().follow(p.view, p.memo.deadlines, p.now)
        p.remember(deadlines=deadlines)


def start_jobs(p: Pass) -> None:
    """Run the best-ranked jobs that fit together, within the budgets of stated queues."""
    if isinstance(p.ranks, RankIndex):
        run_in_order(
            *(p.view, p.draft, p.ranks, p.now, p.group, p.placer, p.caches.stuck),
            choice=p.type_choice,
        )
        drop_relaxed_failures(p.caches.stuck)
    else:
        divide_between_queues(p)
    if p.type_choice is not None:
        p.wake_by(p.type_choice.next_look())


OBSERVATIONS: tuple[tuple[str, Stage], ...] = (
    ("", learn_service),
    ("", find_guaranteed_runs),
    ("deadline_margin_ppm", admit_deadlines),
    ("locality", learn_locality),
)
STAGES: tuple[tuple[str, Stage], ...] = (
    ("packing", separate_pairs),
    ("locality", make_room_for_gangs),
    ("resizing", reclaim_growth),
    ("", start_jobs),
    ("packing", spread_pairs),
    ("locality", consolidate_gangs),
    ("resizing", grow_runs),
)
"""The stages in their order, each with the setting that enables it."""


def enabled_stages(stages: tuple[tuple[str, Stage], ...], settings: Settings) -> tuple[Stage, ...]:
    return tuple(stage for name, stage in stages if not name or getattr(settings, name) is not None)


class Trainmaster(BasePolicy[TrainmasterOptions, TrainmasterMemo]):
    name = "trainmaster"
    obeys_queues = True
    options_type = TrainmasterOptions
    profiles = True

    def __init__(self, options: TrainmasterOptions, settings: Settings | None = None) -> None:
        super().__init__(options)
        self.settings = settings or Settings.of(options)
        self.judges_deadlines = self.settings.deadline_margin_ppm is not None
        self._observations = enabled_stages(OBSERVATIONS, self.settings)
        self._stages = enabled_stages(STAGES, self.settings)
        self._caches = self._new_caches()
        self._had_queues: bool | None = None

    def _new_caches(self) -> Caches:
        return Caches.new(self.settings, TreeCache(dict(self.options.queues.items)))

    def forget(self) -> None:
        super().forget()
        self._caches = self._new_caches()

    def first_memo(self) -> TrainmasterMemo:
        return TrainmasterMemo()

    def plan(self, view: View, memo: TrainmasterMemo, now: int) -> Plan[TrainmasterMemo]:
        p = self._pass(view, memo, now)
        for observe in self._observations:
            observe(p)
        p.wake_by(_next_check(p))
        if _is_idle(p):
            return p.plan()
        rank_jobs(p)
        if _is_stable(p):
            p.wake_by(_next_due(p))
            return p.plan()
        p.type_choice = type_choice(p, p.draft)
        for stage in self._stages:
            stage(p)
        if p.queue_pass is not None:
            remember_shares(p)
        elif not view.has_nothing_to_schedule():
            p.wake_by(p.ranks.next_expiry())
        return p.plan()

    def _pass(self, view: View, memo: TrainmasterMemo, now: int) -> Pass:
        has_queues = bool(view.queues or self.options.queues.items)
        if self._had_queues is not None and has_queues is not self._had_queues:
            view.forget()
        self._had_queues = has_queues
        return Pass(self.settings, self._caches, view, memo, now, Draft(view), has_queues)

    def wake(self, view: View, memo: TrainmasterMemo, now: int) -> int | None:
        """When to plan again after a run has started: its rank will change at a known time."""
        p = self._pass(view, memo, now)
        use_locality(p)
        p.wake_by(_next_check(p))
        if not _is_idle(p):
            rank_jobs(p)
            p.wake_by(_next_due(p))
            least_run = p.guards.least_run_ms(view.switch_ms)
            if p.has_queues and least_run and not view.has_nothing_to_schedule():
                p.wake_by(now + least_run)
        return p.due_ms

    def explain(self, view: View, memo: TrainmasterMemo, record: JobRecord, now: int) -> Reason:
        """Why the job waits, given the placements that it accepts now."""
        p = self._pass(view, memo, now)
        use_locality(p)
        reason = waiting_reason(view, record, p.own_placer(record), now, self.guards)
        if reason.why is Why.FRAGMENTED and p.locality is not None:
            until = p.locality.takes_free_gpus_at(record, view.occupancy)
            reason = replace(reason, until_ms=until)
        reason = colocation.name_unmeasured(p, record, reason)
        rank_jobs(p)
        if (types := type_choice(p, p.draft)) is not None:
            reason = types.explained(record, p.own_placer, reason)
        if p.has_queues and record.placement is None:
            reason = share_reason(TrainmasterQueuePass(p), record, reason, capacity(view))
        return p.deadlines().with_notice(p.memo.deadlines, record, reason, now)

    def packing_scores(
        self, view: View, memo: TrainmasterMemo, record: JobRecord, now: int
    ) -> tuple[PackingScore, ...]:
        return packing_scores(self._pass(view, memo, now), record)


def rank_jobs(p: Pass) -> None:
    """Rank all jobs: together, or per stated queue."""
    if p.has_queues:
        p.queue_pass = TrainmasterQueuePass(p)
        p.draft = p.queue_pass.draft
        p.ranks = QueueRanks(p.queue_pass)
    else:
        p.ranks = rank_order(p)


def type_choice(p: Pass, draft: Draft) -> TypeChoice | None:
    """How jobs choose between types: jobs of which no estimate is known are predicted like in their ranks."""
    if not p.settings.chooses_types or p.view.topology.is_uniform:
        return None

    def left(record: JobRecord) -> int | None:
        estimate = p.view.remaining(record, p.now)
        if estimate is not None:
            return estimate
        return left_ms(p, record) if cost(p, record) < NO_END else None

    line = (record for _, _, record in p.ranks.candidates(p.now))
    return TypeChoice.of(p.view, draft, p.now, left, line)


def _is_idle(p: Pass) -> bool:
    """Whether there is nothing to do: no job waits, shares a GPU, or could grow."""
    return p.view.has_nothing_to_schedule() and not (
        p.has_queues or p.is_observation_due or _is_busy(p)
    )


def _is_stable(p: Pass) -> bool:
    """Whether only ranks have expired, so that the pass would repeat the last decisions."""
    is_due = p.is_observation_due or resizing.is_due(p) or colocation.is_due(p)
    is_due |= p.settings.chooses_types and not p.view.topology.is_uniform
    return isinstance(p.ranks, RankIndex) and p.view.is_stable(p.ranks, p.now) and not is_due


def _is_busy(p: Pass) -> bool:
    """Whether a stage has work although no job waits."""
    grows = p.settings.resizing is not None and resizing.has_elastic(p)
    return grows or bool(p.memo.colocation.crowds)


def _next_due(p: Pass) -> int | None:
    """When ranks expire or a stage is due, without any event."""
    grown = p.memo.resizing.due_ms
    grown = grown if grown is not None and grown > p.now else None
    times = (p.ranks.next_expiry(), colocation.next_due(p), grown)
    return min((at for at in times if at is not None), default=None)


def _next_check(p: Pass) -> int | None:
    """When guaranteed runs or deadlines must be checked again, without any event."""
    times: list[int] = []
    if p.settings.guard.is_on and not (p.view.has_nothing_to_schedule() or p.view.is_idle()):
        times.append(max(p.memo.owed.next_look_ms, p.now + 1))
    if p.memo.deadlines.accepted:
        due = p.deadlines().wake(p.view, p.memo.deadlines, p.now)
        times += [] if due is None else [due]
    return min(times, default=None)
