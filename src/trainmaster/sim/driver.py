"""The simulator's loop: advance to the next instant, hand its facts to the controller, execute the orders."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from trainmaster.core.controller import Controller
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.policy import Policy
from trainmaster.core.state import JobRecord
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Estimate, Job, Oracle, Source
from trainmaster.model.profile import Profile
from trainmaster.model.queue import Queue
from trainmaster.model.quota import UserLimits
from trainmaster.model.reasons import Refusal
from trainmaster.model.topology import Topology
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.perf.perf_model import PerfModel, Speeds
from trainmaster.placement.placers import ever_fits
from trainmaster.sim.accounting import Account, Ledger
from trainmaster.sim.cost import CostMeter
from trainmaster.sim.dependencies import Dependencies
from trainmaster.sim.engine import SimEngine
from trainmaster.sim.failure_judge import FailureJudge, FailureRules
from trainmaster.sim.model_splits import with_splits
from trainmaster.sim.node_failures import NodeSchedule
from trainmaster.sim.progress import MEASURING_ERROR, ProgressReports
from trainmaster.sim.timeseries import Sampler

FOREVER = 1 << 62
"""Later than any instant of a run."""
PROGRESS_EVERY = 2_048
"""Steps between two calls of the progress callback."""
MOST_FUTILE_SUSPENSIONS = 500
"""Consecutive suspensions per job that lost all of a run's work, after which no job will ever end."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """What policies are told about run times: nothing, the truth, or the truth with an error."""

    known: bool = True
    error: float = 0.0
    """Uniform relative error, at most this much either way."""


def estimates_from(text: str) -> Estimates:
    """`exact`, `none`, or `noisy:0.3` for an error of up to 30 % either way."""
    if text == "exact":
        return Estimates()
    if text == "none":
        return Estimates(known=False)
    kind, _, amount = text.partition(":")
    try:
        error = float(amount)
    except ValueError:
        error = -1.0
    if kind != "noisy" or not 0 <= error <= 1:
        raise ValueError("exact, none and noisy:F with F from 0 to 1, such as noisy:0.3")
    return Estimates(error=error)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a simulation depends on, except the policy."""

    trace: Trace
    topology: Topology
    cluster: str
    """The user's name for the topology."""
    perf: PerfModel
    estimates: Estimates = Estimates()
    queues: Mapping[str, Queue] = field(default_factory=dict)
    user_limits: tuple[UserLimits, ...] = ()
    node_changes: tuple[e.NodeChange, ...] = ()
    until_ms: int | None = None
    seed: int = 0
    keep_stints: bool = False
    failure_rules: FailureRules | None = None
    """What is done about failures; None: what the trace says, and the result has no table of them."""


OnProgress = Callable[[int, int, int], None]
"""(jobs ended, jobs in all, now)."""


class Simulation:
    """One policy over one scenario; it can be interrupted and gives the result so far."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        self.scenario = scenario
        self.policy = policy
        perf, topology = scenario.perf, scenario.topology
        cost = perf.preemption_cost
        self.controller = Controller(
            topology,
            policy,
            can_freeze=cost.can_freeze,
            saves_on_demand=cost.saves_on_demand,
            cannot_save_at_first=not cost.saves_ever,
        )
        gpus = topology.training_gpus * WHOLE
        self.ledger = Ledger(
            scenario.queues,
            gpus,
            keep_stints=scenario.keep_stints,
            cost_meter=CostMeter.of(topology),
        )
        self.judge = FailureJudge(scenario.failure_rules or FailureRules(), topology)
        speeds = Speeds(perf, topology, scenario.seed)
        self.engine = SimEngine(speeds, self.ledger, self._profile, self.judge)
        jobs = scenario.trace.jobs
        if policy.splits:
            jobs = with_splits(jobs, perf.split_ppm)
        self.accepted, self.rejected = split_by_fit(jobs, topology, is_moldable=policy.is_moldable)
        self.sampler = Sampler(self.controller, self.ledger, arrival_span(self.accepted))
        self.dependencies = Dependencies()
        for each in self.rejected:
            list(self.dependencies.ended(each.job.id, Outcome.CANCELLED))
        self.now = self.accepted[0].job.submit_ms if self.accepted else 0
        self.events = 0
        self.refusals: list[Refusal] = []
        self.arrived = 0
        self._counted = 0
        self._next_arrival = self.now if self.accepted else FOREVER
        self._wake_at: int | None = None
        self._random = Random(f"estimates/{scenario.seed}")
        self.nodes = NodeSchedule(
            perf.node_failures, scenario.node_changes, len(topology.nodes), self.now, scenario.seed
        )
        self.reports = self._progress_reports()
        self._profiles: dict[tuple[str, int, int], Profile] = {}
        self._by_input: defaultdict[str, list[str]] = defaultdict(list)
        """Jobs by the input that they fail on."""
        self._without_input: set[str] = set()
        """Jobs that were taken out because theirs was blocked."""

    def run(
        self, on_progress: OnProgress | None = None, is_enough: Callable[[], bool] | None = None
    ) -> None:
        """Run until every job has ended, the horizon is reached, or `is_enough`."""
        with paused_garbage_collection():
            try:
                self.define_queues()
                steps = 0
                while self.step() and not (is_enough is not None and is_enough()):
                    steps += 1
                    if on_progress is not None and steps % PROGRESS_EVERY == 0:
                        on_progress(self.ledger.ended_count, len(self.accepted), self.now)
            finally:
                self.engine.settle_all(self.now)
                self.sampler.end(self.now)
                self.ledger.fairness.count_up_to(self.now)

    def define_queues(self) -> None:
        """Define the queues before the first event, which may be a node's before the first arrival."""
        changes = self.scenario.node_changes
        facts: list[e.Event] = [e.QueueDefined(each) for each in self.scenario.queues.values()]
        facts += [e.UserLimited(each) for each in self.scenario.user_limits]
        if facts:
            start = min([self.now, *(change.at_ms for change in changes)])
            self.take(start, facts)

    def step(self) -> bool:
        """Advance to the next instant and take in its facts; False when nothing is left to happen."""
        now = self._next_time()
        if now is None:
            return False
        until = self.scenario.until_ms
        if until is not None and now > until:
            self.now = max(self.now, until)
            return False
        self.now = now
        facts = self.engine.facts_at(now)
        if self.judge.new_blocks:
            facts += self._set_aside()
        if self.nodes.is_busy:
            facts += self.nodes.facts_at(now, self.engine)
        if self.reports is not None:
            facts += self.reports.facts_at(now, self.engine.progress(now))
        if now >= self._next_arrival:
            self._take_arrivals(now, facts)
        self.take(now, facts)
        return True

    def _set_aside(self) -> list[e.Event]:
        """Take out jobs that wait for inputs which were blocked just now."""
        found: list[e.Event] = []
        jobs, paths = self.controller.state.jobs, self.judge.new_blocks
        self.judge.new_blocks = []
        for job in (job for path in paths for job in self._by_input[path]):
            if job in jobs and jobs[job].phase in (Phase.PENDING, Phase.HELD):
                self.judge.set_aside += 1
                self._without_input.add(job)
                found.append(e.JobWithdrawn(job))
        return found

    def _progress_reports(self) -> ProgressReports | None:
        """Reports for policies that use them, if any job is elastic."""
        every, estimates = self.policy.progress_every_ms, self.scenario.estimates
        if every is None or not any(each.job.demand.is_elastic for each in self.accepted):
            return None
        error = estimates.error if estimates.known else MEASURING_ERROR
        return ProgressReports(every, error, self.scenario.seed)

    def _take_arrivals(self, now: int, facts: list[e.Event]) -> None:
        jobs = self.accepted
        while self.arrived < len(jobs) and jobs[self.arrived].job.submit_ms <= now:
            submitted = self._submit(jobs[self.arrived], now)
            if submitted is not None:
                facts.append(submitted)
            self.arrived += 1
        more = self.arrived < len(jobs)
        self._next_arrival = jobs[self.arrived].job.submit_ms if more else FOREVER

    def _next_time(self) -> int | None:
        """Time of the next event; None when every job has ended or no event will ever come."""
        if self.engine.has_facts():
            return self.now
        if self.is_thrashing:
            return None
        soonest = self._next_arrival
        if soonest == FOREVER and not self.controller.state.jobs:
            return None
        due = self.engine.next_time()
        if due is not None and due < soonest:
            soonest = due
        if due is not None and self.reports is not None:
            soonest = min(soonest, self.reports.next_time(self.now))
        if self._wake_at is not None and self._wake_at < soonest:
            soonest = self._wake_at
        if self.nodes.is_busy:
            due = self.nodes.next_time(is_idle=soonest == FOREVER)
            if due is not None and due < soonest:
                soonest = due
        return soonest if soonest < FOREVER else None

    def take(self, now: int, facts: Sequence[e.Event]) -> None:
        """Let the controller decide on these facts, and carry out its orders."""
        self.events += len(facts)
        groups = self._groups_before(facts)
        orders, refusals, self._wake_at, _, ended_unsuccessfully, notices = self.controller.step(
            now, facts
        )
        if self._counted < self.arrived:
            self._count_arrivals()
        for record, group in groups:
            self.ledger.regroup(record, group)
        if refusals:
            self.refusals.extend(refusals)
        for notice in notices:
            self.ledger.notices[notice.job].append((now, notice))
        for order in orders:
            self.engine.execute(order, now)
        for job, phase in ended_unsuccessfully:
            self._note_unsuccessful_end(job, phase, now)
        if self.ledger.just_ended:
            self._release_dependents()
        self.sampler.record(now)
        if now >= self.sampler.next_ms:
            self.sampler.sample(now)

    def _groups_before(self, facts: Sequence[e.Event]) -> list[tuple[JobRecord, int]]:
        """Jobs that ask for more after these facts, because their pre-run has passed, and for what now."""
        if self.judge.rules.prerun_ms is None:
            return []
        passed = [fact.run.job for fact in facts if isinstance(fact, e.RunPassed)]
        jobs = self.controller.state.jobs
        return [(jobs[job], jobs[job].group) for job in passed if job in jobs]

    def _note_unsuccessful_end(self, job: str, phase: Phase, now: int) -> None:
        """Close the account of a job that ended outside the engine: stopped, or out of retries."""
        account = self.ledger.accounts[job]
        if account.finish_ms is None:
            is_failed = phase is Phase.FAILED or job in self._without_input
            self.ledger.ended(account, Outcome.FAILED if is_failed else Outcome.CANCELLED, now)

    def _release_dependents(self) -> None:
        """Jobs that waited for those that have just ended may start, or never will."""
        ended, self.ledger.just_ended = self.ledger.just_ended, []
        for account in ended:
            assert account.status is not None
            facts = self.dependencies.ended(account.traced.job.id, account.status)
            self.engine.pending_facts.extend(facts)

    def _count_arrivals(self) -> None:
        """Tie each new job's account to its record, and count it as waiting."""
        jobs, accounts = self.controller.state.jobs, self.ledger.accounts
        first_new, self._counted = self._counted, self.arrived
        for index in range(first_new, self.arrived):
            name = self.accepted[index].job.id
            account = accounts[name]
            account.record = jobs.get(name)
            if account.record is not None:
                self.ledger.waits(account.record, 1)

    def _submit(self, traced: TracedJob, now: int) -> e.JobSubmitted | None:
        """None: it is not started because its input is blocked."""
        account = Account(traced, has_failures=self.scenario.perf.has_failures)
        self.ledger.submitted(account, now)
        if self.judge.is_blocked(account):
            self.judge.set_aside += 1
            self.ledger.ended(account, Outcome.FAILED, now)
            return None
        if traced.bad_input:
            self._by_input[traced.bad_input].append(traced.job.id)
        estimate, oracle = self._known(account)
        profile = self._measured_speedups(traced.job)
        if profile is not None and self.policy.profiles:
            account.profiling_ms = self.scenario.perf.profiling_ms
        preflight = self.judge.rules.prerun_ms is not None
        held = self._is_held(traced)
        return e.JobSubmitted(traced.job, estimate, oracle, profile, held=held, preflight=preflight)

    def _is_held(self, traced: TracedJob) -> bool:
        """Whether it waits for other jobs, or for a place of its array; in vain, it is withdrawn."""
        if not traced.depends_on and traced.array_limit is None:
            return False
        job, wanted = traced.job.id, traced.depends_on
        held = self.dependencies.submitted(job, wanted, traced.array, traced.array_limit)
        if self.dependencies.is_hopeless(wanted):
            self.engine.pending_facts.append(e.JobWithdrawn(job))
            return True
        return held

    def _measured_speedups(self, job: Job) -> Profile | None:
        """Speed of an elastic job on more GPUs: the truth, unless estimates are `none`.

        Known at once, because the pass must choose a size; its cost is charged before the first run.
        """
        demand = job.demand
        if not demand.is_elastic or not self.scenario.estimates.known:
            return None
        key = (job.model, demand.min_count, demand.max_count)
        profile = self._profiles.get(key)
        if profile is None:
            table = self.scenario.perf.speedups_of(job)
            beyond = tuple((count, speed) for count, speed in table if count > 1)
            profile = self._profiles[key] = Profile(speedups=((1, NOMINAL), *beyond))
        return profile

    def _profile(self, account: Account) -> e.JobProfiled:
        """The new estimate after a failed attempt."""
        estimate, oracle = self._known(account)
        return e.JobProfiled(account.traced.job.id, estimate=estimate, oracle=oracle)

    def _known(self, account: Account) -> tuple[Estimate | None, Oracle | None]:
        """What a policy is told about the remaining work, from the current attempt on."""
        truth = account.work_left()
        return self._estimate(truth), Oracle(truth) if self.policy.needs_oracle else None

    def _estimate(self, truth: int) -> Estimate | None:
        estimates = self.scenario.estimates
        if not estimates.known:
            return None
        if estimates.error:
            factor = 1.0 + estimates.error * (2.0 * self._random.random() - 1.0)
            truth = max(NOMINAL, round(truth * factor))
        return Estimate(truth, Source.TRACE)

    @property
    def is_thrashing(self) -> bool:
        """Whether runs are suspended so early, so often, that no job will ever end."""
        return self.engine.futile_suspensions > MOST_FUTILE_SUSPENSIONS * len(self.accepted)

    def stuck(self) -> list[str]:
        """Jobs that still wait when no event will ever come."""
        jobs = self.controller.state.jobs.values()
        return [record.id for record in jobs if record.phase in WAITING]


def split_by_fit(
    jobs: Iterable[TracedJob], topology: Topology, *, is_moldable: bool
) -> tuple[list[TracedJob], list[TracedJob]]:
    """Jobs that fit on the empty cluster, and jobs that never fit."""
    space = Occupancy(topology)
    fits: dict[Demand, bool] = {}
    accepted: list[TracedJob] = []
    rejected: list[TracedJob] = []
    for traced in jobs:
        demand = traced.job.demand
        if demand not in fits:
            fits[demand] = ever_fits(space, demand, is_moldable=is_moldable)
        (accepted if fits[demand] else rejected).append(traced)
    return accepted, rejected


def arrival_span(jobs: Sequence[TracedJob]) -> int:
    return jobs[-1].job.submit_ms - jobs[0].job.submit_ms if jobs else 0


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pause the collector: values here hold no cycles, and looking for them is slow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # moves survivors to the oldest generation, which small collections skip
        if was_enabled:
            gc.enable()
