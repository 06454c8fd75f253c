"""What users may ask about: jobs live and ended, why they wait, forecasts, logs, nodes, queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from trainmaster.config.quotas import prices_as_stated
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.core.reservations import left_running
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.cluster_nodes import (
    devices_of,
    in_natural_order,
    known_nodes,
    leaving_runs,
    node_state,
)
from trainmaster.daemon.data_folder import restored_without_runs
from trainmaster.daemon.dependencies import hold_reason
from trainmaster.daemon.device_names import device_name
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.failure_history import report_of
from trainmaster.daemon.freeze_remarks import freeze_remarks, obstacle_sentence
from trainmaster.daemon.gpu_readings import named_gpus
from trainmaster.daemon.gpu_rows import gpu_rows, gpu_uses
from trainmaster.daemon.gpu_use_history import GpuUseHistory, UseCurve
from trainmaster.daemon.hang_remarks import hang_remarks, hung_jobs
from trainmaster.daemon.job_history import JobHistory, LastHang, Progress
from trainmaster.daemon.live_job import (
    Hold,
    LiveJob,
    named_devices,
    named_nodes,
    shared_by,
    size_range,
)
from trainmaster.daemon.memory_forecasts import memory_calibration_of
from trainmaster.daemon.memory_overuse import memory_words, reserved_memory
from trainmaster.daemon.placement_rows import placement_rows
from trainmaster.daemon.policies import effective_options
from trainmaster.daemon.quota_rows import budget_row, user_limits_rows
from trainmaster.daemon.recovery import snapshot_of_driver
from trainmaster.daemon.response_models import (
    ChangeRow,
    DeviceRow,
    GpuCurve,
    InputRow,
    JobPlacement,
    LeftOutNode,
    NodeCurves,
    NodeRow,
    PolicyRow,
    PricesRow,
    QueueRow,
    ReservationRow,
    SetAsideRow,
    UsageReport,
    UserLimitsRow,
    amount,
    plain,
)
from trainmaster.daemon.retries import avoidance_reason, retry_reason
from trainmaster.daemon.run_gpu_use import RunUse
from trainmaster.daemon.run_times import calibration_of
from trainmaster.daemon.service_api import (
    Asker,
    Conflict,
    Forecast,
    JobStatus,
    LogFile,
    NotFound,
)
from trainmaster.daemon.usage_report import OUTCOME, UsageSums
from trainmaster.engines.local.logs import STACKS, rank_logs
from trainmaster.failures.reason_table import FailureReason
from trainmaster.gpu.mps import MEMORY
from trainmaster.mechanisms.base_policy import free_for
from trainmaster.model.deadline_notices import DeadlineOutcome
from trainmaster.model.device_aside import GpuAside
from trainmaster.model.events import JobSubmitted
from trainmaster.model.failure_report import FailureReport
from trainmaster.model.job_state import ENDED_STATES, WAITING_STATES, JobState
from trainmaster.model.launch_spec import Ranks
from trainmaster.model.memory_estimate import MemoryCalibration
from trainmaster.model.placement import Sharing
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.run_time import Calibration
from trainmaster.model.topology import Node
from trainmaster.model.units import NOMINAL, SECOND, WHOLE
from trainmaster.store.rows import JobFilter, SnapshotRow, StoredJob, StoredProgress, StoryRow
from trainmaster.text.deadlines import DEADLINE_OF_HELD, expected_end_sentence
from trainmaster.text.formatting import as_sentence, length, listing, plural, utc_time
from trainmaster.text.memory_estimates import host_memory_sentence, memory_sentence
from trainmaster.text.messages import elastic_sentence, pace_sentence, straggler_sentence
from trainmaster.text.packing import packing_sentence
from trainmaster.text.run_times import BASES, run_time_sentence

Forecaster = Callable[[SnapshotRow, str | JobSubmitted, int], Forecast]
"""Says when a job would start, asked at that time; in a thread, from a snapshot of the controller."""
S = JobState
FOLDED = (
    *(S.RUNNING, S.PENDING, S.SUSPENDED),
    *(S.FAILED, S.TIMED_OUT, S.CANCELLED, S.SUCCEEDED),
)
"""The state of an array is the first of these that one of its jobs is in."""
MOST_ELEMENTS = 100_000
MOST_FORECAST = 1000
"""Jobs that a forecast takes into account; with more, copying the state alone would take too long."""
PIECE = 250
"""Jobs of a list that are handled before other tasks run."""
NO_REPORTS = "It has not reported through the SDK, so its progress is unknown."
STEPS_COUNTED = "Its optimizer steps are counted; how many there will be is not known."
SUSPENDED_IN_MEMORY = "When others need its devices it waits in memory, and goes on from there."
SAVES_AND_ENDS = "To make room it is told to save and to end, and goes on from there later."
NOT_ENDED = (
    "It can be neither suspended in memory nor told to save, so others wait until it ends. Only a larger"
    " job that has waited longer than the work that would be lost, and 10 min at least, may have it ended."
)
NOT_PREEMPTIBLE = "It is not preempted: others wait until it ends."
LEFT_RUNNING = (
    "{what} has begun ({since} to {end}): it was left running, because it must not be suspended or would"
    " lose work."
)
WAITS_FOR = {
    Hold.DEPENDENCY: "it starts after other jobs",
    Hold.ARRAY: "it starts when its array has a free place",
    Hold.PRERUN: "it starts when the pre-run of the same program is over",
}
"""Holds that nobody has to release."""
ON_DRAINED = (
    "{nodes} {are} drained: it is moved where there is room and it loses no work, or stays there."
)
LOST = "{lost} of its work was lost and is done again."


class Queries:
    """Reads the controller's state and the store; changes nothing."""

    def __init__(
        self, driver: Driver, folder: Path, forecaster: Forecaster | None, gpu_use: GpuUseHistory
    ) -> None:
        self._driver = driver
        self._folder = folder
        self._gpu_use = gpu_use
        self._forecaster = forecaster
        self._forecast_turn = asyncio.Semaphore(1)
        self._forecast_thread = ThreadPoolExecutor(1, "forecast")
        """Apart from the threads that the store needs."""
        self._reasons: dict[str, Reason] = {}
        self._places: dict[str, tuple[str, ...]] = {}
        self._reasons_of: tuple[int, bool] | None = None
        """The step after which those are the reasons: a cache, because nothing changes between steps."""
        self._counts: Mapping[str, int] = {}
        self._counts_of: int | None = None

    @property
    def shares_files(self) -> bool:
        """Whether the nodes see the folder that a job is submitted from."""
        return self._driver.engine.abilities.shares_files

    def now_ms(self) -> int:
        return self._driver.clock.now()

    # -- jobs ------------------------------------------------------------------------------------------

    async def jobs(self, wanted: JobFilter) -> Sequence[JobStatus]:
        wanted = replace(wanted, is_brief=True)
        rows = await asyncio.to_thread(self._driver.store.jobs, wanted)
        return await self._all(rows)

    async def array_states(self, arrays: Sequence[str]) -> dict[str, dict[str, int]]:
        """By array: how many of its jobs are in each state."""
        found = await asyncio.to_thread(self._driver.store.array_states, arrays)
        return {array: dict(states) for array, states in found.items()}

    async def _all(self, rows: Sequence[StoredJob]) -> list[JobStatus]:
        """The status of each job of a list; other tasks run between pieces."""
        now = self._driver.clock.now()
        found: list[JobStatus] = []
        for begin in range(0, len(rows), PIECE):
            found += [self._listed(row, now) for row in rows[begin : begin + PIECE]]
            await asyncio.sleep(0)
        return found

    async def failures(self, wanted: JobFilter) -> FailureReport:
        """What failed runs of these jobs have cost, by reason."""
        return await asyncio.to_thread(report_of, self._driver.store, wanted)

    async def calibration(self) -> Sequence[Calibration]:
        """How good forecasts of run time were, by what they were made from."""
        return await asyncio.to_thread(calibration_of, self._driver.store)

    async def memory_calibration(self) -> Sequence[MemoryCalibration]:
        """How good estimates of GPU memory were, by what they were made from."""
        return await asyncio.to_thread(memory_calibration_of, self._driver.store)

    async def counts(self) -> Mapping[str, int]:
        """How many jobs are in each state; counted once for each step."""
        seq = self._driver.writer.seq
        if self._counts_of != seq:
            self._counts = await asyncio.to_thread(self._driver.store.count)
            self._counts_of = seq
        return self._counts

    async def job(self, job: str, by: Asker | None = None) -> JobStatus:
        """By id, by the id of an array, or by name: the newest of that name, the asker's own first.

        A job that the asker may not see is not there.
        """
        store, now = self._driver.store, self._driver.clock.now()
        live = self._driver.jobs.get(job)
        if live is not None and live.record is not None and _finds(by, live.job.user):
            return self._status(live.row(now), now)  # followers of its log ask all the time
        row = await asyncio.to_thread(store.job, job)
        if row is not None and _finds(by, row.user):
            return self._status(row, now)
        elements = await asyncio.to_thread(store.jobs, JobFilter(array=job, limit=MOST_ELEMENTS))
        if elements and _finds(by, elements[0].user):
            return self._folded(job, await self._all(elements))
        named = await asyncio.to_thread(self.newest_named, job, by)
        if named is not None:  # of an array, each element has its name: the array is meant
            return self._status(named, now) if named.array is None else await self.job(named.array)
        raise NotFound(f"there is no job {job}: `trainmaster ps -a` lists all.")

    def newest_named(self, name: str, by: Asker | None) -> StoredJob | None:
        """The newest job of this name: one of the asker's own, else of all that it may see; blocks."""
        store = self._driver.store
        own = None if by is None else store.named(name, by.user)
        return store.named(name) if own is None and (by is None or by.sees_all) else own

    def live_jobs_of(self, user: str) -> frozenset[str]:
        """Ids of a user's jobs that have not ended."""
        return frozenset(live.id for live in self._driver.jobs.values() if live.job.user == user)

    def _status(self, row: StoredJob, now: int) -> JobStatus:
        """All that is known of a job, by its stored row."""
        status = self._listed(row, now)
        live = self._driver.jobs.get(row.id)
        if live is None or live.record is None:
            return status
        use = self._driver.readings.of_run(live.record.run)
        return replace(
            status,
            row=live.row(now),
            remarks=self._remarks(live, live.record),
            gpu_use=gpu_uses(use, self._driver.controller.state.topology),
            shared_by=shared_by(live, self._driver.controller.state.topology),
            memory_enforced=self._memory_enforced(live.record),
            reserved_memory=reserved_memory(live.record),
            run_time=self._driver.run_times.forecast(live, now),
        )

    def _memory_enforced(self, record: JobRecord) -> str:
        """How its booked memory on a shared GPU is enforced, in words; empty where it shares none."""
        placement, driver = record.placement, self._driver
        if placement is None or placement.sharing is Sharing.EXCLUSIVE:
            return ""
        if not driver.controller.state.topology.uuids:
            return ""
        try:
            _, env = driver.engine.environment(record.run)
        except FileNotFoundError:  # it has not begun
            return ""
        uuids = driver.controller.state.topology.uuids
        blindness = driver.readings.blindness(uuids[gpu] for gpu in placement.gpus())
        return memory_words(placement.slices[0].memory, MEMORY in env, blindness)

    def _listed(self, row: StoredJob, now: int) -> JobStatus:
        """The same for lists: without remarks, and with the row as it was read if its state is the same."""
        live = self._driver.jobs.get(row.id)
        if live is None or live.record is None:
            history = JobHistory.from_json(row.record_json, pids=())
            why = self._failure_reason(history)
            return JobStatus(row, history, history.run_ms, failure_reason=why)
        record, state = live.record, live.state
        placement = None if record.phase in WAITING else record.placement
        topology = self._driver.controller.state.topology
        return JobStatus(
            row=row if row.state == state else live.row(now),
            history=live.history_at(now),
            run_ms=live.ran_ms(now),
            devices=named_devices(placement, topology),
            nodes=named_nodes(placement, topology),
            reason=self._reason(live, record),
            transition=live.transition,
            gpus_now=0 if placement is None else placement.total_share,
            may_have=size_range(record),
            waiting_since_ms=record.waiting_since_ms if state in WAITING_STATES else None,
            failure_reason=self._failure_reason(live.history),
        )

    def _failure_reason(self, history: JobHistory) -> FailureReason | None:
        """What the table says about its last failure."""
        failed = history.failed_by
        return None if failed is None else self._driver.failures.table.of(failed.reason)

    def listed(self, live: LiveJob) -> JobStatus:
        """A live job as lists show it."""
        now = self._driver.clock.now()
        return self._listed(live.row(now), now)

    def draft(self, live: LiveJob) -> JobStatus:
        """A job that was not submitted."""
        now = self._driver.clock.now()
        reason = hold_reason(live, self._driver.jobs, self._with_place)
        reason = reason or self._driver.inputs.reason(live)
        return JobStatus(live.row(now), live.history_at(now), 0, reason=reason)

    def _reason(self, live: LiveJob, record: JobRecord) -> Reason | None:
        """Why it waits: because it is held, or as the policy explains it."""
        driver = self._driver
        if record.retry_at_ms is not None and not live.holds:
            return retry_reason(record, driver.site_limits)
        pending = driver.controller.state.pending_launches.get(record.id)
        if pending is not None:
            leaving = tuple(sorted({run.job for run in pending.awaiting}))
            need = record.demand.nominal.total_share
            return Reason(Why.WAITING_FOR_RELEASE, need, held_by=leaving)
        is_held = record.phase is Phase.HELD
        if not is_held and record.phase not in WAITING:
            return None
        step = (driver.writer.seq, driver.writer.is_torn)
        if self._reasons_of != step:
            self._reasons, self._places, self._reasons_of = {}, {}, step
        found = self._reasons.get(record.id)
        if found is None:
            found = self._hold_reason(live, record) if is_held else None
            found = self._reasons[record.id] = found or self._policy_reason(record)
        return found

    def _hold_reason(self, live: LiveJob, record: JobRecord) -> Reason | None:
        """Why it is held, with the drained nodes that its stopped processes can go on only on."""
        found = hold_reason(live, self._driver.jobs, self._with_place)
        found = found or self._driver.inputs.reason(live)
        if found is not None and found.why is Why.PRERUN:
            return self._driver.preruns.reason(live)
        if found is None or found.why is not Why.SUSPENDED_BY_USER or not record.cannot_save:
            return found
        state, nodes = self._driver.controller.state, record.frozen.nodes if record.frozen else ()
        drained = [state.topology.nodes[node] for node in nodes if node in state.draining]
        if not drained:
            return found
        names = listing([node.name for node in drained])
        return replace(found, drained=WHOLE * sum(node.gpus for node in drained), detail=names)

    def _policy_reason(self, record: JobRecord) -> Reason:
        raised = self._driver.raised
        if not raised:
            avoids = avoidance_reason(record, self._driver.controller.state.occupancy)
            return avoids or self._driver.controller.explain(record.id)
        need = record.demand.nominal.total_share
        free, block = free_for(self._driver.controller.view.occupancy, record.demand)
        return Reason(Why.POLICY_FAILED, need, free, block, detail=raised)

    def stragglers(self) -> Sequence[tuple[LiveJob, int, str]]:
        """Running jobs with a rank that is slower than its peers, that rank and its device."""
        topology = self._driver.controller.state.topology
        found = []
        for live in self._driver.jobs.values():
            rank, record = live.history.slow_rank, live.record
            if rank is None or record is None or record.phase is not Phase.RUNNING:
                continue
            devices = named_devices(record.placement, topology)
            is_known = live.recipe.ranks is Ranks.PER_GPU and rank < len(devices)
            found.append((live, rank, devices[rank] if is_known else ""))
        return found

    def _straggler(self, job: str) -> tuple[str, ...]:
        return tuple(
            straggler_sentence(
                rank,
                device,
                live.history.slow_percent,
                live.history.slow_own_ms,
                live.history.slow_peers_ms,
            )
            for live, rank, device in self.stragglers()
            if live.id == job
        )

    def _with_place(self, array: str) -> tuple[str, ...]:
        """The jobs of an array that its limit does not hold back."""
        if array not in self._places:
            self._places[array] = tuple(
                live.id
                for live in self._driver.jobs.values()
                if live.array == array and Hold.ARRAY not in live.holds
            )
        return self._places[array]

    def _remarks(self, live: LiveJob, record: JobRecord) -> tuple[str, ...]:
        """What is not possible for this job, and what would have to change."""
        speaks = live.history.has_hello or live.history.saved_at_ms is not None
        lost_ms = live.history.lost_ms
        said = (LOST.format(lost=length(lost_ms)),) if lost_ms >= SECOND else ()
        said = (*said, *self._drained()) if record.phase in WAITING else said
        said = (*said, *self._driver.nodes.parts_away(record), *self._on_drained(record))
        said = (*said, *self._sizes(record), *self._straggler(live.id), *self._kept_free_of(record))
        is_unjudged = live.job.deadline_ms is not None and live.history.deadline is None
        if live.holds and is_unjudged and self.policy().judges_deadlines:
            said = (*said, DEADLINE_OF_HELD)
        said = (*said, *freeze_remarks(live.history))
        if record.phase is Phase.RUNNING and live.history.pace < 100:
            held = live.history
            heeded = held.is_pace_heeded
            said = (*said, pace_sentence(held.pace, held.pace_why, is_heeded=heeded))
        said = (*said, *hang_remarks(live.history.hang, record.run, live.history.failed_by))
        deadline = live.job.deadline_ms
        if deadline is not None and record.estimate is not None:
            by = BASES[record.estimate.source]
            said = (*said, f"How long it runs is predicted from {by}.")
            if record.phase is Phase.RUNNING and _was_declined(live):
                now = self._driver.clock.now()
                finish = record.finish_at(record.estimate.work, now)
                said = (*said, expected_end_sentence(finish, deadline, now))
        forecast = self._driver.run_times.forecast(live, self._driver.clock.now())
        if forecast is not None:
            is_running = record.phase in (Phase.RUNNING, Phase.RESIZING)
            said = (*said, run_time_sentence(forecast, is_running=is_running))
        if not self._driver.raised and record.phase in WAITING | {Phase.RUNNING}:
            scores = self._driver.controller.packing_scores(record.id)
            said = (*said, *map(packing_sentence, scores))
        estimate = None if record.profile is None else record.profile.memory_estimate
        if estimate is not None and not live.job.demand.states_gpu_memory:
            said = (*said, memory_sentence(estimate, reserved_memory(record)))
        of_host = self._driver.host_bookings.estimate(live)
        if of_host is not None:
            booked = record.demand.for_piece(record.demand.host_memory or 0)
            said = (*said, host_memory_sentence(of_host, booked))
        room = self._making_room(live, record)
        if speaks or record.first_start_ms is None:
            return (*said, room)
        progress = live.history.progress
        if progress is not None and progress.total_steps:
            return (*said, room)
        return (*said, NO_REPORTS if progress is None else STEPS_COUNTED, room)

    def _on_drained(self, record: JobRecord) -> Iterator[str]:
        """Drained nodes that it runs on."""
        state = self._driver.controller.state
        nodes = () if record.placement is None else record.placement.nodes
        drained = [state.topology.nodes[n].name for n in nodes if n in state.draining]
        if drained and record.phase not in WAITING:
            yield ON_DRAINED.format(
                nodes=listing(drained), are="is" if len(drained) == 1 else "are"
            )

    def _sizes(self, record: JobRecord) -> tuple[str, ...]:
        """How many devices an elastic job has, and may have."""
        may_have = size_range(record)
        if may_have is None:
            return ()
        has = 0 if record.placement is None else record.placement.total_share
        is_resizing = record.phase is Phase.RESIZING
        return (elastic_sentence(*may_have, has, self._driver.policy.name, is_resizing),)

    def _drained(self) -> tuple[str, ...]:
        """Nodes and devices that it cannot be started on, whatever is free there."""
        state = self._driver.controller.state
        names = [state.topology.nodes[node].name for node in sorted(state.draining)]
        away = [node.name for node in known_nodes(state) if node.index in state.away]
        closed = [
            f"{listing(each)} {'is' if len(each) == 1 else 'are'} {what}, so nothing is started there."
            for each, what in ((names, "drained"), (away, "away"))
            if each
        ]
        return (*closed, *self._driver.health.asides(), *self._driver.health.taken())

    def _aside(self, node: Node) -> Iterator[str]:
        """Devices of a node that are set aside, since when and why."""
        state, now = self._driver.controller.state, self._driver.clock.now()
        for gpu in range(node.first_gpu, node.first_gpu + node.gpus):
            aside = state.gpus_aside.get(gpu)
            if aside is not None:
                name, since = device_name(state.topology, gpu), length(max(0, now - aside.since_ms))
                yield f"{name} has been set aside for {since}: {aside.why}"

    def _making_room(self, live: LiveJob, record: JobRecord) -> str:
        """What happens to it when others need its devices."""
        if not live.job.preemptible:
            return NOT_PREEMPTIBLE
        otherwise = NOT_ENDED if record.cannot_save else SAVES_AND_ENDS
        state, now = self._driver.controller.state, self._driver.clock.now()
        if not (live.recipe.may_stay_in_memory and state.can_freeze):
            return otherwise
        said = "" if record.phase is not Phase.RUNNING else obstacle_sentence(state, live, now)
        return f"{said} {otherwise}" if said else SUSPENDED_IN_MEMORY

    def _folded(self, array: str, elements: Sequence[JobStatus]) -> JobStatus:
        """An array as one job."""
        in_order = tuple(reversed(elements))
        first, rows = in_order[0], [each.row for each in in_order]
        state = next(each for each in FOLDED if any(row.state == each for row in rows))
        has_ended = state in ENDED_STATES
        starts = [row.start_ms for row in rows if row.start_ms is not None]
        row = replace(
            first.row,
            id=array,
            state=state.value,
            start_ms=min(starts, default=None),
            finish_ms=max(row.finish_ms or 0 for row in rows) if has_ended else None,
            exit_code=max(row.exit_code or 0 for row in rows) if has_ended else None,
            array=None,
            array_index=None,
        )
        history = JobHistory(
            priority=first.history.priority,
            retries=first.history.retries,
            gpu_ms=sum(each.history.gpu_ms for each in elements),
            preemptions=sum(each.history.preemptions for each in elements),
            lost_ms=sum(each.history.lost_ms for each in elements),
            attempts=max(each.history.attempts for each in elements),
        )
        waiting = next((each for each in in_order if each.reason is not None), None)
        return JobStatus(
            row=row,
            history=history,
            run_ms=sum(each.run_ms for each in elements),
            devices=tuple(name for each in in_order for name in each.devices),
            nodes=tuple(dict.fromkeys(name for each in in_order for name in each.nodes)),
            reason=None if waiting is None else waiting.reason,
            elements=in_order,
        )

    async def story(self, job: str) -> Sequence[StoryRow]:
        """By the id of a job."""
        return await asyncio.to_thread(self._driver.store.story, job)

    def running_progress(self) -> Sequence[tuple[str, str, Progress]]:
        """Id, name and progress of each job that runs now and has reported any."""
        return [
            (live.id, live.recipe.name, live.history.progress)
            for live in self._driver.jobs.values()
            if live.history.since_ms is not None and live.history.progress is not None
        ]

    def running_hangs(self) -> Sequence[tuple[str, str, LastHang]]:
        """Id, name and hang of each job that hangs now."""
        found = hung_jobs(self._driver.jobs.values())
        return [(live.id, live.recipe.name, hang) for live, hang in found]

    def running_gpu_use(self) -> Sequence[tuple[str, str, RunUse]]:
        """Id, name and use of each job that has processes on GPUs now."""
        jobs = self._driver.jobs
        return [
            (use.run.job, jobs[use.run.job].recipe.name, use)
            for use in self._driver.readings.runs()
            if use.run.job in jobs
        ]

    async def progress(self, job: str) -> Sequence[StoredProgress]:
        """By the id of a job."""
        return await asyncio.to_thread(self._driver.store.progress, job)

    async def gpu_use(self, job: str) -> UseCurve:
        """By the id of a job: what it has used of its GPUs over time."""
        return await self._gpu_use.of(job)

    def why_no_gpu_use(self) -> str:
        """Why nothing is read of what jobs use of their GPUs; empty where it is."""
        if not self._driver.controller.state.topology.uuids:
            return "What jobs use of CPU slots is not measured."
        trouble = self._driver.readings.trouble
        return as_sentence(f"GPUs are not read: {trouble}") if trouble else ""

    def placement(self, job: str) -> JobPlacement:
        """By the id of a job: where it is now, drawn from the nodes that it is on."""
        return placement_rows(self._driver.controller.state, job)

    async def environment(self, job: str) -> tuple[Path, Mapping[str, str]]:
        """Working directory and environment of its first rank, for `exec`."""
        live = await self._driver.one(job)
        if live.record is None or live.record.placement is None:
            raise Conflict(f"job {job} is not running, so it has no environment to enter.")
        elsewhere = self._driver.node_elsewhere(live.record.run)
        if elsewhere:
            raise Conflict(
                f"job {job} runs on node {elsewhere}, which is another machine than the manager's: its"
                " environment is entered there only, by a command of its own."
            )
        return await asyncio.to_thread(self._driver.engine.environment, live.record.run)

    # -- forecasts -------------------------------------------------------------------------------------

    async def forecast(self, what: str | JobSubmitted) -> Forecast:
        """When a waiting job, by its id, or one that was not submitted is expected to start."""
        driver, loop = self._driver, asyncio.get_running_loop()
        if self._forecaster is None:
            return Forecast(None, "forecasts are switched off here.")
        if driver.raised:
            return Forecast(None, f"the policy {driver.policy.name} fails.")
        state = driver.controller.state
        live = driver.jobs.get(what) if isinstance(what, str) else None
        if live is not None and live.holds and live.holds <= WAITS_FOR.keys():
            waits = [words for hold, words in WAITS_FOR.items() if hold in live.holds]
            return Forecast(None, f"{listing(waits)}.")
        if len(state.jobs) - len(state.on_hold) > MOST_FORECAST:
            return Forecast(None, "the queue is too long to be simulated in time.")
        if driver.writer.trouble:  # a step may wait long for the store, and holds the lock
            return Forecast(None, driver.writer.trouble)
        async with self._forecast_turn:
            async with driver.turn:
                snapshot = await loop.run_in_executor(
                    self._forecast_thread, snapshot_of_driver, driver
                )
            return await loop.run_in_executor(
                self._forecast_thread, self._forecaster, snapshot, what, driver.clock.now()
            )

    # -- logs ------------------------------------------------------------------------------------------

    async def log_files(self, job: str) -> Sequence[LogFile]:
        """By the id of a job."""
        return await asyncio.to_thread(self._log_files, job)

    def _log_files(self, id: str) -> list[LogFile]:
        runs = self._folder / "runs" / id
        attempts = sorted(int(each.name) for each in runs.glob("*") if each.name.isdecimal())
        return [
            LogFile(attempt, rank, paths)
            for attempt in attempts
            for rank, paths in rank_logs(runs / str(attempt)).items()
        ]

    async def why_no_output(self, row: StoredJob) -> str | None:
        """Why nothing is kept of the output of a job that ran and has ended; None where its runs are kept."""
        return await asyncio.to_thread(self._why_no_output, row)

    def _why_no_output(self, row: StoredJob) -> str | None:
        is_kept = (self._folder / "runs" / row.id).is_dir()
        if row.start_ms is None or row.state not in ENDED_STATES or is_kept:
            return None
        if int(row.id.partition("_")[0]) <= restored_without_runs(self._folder):
            return (
                f"The output of job {row.id} was not in the backup that was restored here:"
                " `trainmaster backup --with-runs` takes it along."
            )
        return (
            f"The output of job {row.id} is not kept any more: it is removed some time after the end (the"
            " limit keep_logs)."
        )

    async def stack_files(self, job: str) -> Mapping[int, Path]:
        """By attempt, of the runs of a job that hung: where the stacks of its processes are kept."""
        runs = self._folder / "runs" / job
        found = await asyncio.to_thread(lambda: sorted(runs.glob(f"*/{STACKS}")))
        return {int(each.parent.name): each for each in found if each.parent.name.isdecimal()}

    def changes(self, after: int | None = None) -> AsyncGenerator[Sequence[ChangeRow]]:
        """What happens from now on, or since that one as far as it is remembered."""
        return self._driver.feed.follow(after)

    # -- the cluster -------------------------------------------------------------------------------------

    def inputs(self) -> Sequence[InputRow]:
        """Input paths that are set aside, the oldest first."""
        return [
            InputRow(
                path=each.block.path,
                since_s=each.block.since_ms / SECOND,
                jobs=[failure.job for failure in each.block.failures],
                users=sorted({failure.user for failure in each.block.failures}),
                reasons=sorted({failure.reason for failure in each.block.failures}),
                waiting=list(each.waiting),
            )
            for each in self._driver.inputs.listed()
        ]

    def device_types(self) -> Set[str]:
        """The names of all types of the cluster's devices."""
        return {kind.name for kind in self._driver.controller.state.topology.types}

    def device_counts(self) -> tuple[int, int]:
        """How many devices there are, and how many of them jobs are on; nodes that are away do not count."""
        state = self._driver.controller.state
        placed = (each.placement for each in state.jobs.values() if each.placement is not None)
        used = {gpu for placement in placed for gpu in placement.gpus()}
        away = {gpu for node in state.away | state.forgotten for gpu in devices_of(state, node)}
        return state.topology.gpu_count - len(away), len(used - away)

    def nodes(self) -> Sequence[NodeRow]:
        state = self._driver.controller.state
        on: dict[int, list[str]] = {}
        frozen: dict[int, list[str]] = {}
        for record in state.jobs.values():
            if record.placement is not None:
                for gpu in record.placement.gpus():
                    on.setdefault(gpu, []).append(record.id)
            elif record.frozen is not None:
                for node in record.frozen.nodes:
                    frozen.setdefault(node, []).append(record.id)
        leaving = leaving_runs(state)
        for piece, job in leaving:
            if job not in on.setdefault(piece.gpu, []):
                on[piece.gpu].append(job)
        able = self._driver.engine.abilities
        remarks: dict[str, list[str]] = {}
        for name, said in able.node_remarks:
            remarks.setdefault(name, []).append(said)
        gpus = gpu_rows(self._driver.readings, state.topology)
        kept_free = self.reservations()
        return [
            NodeRow(
                name=node.name,
                host=self._driver.nodes.host_of(node.name),
                domains=state.topology.names_around(node),
                type=node.type.name,
                speed=node.type.speed_ppm / NOMINAL,
                speed_source=_speed_source(state, node.type.name),
                state=node_state(state, node.index),
                devices=[
                    DeviceRow(
                        device_name(state.topology, each),
                        on.get(each, []),
                        gpus.get(each),
                        _aside_row(state.gpus_aside.get(each)),
                    )
                    for each in range(node.first_gpu, node.first_gpu + node.gpus)
                ],
                frozen=frozen.get(node.index, []),
                leaving=sorted({job for piece, job in leaving if piece.node == node.index}),
                cpus=amount(node.cpus),
                memory_bytes=node.memory,
                remarks=[
                    *filter(None, [self._driver.nodes.why_away(node.name)]),
                    *able.remarks,
                    *able.user_remarks,
                    *remarks.get(node.name, ()),
                    *self._driver.readings.notes([node]),
                    *self._aside(node),
                    *self._maintained(node, kept_free),
                ],
            )
            for node in in_natural_order(known_nodes(state))
        ]

    def node_curves(self, name: str, since_ms: int) -> NodeCurves:
        """The GPUs of a node over time, as far as they were read."""
        state, curves = self._driver.controller.state, self._driver.gpu_curves
        node = next((each for each in known_nodes(state) if each.name == name), None)
        if node is None:
            raise NotFound(f"There is no node {name}.")
        times_ms = curves.times_ms(since_ms)
        found = []
        for device, uuid in named_gpus([node]).items():
            points = curves.of(device, times_ms)
            if points is not None:
                util, memory, temperature, power = (
                    list(each) for each in zip(*points, strict=True)
                )
                whole = [None if each is None else round(each) for each in memory]
                found.append(GpuCurve(uuid, util, whole, temperature, power))
        return NodeCurves([each / SECOND for each in times_ms], times_ms.step / SECOND, found)

    def left_out(self) -> Sequence[LeftOutNode]:
        """Nodes of the cluster that are not used; one that was used before is among the nodes, and away."""
        state = self._driver.controller.state
        away = {node.name for node in known_nodes(state) if node.index in state.away}
        found = self._driver.engine.abilities.left_out
        return [LeftOutNode(name, why) for name, why in sorted(found) if name not in away]

    def reservations(self) -> Sequence[ReservationRow]:
        """Maintenance and reservations, now and later, the first to begin first."""
        state, now = self._driver.controller.state, self._driver.clock.now()
        found = sorted(state.kept_free.values(), key=lambda each: (each.begin_ms, each.number))
        return [
            ReservationRow(
                number=each.number,
                is_maintenance=each.is_maintenance,
                has_begun=each.is_on(now),
                begin_s=each.begin_ms / SECOND,
                end_s=each.end_ms / SECOND,
                nodes=[state.topology.nodes[node].name for node in each.nodes],
                devices=[device_name(state.topology, gpu) for gpu in each.gpus],
                user=each.user,
                queue=each.queue,
                reason=each.reason,
                by=each.by,
                force=each.force,
                left=[record.id for record in left_running(state, each)],
            )
            for each in found
        ]

    def _maintained(self, node: Node, kept_free: Iterable[ReservationRow]) -> Iterator[str]:
        """Maintenance of a node, now and later."""
        now = self._driver.clock.now()
        for row in kept_free:
            if node.name in row.nodes:
                begin, end = (utc_time(int(at * SECOND)) for at in (row.begin_s, row.end_s))
                why = f" ({row.reason})" if row.reason else ""
                left = (
                    f" {plural(len(row.left), 'job')} still there: {listing(row.left)}."
                    if row.left
                    else ""
                )
                if row.has_begun:
                    yield f"In maintenance until {end}{why}.{left}"
                elif row.begin_s * SECOND > now:
                    yield f"Maintenance from {begin} to {end}{why}."

    def _kept_free_of(self, record: JobRecord) -> tuple[str, ...]:
        """What a run is told that stays where devices are kept free of it now."""
        state, now = self._driver.controller.state, self._driver.clock.now()
        return tuple(
            LEFT_RUNNING.format(
                what="Maintenance of its node"
                if each.is_maintenance
                else "A reservation of its devices",
                since=utc_time(each.begin_ms),
                end=utc_time(each.end_ms),
            )
            for each in state.kept_free.values()
            if each.is_on(now) and record in left_running(state, each)
        )

    def queues(self) -> Sequence[QueueRow]:
        state = self._driver.controller.state
        by_queue: dict[str, list[JobRecord]] = {name: [] for name in state.queues}
        for record in state.jobs.values():
            by_queue.setdefault(record.job.queue, []).append(record)
        states = Counter((live.job.queue, live.state) for live in self._driver.jobs.values())
        rows = []
        for name, records in sorted(by_queue.items()):
            stated = state.queues.get(name, Queue(name))
            held = (each.placement.total_share for each in records if each.placement is not None)
            row = QueueRow(
                name=name,
                parent=stated.parent,
                weight=stated.weight,
                guaranteed_gpus=amount(stated.guaranteed),
                maximum_gpus=None if stated.maximum is None else amount(stated.maximum),
                allow_unpreemptible=stated.allow_unpreemptible,
                is_defined=name in state.queues,
                running=states[name, S.RUNNING],
                pending=states[name, S.PENDING],
                suspended=states[name, S.SUSPENDED],
                gpus=amount(sum(held)),
                max_gpus_per_user=_whole(stated.max_gpus_per_user),
                max_running_per_user=stated.max_running_per_user,
                max_jobs_per_user=stated.max_jobs_per_user,
                budget=budget_row(state, stated.budget, name, "", self.now_ms()),
            )
            rows.append(row)
        return rows

    def user_limits(self, only: str | None = None) -> Sequence[UserLimitsRow]:
        """Limits of users: all, or those of one and what holds for everybody."""
        return user_limits_rows(self._driver.controller.state, self.now_ms(), only)

    async def usage(
        self,
        by: str,
        since_ms: int,
        until_ms: int,
        user: str | None = None,
        queue: str | None = None,
    ) -> UsageReport:
        """Who used how much GPU time between two points of time, and what it cost."""
        driver, now = self._driver, self.now_ms()
        wanted = (since_ms, until_ms, user, queue)
        outcomes: dict[str, str] = {}
        if by == OUTCOME:
            outcomes |= await asyncio.to_thread(driver.store.charged_states, *wanted)
        sums = UsageSums(by, since_ms, min(until_ms, now), outcomes)
        await asyncio.to_thread(lambda: sums.add(driver.store.each_charge(*wanted)))
        running = [
            row
            for row in driver.usage.open_rows(driver.jobs, now)
            if user in (None, row.user) and queue in (None, row.queue)
        ]
        outcomes |= {row.job: driver.jobs[row.job].state for row in running}
        currency = driver.controller.state.prices.currency

        def report() -> UsageReport:
            sums.add(running)
            return sums.report(currency)

        return await asyncio.to_thread(report)

    def gpu_seconds(self) -> Mapping[tuple[str, str, str], float]:
        """By queue, user and GPU type: GPU time since the manager started."""
        driver = self._driver
        found = Counter(driver.usage.closed)
        for row in driver.usage.open_rows(driver.jobs, self.now_ms()):
            found[row.queue, row.user, row.gpu_type] += row.gpu_ms
        return {key: gpu_ms / (WHOLE * SECOND) for key, gpu_ms in found.items()}

    def prices(self) -> PricesRow:
        prices = self._driver.controller.state.prices
        return PricesRow(dict(prices_as_stated(prices)), prices.currency)

    def policy(self) -> PolicyRow:
        driver = self._driver
        decides = not driver.policy_trouble  # else another one stands in, with options of its own
        effective = effective_options(driver.controller.policy)
        return PolicyRow(
            name=driver.policy.name,
            options=plain(effective) if decides else dict(driver.policy.options),
            obeys_queues=getattr(driver.controller.policy, "obeys_queues", False),
            judges_deadlines=getattr(driver.controller.policy, "judges_deadlines", False),
            since_s=driver.policy_since_ms / 1000,
            trouble=" ".join(driver.policy_notes()) or driver.refused or None,
        )


def _finds(by: Asker | None, user: str) -> bool:
    return by is None or by.finds(user)


def _whole(gpus: int | None) -> float | None:
    return None if gpus is None else amount(gpus)


def _aside_row(aside: GpuAside | None) -> SetAsideRow | None:
    return None if aside is None else SetAsideRow(aside.since_ms / SECOND, aside.why)


def _was_declined(live: LiveJob) -> bool:
    """Whether no promise was made for its deadline; what is promised is said with the promise."""
    notice = live.history.deadline
    return notice is None or notice.what is DeadlineOutcome.DECLINED


def _speed_source(state: State, kind: str) -> str:
    if kind in state.stated_speeds:
        return "stated"
    return "measured" if kind in state.type_speeds.by_type() else "assumed"
