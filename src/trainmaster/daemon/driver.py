"""The loop: events in, one step, stored, and only then orders out to the engine.

All of it happens in one task of the event loop, so that steps come one after another. A step that cannot be
stored is tried again until it is: before that, no order is sent and nothing else is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import monotonic, perf_counter
from typing import Any

import structlog

from trainmaster.config.limits import Limits
from trainmaster.core.controller import Controller, Decision
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.daemon.change_feed import ChangeFeed
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.cluster_nodes import ClusterNodes
from trainmaster.daemon.data_folder import Identity
from trainmaster.daemon.dependencies import Dependencies, StateOf
from trainmaster.daemon.device_health import DeviceHealth
from trainmaster.daemon.ends_on_gpus import EndsOnGpus
from trainmaster.daemon.failed_gangs import FailedGangs
from trainmaster.daemon.failure_evidence import FailureReader, is_failure
from trainmaster.daemon.failure_history import with_cost
from trainmaster.daemon.gpu_activity import GpuActivity
from trainmaster.daemon.gpu_curves import GpuCurves
from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.daemon.hang_remarks import hang_notes
from trainmaster.daemon.host_bookings import HostBookings
from trainmaster.daemon.host_memory_use import of_each_device
from trainmaster.daemon.inbox import Arrivals, Inbox, Request
from trainmaster.daemon.input_watch import FACTS as INPUT_FACTS
from trainmaster.daemon.input_watch import InputWatch
from trainmaster.daemon.job_events import job_of, story_of, thinned
from trainmaster.daemon.known_profiles import KnownProfiles, key_of
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.live_programs import LivePrograms
from trainmaster.daemon.measurements import (
    GpuLook,
    Measurements,
    is_alone,
    profile_of_peak,
    with_host_memory,
)
from trainmaster.daemon.memory_forecasts import MemoryForecasts
from trainmaster.daemon.memory_watch import MemoryWatch
from trainmaster.daemon.metrics import Metrics, count_events
from trainmaster.daemon.order_dispatch import OrderDispatcher
from trainmaster.daemon.preruns import Preruns
from trainmaster.daemon.quota_rows import budget_warnings
from trainmaster.daemon.report_events import LoggedEvent, events_of
from trainmaster.daemon.resize_recording import note_sizes
from trainmaster.daemon.retries import RetryTerms
from trainmaster.daemon.run_gpu_use import holders_of
from trainmaster.daemon.run_times import RunTimes
from trainmaster.daemon.runtime_limits import RuntimeLimits
from trainmaster.daemon.service_api import Conflict, NotFound, RequestError, Unavailable
from trainmaster.daemon.step_writer import RETRY_S, StepWriter
from trainmaster.daemon.stop_recording import record_stop_reasons
from trainmaster.daemon.usage_ledger import UsageLedger
from trainmaster.daemon.warm_nodes import WarmNodes
from trainmaster.engines.protocol import Engine
from trainmaster.failures.reason_table import Memory
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.engine_reports import Ended, Lost, Progressed, Report
from trainmaster.model.failure import Failure
from trainmaster.model.job import Run
from trainmaster.model.job_state import ENDED_STATES, JobState
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.profile import Profile
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import Node
from trainmaster.model.units import SECOND
from trainmaster.store.errors import StoreError
from trainmaster.store.rows import Batch, ChargeRow, JobFilter, StepRow, StoredProgress
from trainmaster.store.store import Store
from trainmaster.text.stop_messages import ended_as

log = structlog.get_logger("trainmaster.daemon")

ANSWER_S = 5.0
"""How long a request waits for a store that cannot be written, before its user is told."""
LEAST_BETWEEN_S = 0.05
"""Between two steps of which nothing but time is the cause: a policy may ask for one every millisecond."""
EVENTS_PER_STEP = 250
"""Events of one step. Ten thousand jobs at once become several steps that are stored together, and other
tasks run in between."""

CHANGES_OF_HOLDS = (e.JobHeld, e.JobReleased, e.JobChanged, e.RunNotFrozen)
"""After these a job is held, or not held any more, or has other wishes."""
ENDS_IN_JOURNALS: Mapping[JobState, type[e.Event]] = {
    JobState.SUCCEEDED: e.RunSucceeded,
    JobState.FAILED: e.RunFailed,
    JobState.CANCELLED: e.RunStopped,
    JobState.TIMED_OUT: e.RunStopped,
}
"""The report after which the journal of a job's last run says that the job ended so."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of the controller, to be stored and acted on."""

    events: Sequence[LoggedEvent]
    decision: Decision
    batch: Batch
    touched: set[str]


def _ended_by_rule(live: LiveJob) -> bool:
    """Whether it failed for good though it had retries left, which the journal of its run does not say."""
    record = live.record
    has_failed = live.state == JobState.FAILED and record is not None
    return has_failed and record is not None and record.failures <= live.job.retries


def _retrieved(done: asyncio.Future[Any]) -> None:
    """For an answer that is not waited for any more: its exception is not reported as forgotten."""
    if not done.cancelled():
        done.exception()


class Driver:
    """Owns the controller and everything that a step touches."""

    def __init__(
        self,
        controller: Controller,
        store: Store,
        engine: Engine,
        clock: Clock,
        policy: PolicySpec,
        seq: int = 0,
        metrics: Metrics | None = None,
        identity: Identity = Identity(),  # noqa: B008
        site_limits: Limits = Limits(),  # noqa: B008
    ) -> None:
        self.controller = controller
        self.store = store
        self.engine = engine
        self.clock = clock
        self.followed_ms = 0
        """Until when the last manager followed the runs that it knew; 0: there was none."""
        self.policy = policy
        """The policy that was chosen last."""
        self.policy_trouble = ""
        """Why another one decides meanwhile; empty where the chosen one does."""
        self.policy_since_ms = clock.now()
        self.identity = identity
        """The names of the store and of the data folder that its runs are in."""
        self.site_limits = site_limits
        self.nodes = ClusterNodes(lambda: self.controller.state)
        self.failures = FailureReader()
        self.inputs = InputWatch(self)
        self.jobs: dict[str, LiveJob] = {}
        self.dependencies = Dependencies(self.jobs)
        self.preruns = Preruns(store, self.jobs, self.dependencies)
        self.dispatcher = OrderDispatcher(
            *(engine, self.jobs, clock, site_limits.max_grace, seq, site_limits.prerun),
            lambda: self.failures.table,
            lambda: self.controller.state.topology,
        )
        self.limits = RuntimeLimits()
        self.feed = ChangeFeed()
        self.metrics = metrics or Metrics()
        self.readings = GpuReadings(engine, lambda: holders_of(self.controller.state))
        self.measurements = Measurements()
        self.readings.listeners.append(self._measure)
        self.live_programs = LivePrograms()
        self.warm_nodes = WarmNodes()
        self.known_profiles = KnownProfiles(store, self.live_programs.with_arguments)
        self.memory_forecasts = MemoryForecasts(self.live_programs)
        self.host_bookings = HostBookings(self)
        self.run_times = RunTimes()
        self.memory_watch = MemoryWatch(self)
        self.readings.listeners.append(self.memory_watch.look)
        self.health = DeviceHealth(
            lambda: self.controller.state, self.jobs, site_limits, lambda: self.failures.table
        )
        self.failed_gangs = FailedGangs(
            lambda: self.controller.state, self.jobs, lambda: self.failures.table
        )
        self.readings.listeners.append(self._check_gpus)
        self.readings.listeners.append(GpuActivity(self).look)
        self.gpu_curves = GpuCurves(clock.now)
        self.readings.listeners.append(self.gpu_curves.look)
        self.usage = UsageLedger(controller.state.topology, controller.state.prices)
        self.inbox = Inbox()
        self.ends = EndsOnGpus(self.readings, self.inbox.report)
        self.writer = StepWriter(store, self.metrics, seq)
        self.refused = ""
        """Why an action of the policy was refused, last."""
        self.raised = ""
        """What the policy raised when it was asked last."""
        self.turn = asyncio.Lock()
        """Held while a step is made and stored: in between, controller and store agree."""
        self.stepped_s = monotonic()
        """When the last step ended, by the steady clock."""
        self.step_begun_s: float | None = None
        """When the present one began; None: there is none."""
        self._wake_at = controller.next_step_at
        self._unsure: set[str] = set()
        """Jobs whose dependencies could not be looked up."""

    def job_notes(self) -> tuple[str, ...]:
        """Those that name jobs and their inputs, or the budgets of users."""
        budgets = budget_warnings(self.controller.state, self.clock.now())
        return (*budgets, *hang_notes(self.jobs.values()), *self.inputs.notes())

    def notes(self) -> tuple[str, ...]:
        """What does not work as it should, and what to do: a sentence each."""
        state, notes = self.controller.state, [*self.policy_notes()]
        for queue in state.queues.values():
            if queue.parent is not None and queue.parent not in state.queues:
                notes.append(
                    f"Queue {queue.name} is in {queue.parent}, which is not defined, and counts as a"
                    f" queue of its own: define {queue.parent}, or remove it with `trainmaster queue rm`."
                )
        notes += self.job_notes()
        for node in sorted(state.draining):
            name = state.topology.nodes[node].name
            notes.append(
                f"Node {name} is drained, so nothing is started there: `trainmaster node undrain {name}`"
                " uses it again."
            )
        return (*notes, *self.nodes.notes(), *self.health.notes())

    def policy_notes(self) -> tuple[str, ...]:
        """Why the chosen policy does not decide."""
        raised = (
            f"The policy {self.policy.name} raised an error ({self.raised}): running jobs go on and"
            " nothing is started; choose another with `trainmaster policy set`."
        )
        return tuple(each for each in (self.policy_trouble, raised if self.raised else "") if each)

    # -- requests --------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> None:
        """Process a request; returns when the result is durable."""
        self.take_in(request)
        await self.until_stored(request.done)
        request.done.result()

    def take_in(self, request: Request) -> None:
        """Begin to process a request, unless it could not be stored."""
        self.writer.refuse_in_trouble()
        self.inbox.request(request)

    async def until_stored(self, done: asyncio.Future[Any]) -> None:
        """Wait for something that is stored; Unavailable if that takes long, though it goes on."""
        while not (await asyncio.wait([done], timeout=ANSWER_S))[0]:
            if self.writer.trouble:
                done.add_done_callback(_retrieved)
                raise Unavailable(
                    f"{self.writer.trouble} What was asked for is carried out when that works again:"
                    " do not ask twice."
                )

    def limit(self, live: LiveJob) -> None:
        """Note whether its running time is limited."""
        if self.limits.note(live):
            self.inbox.wake()

    # -- the loop ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled or until leadership is lost; a step that has begun is finished first."""
        step: asyncio.Task[None] | None = None
        self.inbox.wake()  # what was replayed may ask for a pass
        try:
            while True:
                await self.inbox.wait(self._seconds_to_wait())
                step = asyncio.create_task(self.step())
                await asyncio.shield(step)
        except asyncio.CancelledError:
            self.writer.gives_up = True
            if step is not None:
                await asyncio.wait([step])
            raise

    def _seconds_to_wait(self) -> float | None:
        if self.inbox.is_urgent:
            return 0.0
        now = self.clock.now()
        wakes = (self._wake_at, self.limits.next_due(now), self.run_times.next_due())
        due = [time for time in wakes if time is not None]
        rest_s = self.stepped_s + LEAST_BETWEEN_S - monotonic()
        return max(0.0, rest_s, (min(due) - now) / SECOND) if due else None

    async def step(self) -> None:
        """Process everything that has arrived: decide, store, act."""
        async with self.turn:
            self.step_begun_s = monotonic()
            await self._step()
            self.step_begun_s, self.stepped_s = None, monotonic()

    async def _step(self) -> None:
        now, arrived = self.clock.now(), self.inbox.take()
        arrived.reports = self.ends.ready(arrived.reports)
        failures = await self._failures(arrived)
        events, progress = self._collect_events(arrived, now, failures)
        self.writer.is_torn = True
        steps: list[_Step] = []
        is_whole = any(request.is_whole for request in arrived.requests)
        size = max(1, len(events)) if is_whole else EVENTS_PER_STEP
        for begin in range(0, max(1, len(events)), size):
            if steps:
                await asyncio.sleep(0)
            piece = events[begin : begin + size]
            steps.append(self._make_step(now, piece, self.writer.seq + 1 + len(steps)))
        passed = self.preruns.note(events, now)
        keys = (*(key for request in arrived.requests for key in request.keys), *passed)
        batches = [step.batch for step in steps]
        rows = tuple(row for request in arrived.requests for row in request.rows)
        last = batches[-1]
        batches[-1] = replace(last, jobs=last.jobs + rows, progress=tuple(progress), keys=keys)
        await self.writer.write(batches)
        await self._act(steps, arrived.requests, now)

    async def _failures(self, arrived: Arrivals) -> Mapping[Run, Failure]:
        """Why the runs failed that have: their logs are read off the event loop."""
        failed = [report for report, _ in arrived.reports if is_failure(report)]
        return await asyncio.to_thread(self.failures.failures, failed) if failed else {}

    def _collect_events(
        self, arrived: Arrivals, now: int, failures: Mapping[Run, Failure]
    ) -> tuple[list[LoggedEvent], list[StoredProgress]]:
        """The events for the controller, and progress reports that are only stored."""
        events = self.nodes.events_of(arrived.node_reports)
        events += self._without_ended([*arrived.followups, *self._retry_dependencies()])
        for request in arrived.requests:
            for live in request.new_jobs:
                self.jobs[live.id] = live
            self.live_programs.register(request.new_jobs)
            timely = self._without_ended(request.events)
            request.is_late = bool(request.events) and not timely
            events.extend(self.inputs.at_arrival(timely))
        progress: list[StoredProgress] = []
        for report, number in arrived.reports:
            failure = self.health.blamed(report.run, failures.get(report.run), now)
            failure = self.memory_watch.blamed(report.run, failure)
            events.extend(self._events_of_report(report, number, now, progress, failure))
        events.extend(self.limits.overdue(now))
        events.extend(self.run_times.outlasted(self.jobs, now))
        events.extend(self.health.events_after(events, now))
        self.failed_gangs.note(events)
        return events, progress

    async def _act(self, steps: Sequence[_Step], requests: Sequence[Request], now: int) -> None:
        """After storing: answer requests, send orders, publish changes, release dependents."""
        self._renumber_nodes(steps)
        for step in steps:
            self.dispatcher.note(step.decision.orders, step.batch.step.seq)
            self._note_policy(step.events, now)
        refused = self._refused(steps)
        for request in requests:
            self._answer(request, refused)
        for step in steps:
            self._wake_at = step.decision.wake_at
            await self.dispatcher.send(step.decision.orders)
            changed = [*self._changed_by_users(step.events), *self._ended_without_a_run(step)]
            await self.dispatcher.write_rows(dict.fromkeys(changed))
            self.feed.tell(step.batch.stories, self.owner_of)
        if self.dispatcher.unsent:
            self.inbox.wake_in(RETRY_S)
        if self.nodes.has_news():
            self.inbox.wake()
        touched = {id for step in steps for id in step.touched}
        self._follow_ends(touched)
        found = [self.jobs[id] for id in sorted(touched) if id in self.jobs]
        self.memory_watch.release(found)
        if any(isinstance(logged.event, INPUT_FACTS) for step in steps for logged in step.events):
            self.inbox.follow_up(self.inputs.consequences())
        else:
            self.inbox.follow_up(self.inputs.follow_up(found))

    def _renumber_nodes(self, steps: Sequence[_Step]) -> None:
        """Tell everything that numbers nodes by the topology that they are others now."""
        events = (logged.event for step in steps for logged in step.events)
        changes = e.NodesAdded | e.NodeForgotten | e.NodeMeasured | e.SpeedsStated
        if any(isinstance(event, changes) for event in events):
            self.usage.topology = self.controller.state.topology
            self.engine.number_nodes(self.controller.state.topology)

    def _changed_by_users(self, events: Sequence[LoggedEvent]) -> list[str]:
        """Jobs of which the record in the data folder is out of date."""
        changed = [logged.event for logged in events if isinstance(logged.event, CHANGES_OF_HOLDS)]
        halted = [logged.event.run for logged in events if isinstance(logged.event, e.RunSuspended)]
        held = [run.job for run in halted if run.job in self.jobs and self.jobs[run.job].holds]
        return list(dict.fromkeys([*(str(job_of(event)) for event in changed), *held]))

    def _ended_without_a_run(self, step: _Step) -> Iterator[str]:
        """Jobs of which no journal says that they have ended: cancelled while they waited, and the like."""
        said = {(job_of(logged.event), type(logged.event)) for logged in step.events}
        for id in sorted(step.touched & self.jobs.keys()):
            live = self.jobs[id]
            if not live.has_ended:
                continue
            if (id, ENDS_IN_JOURNALS[live.state]) not in said or _ended_by_rule(live):
                yield id

    def _without_ended(self, events: Iterable[LoggedEvent]) -> list[LoggedEvent]:
        """Without events about jobs that have ended meanwhile."""
        jobs = ((logged, job_of(logged.event)) for logged in events)
        return [logged for logged, job in jobs if job is None or job in self.jobs]

    def _make_step(self, now: int, events: Sequence[LoggedEvent], seq: int) -> _Step:
        """Make one step of the controller, and what is to be stored of it."""
        touched = {job for logged in events if (job := job_of(logged.event)) is not None}
        touched.update(self.controller.state.pending_launches)
        started = perf_counter()
        decision = self.controller.step(now, [logged.event for logged in events])
        self.metrics.passes.observe(perf_counter() - started)
        self.metrics.steps.inc()
        batch = self._batch(now, events, decision, touched, seq)
        count_events(self.metrics, events, self.jobs, now)
        return _Step(events, decision, batch, touched)

    def _note_policy(self, events: Sequence[LoggedEvent], now: int) -> None:
        for logged in events:
            if isinstance(logged.event, e.PolicyChanged):
                self.policy, self.policy_trouble = logged.event.spec, ""
                self.policy_since_ms, self.refused, self.raised = now, "", ""

    def _refused(self, steps: Sequence[_Step]) -> dict[str, str]:
        """By job: why something that was asked of it was not done."""
        found: dict[str, str] = {}
        for step in steps:
            if step.decision.planned:
                raised = (r for r in step.decision.refusals if r.why is Refused.POLICY_RAISED)
                detail = next((refusal.detail for refusal in raised), "")
                if detail and detail != self.raised:
                    log.error("the policy raised", exc_info=self.controller.policy_error)
                self.raised = detail
        for refusal in (each for step in steps for each in step.decision.refusals):
            found[refusal.job] = refusal.why.value
            if refusal.why in (Refused.WORK_WOULD_BE_LOST, Refused.NOT_PREEMPTIBLE):
                continue
            self.refused = f"{refusal.job}: {refusal.why.value} {refusal.detail}".strip()
            log.warning("refused", job=refusal.job, why=refusal.why.value, detail=refusal.detail)
        return found

    def _answer(self, request: Request, refused: Mapping[str, str]) -> None:
        """Register new jobs, release those whose dependencies have ended just now, and answer."""
        self.dependencies.register(request.new_jobs)
        self.preruns.register(request.new_jobs)
        state_of = lru_cache(self.state_of)
        for live in request.new_jobs:
            self.limit(live)
            if Hold.DEPENDENCY in live.holds:
                self.check_dependencies(live, state_of)
        if request.done.done():
            return
        if request.is_late:
            request.done.set_exception(Conflict("it has ended meanwhile."))
            return
        why = None if request.about is None else refused.get(request.about)
        if why is None:
            request.done.set_result(None)
        else:
            request.done.set_exception(Conflict(f"job {request.about} stays as it is: {why}."))

    def check_dependencies(self, live: LiveJob, state_of: StateOf) -> None:
        """Check its dependencies: the next step takes in what follows."""
        self.inbox.follow_up(self._dependency_events(live, state_of))

    def _dependency_events(self, live: LiveJob, state_of: StateOf) -> list[LoggedEvent]:
        """Events that follow from its dependencies; none yet if the store cannot be read."""
        try:
            return list(self.dependencies.resolve(live, state_of))
        except StoreError as error:
            log.warning("a dependency cannot be looked up now", job=live.id, why=str(error))
            self._unsure.add(live.id)
            self.inbox.wake_in(RETRY_S)
            return []

    def _retry_dependencies(self) -> list[LoggedEvent]:
        """The same for jobs whose dependencies could not be looked up before."""
        again, self._unsure = self._unsure, set()
        lives = [self.jobs[id] for id in again if id in self.jobs]
        return [logged for live in lives for logged in self._dependency_events(live, self.state_of)]

    def _events_of_report(
        self,
        report: Report,
        number: int,
        now: int,
        progress: list[StoredProgress],
        failure: Failure | None,
    ) -> Iterator[LoggedEvent]:
        live = self.jobs.get(report.run.job)
        if live is None:
            return
        if report.steady_ms is not None:  # the wall clock may have been set since
            report = replace(report, at_ms=self.clock.at(report.steady_ms))
        if isinstance(report, Lost) and report.alive_ms is not None:
            report = replace(report, at_ms=max(report.alive_ms, self.followed_ms))
        attempt, seen = report.run.attempt, live.history.seen
        is_newer = attempt > live.history.attempt
        if not is_newer and (attempt < live.history.attempt or number <= seen):
            return
        adopted = 0 if is_newer else live.history.adopted
        live.history = replace(live.history, attempt=attempt, seen=number, adopted=adopted)
        at_ms = min(now, max(report.at_ms, live.job.submit_ms))
        try:
            terms = RetryTerms(self.failures.table, self.controller.state.occupancy)
            found = list(events_of(report, live, now, self.site_limits, failure, terms))
        except (ArithmeticError, ValueError):
            log.exception("a report makes no sense and is left out", report=str(report)[:500])
            return
        record, topology = live.record, self.controller.state.topology
        ended = report if isinstance(report, Ended) else None
        peak = None
        if ended is not None and record is not None:
            peak = of_each_device(ended, live, record.placement)
        if record is not None and any(
            isinstance(each.event, e.RunSucceeded | e.RunPassed) for each in found
        ):
            measured = with_host_memory(self.measurements.at_end(record), peak)
            if measured is not None:
                yield LoggedEvent(e.JobProfiled(live.id, profile=measured))
        if failure is not None and self.failures.table.of(failure.reason).memory is Memory.HOST:
            for other in self.memory_forecasts.learn_out_of_memory(live, peak or 0):
                self.inbox.follow_up([*self.host_bookings.news(other)])
        for logged in found:
            yield logged if record is None else with_cost(logged, live, record, topology, now)
            if isinstance(logged.event, e.JobProfiled) and logged.event.profile is not None:
                yield from self._told_to_others(live, logged.event.profile)
            if isinstance(logged.event, e.JobProfiled) and logged.event.warm:
                yield from self._warm_for_others(live, logged.event.warm)
        yield from self.inputs.news(live, found)
        if isinstance(report, Progressed):
            yield from self._measure_steps(report, live, now)
            row = StoredProgress(live.id, at_ms, report.step, report.loss, report.samples_per_s)
            progress.append(row)

    # -- measuring -------------------------------------------------------------------------------------

    def _measure(self, readings: GpuReadings) -> None:
        """What was read of the runs' GPUs becomes a fact where it is news."""
        now = self.clock.now()
        for use in readings.runs():
            live = self.jobs.get(use.run.job)
            record = None if live is None else live.record
            if live is None or record is None or record.run != use.run:
                continue
            alone = is_alone(self.controller.state, record)
            at = live.history.progress
            news = self.measurements.of_gpu(
                record,
                GpuLook(use.most_memory, use.mean_util_ppm),
                now,
                is_alone=alone,
                step=None if at is None else at.step,
            )
            if news is not None:
                self.inbox.follow_up(self.profiled(live, news))

    def _check_gpus(self, readings: GpuReadings) -> None:
        """GPUs of which the driver says that they are broken are set aside."""
        self.inbox.follow_up(self.health.events_of_look(readings, self.clock.now()))

    def measured_now(self, live: LiveJob) -> Iterator[LoggedEvent]:
        """Its GPU memory by the last look, where none is known yet: it says whether it can be frozen."""
        record = live.record
        use = None if record is None else self.readings.of_run(record.run)
        if record is None or use is None or record.gpu_memory:
            return
        if use.most_memory:
            yield LoggedEvent(e.JobProfiled(live.id, profile=profile_of_peak(use.most_memory)))

    def _measure_steps(self, report: Progressed, live: LiveJob, now: int) -> Iterator[LoggedEvent]:
        record = live.record
        if record is None or record.run != report.run:
            return
        alone = is_alone(self.controller.state, record)
        news = self.measurements.of_steps(record, report, now, is_alone=alone)
        if news is not None:
            yield from self.profiled(live, news)

    def profiled(self, live: LiveJob, news: Profile) -> Iterator[LoggedEvent]:
        """What was measured of it is known of it, and of jobs of the same program."""
        yield LoggedEvent(e.JobProfiled(live.id, profile=news))
        yield from self._told_to_others(live, news)

    def _told_to_others(self, live: LiveJob, news: Profile) -> Iterator[LoggedEvent]:
        """Those of the same program: all of it to those that have not started, to others what it grew to."""
        for other in self.live_programs.with_arguments(key_of(live)):
            if other is not live and not other.has_started:
                theirs = self.memory_forecasts.of_live_run(other, news)
                yield LoggedEvent(e.JobProfiled(other.id, profile=theirs))
        yield from self.memory_forecasts.told_to_started(live, news)

    def _warm_for_others(self, live: LiveJob, nodes: tuple[int, ...]) -> Iterator[LoggedEvent]:
        """Nodes that have its code have that of jobs that wait with the same, where that is news."""
        digest = live.recipe.program_digest
        warm = self.warm_nodes.learn(digest, nodes)
        for other in self.jobs.values() if warm else ():
            waits = other.recipe.program_digest == digest and not other.has_started
            is_told = other.record is not None and other.record.demand.warm == warm
            if waits and other is not live and not is_told:
                yield LoggedEvent(e.JobProfiled(other.id, warm=warm))

    # -- storing -------------------------------------------------------------------------------------

    def _batch(
        self,
        now: int,
        events: Sequence[LoggedEvent],
        decision: Decision,
        touched: set[str],
        seq: int,
    ) -> Batch:
        touched.update(order.run.job for order in decision.orders)
        touched.update(job for job, _ in decision.ended_unsuccessfully)
        self._update_live_jobs(touched, now)
        record_stop_reasons(events, decision.orders, self.jobs, self.controller.state)
        charges = self._charges(touched, now)
        self._record_notices(decision.notices, touched)
        topology = self.controller.state.topology
        state, orders = self.controller.state, decision.orders
        resizes = note_sizes(orders, self.jobs, state, self.policy.name)
        entries = story_of(events, orders, decision.notices, self.jobs, topology, now, seq, resizes)
        stories = tuple(thinned(entries, self.jobs, self.site_limits.story_rows))
        return Batch(
            step=StepRow(
                seq,
                now,
                codec.dumps(tuple(logged.event for logged in events)),
                codec.dumps(tuple(decision.orders)),
            ),
            jobs=tuple(self.jobs[id].row(now) for id in sorted(touched) if id in self.jobs),
            stories=stories,
            charges=charges,
        )

    def _charges(self, touched: set[str], now: int) -> tuple[ChargeRow, ...]:
        """GPU time of jobs that have changed; of all that run where a price has."""
        found: list[ChargeRow] = []
        prices, usage = self.controller.state.prices, self.usage
        if prices != usage.prices:
            found += usage.settle_at_new_prices(self.jobs, prices, now)
            touched.update(row.job for row in found)
        lives = (self.jobs[id] for id in sorted(touched) if id in self.jobs)
        found += [row for live in lives for row in usage.settle(live, now)]
        return tuple(found)

    def _record_notices(self, notices: Iterable[DeadlineNotice], touched: set[str]) -> None:
        """Record with each job what is said about its deadline."""
        for notice in notices:
            live = self.jobs.get(notice.job)
            if live is not None:
                live.history = replace(live.history, deadline=notice)
                touched.add(live.id)

    def _update_live_jobs(self, touched: Iterable[str], now: int) -> None:
        """Update these live jobs from the controller's records."""
        records = self.controller.state.jobs
        for id in touched:
            live = self.jobs.get(id)
            if live is None:
                continue
            live.record = records.get(id, live.record)
            if live.record is not None:
                live.job = live.record.job
                self.known_profiles.learn(live)
                self.inbox.follow_up(self.run_times.record(live, now))
                self.memory_forecasts.record(live)
            if live.has_ended and live.finish_ms is None:
                live.finish_ms = max(live.ended_ms or now, live.earliest_end_ms)
                live.paused(live.finish_ms)
            elif live.record is not None and live.record.phase in WAITING | {Phase.HELD}:
                live.ended_ms = None  # its last run is not its end

    # -- ends -------------------------------------------------------------------------------------------

    def _follow_ends(self, touched: Iterable[str]) -> None:
        """Forget jobs that have ended, and release those that waited for them."""
        found = [self.jobs[id] for id in touched if id in self.jobs]
        ended = [live for live in found if live.has_ended]
        states = {live.id: live.state for live in ended}
        to_tell: dict[str, LiveJob] = {}
        for live in ended:
            del self.jobs[live.id]
            self.dispatcher.forget(live.id)
            self.limits.forget(live.id)
            self.measurements.forget(live.id)
            self.live_programs.forget(live)
            if self.run_times.learn(live):
                alike = self.live_programs.of_program(key_of(live))
                to_tell |= {other.id: other for other in alike}
            self.inbox.follow_up([*self.memory_forecasts.learn(live)])
            for other in self.memory_forecasts.waiting(live):
                self.inbox.follow_up([*self.host_bookings.news(other)])
            self.metrics.finished.labels(live.job.queue, states[live.id]).inc()
        for live in ended:
            for waiting in self.dependencies.dependents_of(live):
                self.check_dependencies(waiting, lambda id: states.get(id) or self.state_of(id))
            self.inbox.follow_up(self.dependencies.release_next(live))
            self.preruns.forget(live)
        there = [live for live in to_tell.values() if live.id in self.jobs]
        self.inbox.follow_up(self.run_times.first_estimates(there))
        unheld, self.dependencies.waits_for_prerun = self.dependencies.waits_for_prerun, []
        self.inbox.follow_up(self.preruns.follow_up([*found, *unheld]))

    def state_of(self, id: str) -> str | None:
        """The state of any job, live or ended."""
        live = self.jobs.get(id)
        if live is not None:
            return live.state
        row = self.store.job(id)
        return None if row is None else row.state

    def owner_of(self, id: str) -> str:
        """The user of a live job; empty for one that has ended."""
        live = self.jobs.get(id)
        return "" if live is None else live.job.user

    def stored_owner_of(self, id: str) -> str | None:
        """The user of any job, live or ended; blocks."""
        row = None if id in self.jobs else self.store.job(id)
        return self.owner_of(id) or (None if row is None else row.user)

    # -- finding ---------------------------------------------------------------------------------------

    async def live(self, job: str) -> Sequence[LiveJob]:
        """The live job of that id or name, or all live elements of an array."""
        jobs = self.jobs
        if job in jobs:
            return [jobs[job]]
        found = [live for live in jobs.values() if live.array == job]
        if not found:
            named = [live for live in jobs.values() if live.name == job]
            found = named[-1:]
        if found:
            return found
        row = await asyncio.to_thread(self.store.job, job)
        if row is not None and row.state in ENDED_STATES:
            raise Conflict(f"job {job} has ended: it {ended_as(row.state)}.")
        if await asyncio.to_thread(self.store.jobs, JobFilter(array=job, limit=1)):
            raise Conflict(f"all jobs of array {job} have ended.")
        raise NotFound(f"there is no job {job}: `trainmaster ps -a` lists all.")

    async def one(self, job: str) -> LiveJob:
        """The live job of that id or name; a RequestError for an array."""
        found = await self.live(job)
        if len(found) != 1:
            raise RequestError(f"{job} is an array: name one of its jobs, such as {found[0].id}.")
        return found[0]

    def node_elsewhere(self, run: Run) -> str:
        """The node of its first rank, where that is another machine than the manager's; else empty."""
        record = self.controller.state.jobs.get(run.job)
        at = None if record is None else record.placement or record.frozen
        if at is None or not self.engine.abilities.spans_machines:
            return ""
        name = self.controller.state.topology.nodes[at.nodes[0]].name
        return "" if self.nodes.is_this_machine(name) else name

    def node(self, name: str) -> Node:
        node = self.controller.state.topology.node_by_name.get(name)
        if node is None:
            raise NotFound(f"there is no node {name}: `trainmaster nodes` lists them.")
        return node
