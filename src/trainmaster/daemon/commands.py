"""What users may ask the manager to do: submit jobs, change them, change the queues and the policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from trainmaster.core.last_resort import loses_work, unsaved_ms
from trainmaster.core.lifecycle import Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import can_rebind
from trainmaster.core.suspension import NOTHING_PLANNED
from trainmaster.daemon.data_folder import largest_number
from trainmaster.daemon.dependencies import DependencyState, outlook
from trainmaster.daemon.driver import EVENTS_PER_STEP, Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import (
    Hold,
    LiveJob,
    StoredSubmission,
    stored_submission,
    submitted_job,
)
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.queries import Queries
from trainmaster.daemon.recovery import has_run
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.request_errors import WorkWouldBeLost
from trainmaster.daemon.service_api import (
    Accepted,
    Conflict,
    Forecast,
    JobChanges,
    JobStatus,
    NotFound,
    RequestError,
    Submission,
    TooMany,
    Unavailable,
)
from trainmaster.daemon.submitted_files import SubmittedFiles
from trainmaster.model import events as e
from trainmaster.model.actions import Kill, Migrate
from trainmaster.model.causes import EndCode, EndReason, Suspender, Suspension
from trainmaster.model.job import Demand, Job, allows_type
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.model.submission import Array, Dependency
from trainmaster.model.topology import SLOT_TYPE, Topology
from trainmaster.model.units import GIB, WHOLE
from trainmaster.placement.gang import bits
from trainmaster.placement.placers import ever_fits
from trainmaster.policy_files import is_path
from trainmaster.store.rows import JobFilter, KeyRow
from trainmaster.text.causes import ended_as
from trainmaster.text.formatting import exact_length, gpu_count, length, plural
from trainmaster.text.suggest import did_you_mean

MOST_ELEMENTS = 100_000
DEFAULT_QUEUE = "default"
DURATIONS = ("max_runtime", "deadline", "grace_period")
T = TypeVar("T")


class Commands:
    """Turns requests into events; every method returns when what it did is durable."""

    def __init__(self, driver: Driver, folder: Path, queries: Queries) -> None:
        self._driver = driver
        self._queries = queries
        self._folder = folder
        self._number = max(
            driver.store.last_number(), largest_number(folder / "runs", folder / "jobs")
        )
        self._empty = Occupancy(driver.controller.state.topology)
        self._demands: dict[Demand, Demand] = {}
        """Equal demands are one object: the controller caches by identity."""
        self._submitted_files = SubmittedFiles(
            folder, driver.engine.abilities.shares_files, driver.site_limits
        )
        self._queue_names = {DEFAULT_QUEUE, *(live.job.queue for live in driver.jobs.values())}
        """Each of them is a label in the metrics."""
        self._in_flight: dict[str, asyncio.Task[Sequence[Accepted]]] = {}
        """Idempotency keys of submissions in progress."""

    async def outputs(self, job: JobStatus) -> tuple[str, Sequence[tuple[str, int, float]]]:
        """The copy that a job ran in, and path, size and time of what it wrote there."""
        folder = stored_submission(job.row).recipe.workdir
        found = await self._submitted_files.outputs(folder)
        if found is None:
            raise Conflict(f"job {job.row.id} ran in {folder} itself: what it wrote is there.")
        return folder, found

    def outputs_archive(self, folder: str) -> AsyncIterator[bytes]:
        """What a job wrote in its copy, as a tar archive."""
        return self._submitted_files.archive(folder)

    async def close(self) -> None:
        """End what works on files of submissions."""
        await self._submitted_files.close()

    # -- submitting ------------------------------------------------------------------------------------

    async def submit(
        self, asked: Sequence[Submission], key: str | None = None, request_hash: str = ""
    ) -> Sequence[Accepted]:
        """All of them or none; answered when they are durable."""
        while key is not None and key in self._in_flight:
            await self._driver.until_stored(self._in_flight[key])
        submitting = (
            self._submit(asked, ()) if key is None else self._submit_once(asked, key, request_hash)
        )
        # It goes on, and its key stays busy, until it is stored: even if its client does not wait.
        task, name = asyncio.create_task(submitting), key or uuid4().hex
        self._in_flight[name] = task
        task.add_done_callback(lambda _: self._in_flight.pop(name))
        await self._driver.until_stored(task)
        return task.result()

    async def _submit_once(
        self, asked: Sequence[Submission], key: str, request_hash: str
    ) -> Sequence[Accepted]:
        known = await asyncio.to_thread(self._driver.store.key, key)
        if known is not None:
            return _answered(known, request_hash)
        row = KeyRow(key, self._driver.clock.now(), request_hash, "")
        return await self._submit(asked, (row,))

    async def _submit(
        self, asked: Sequence[Submission], keys: Sequence[KeyRow]
    ) -> Sequence[Accepted]:
        self._check_number(asked)
        checked = [self._checked(each) async for each in _yielding(asked)]
        waits = [
            await asyncio.to_thread(self._dependencies, each) if each.depends_on else ()
            for each in checked
        ]
        self._driver.writer.refuse_in_trouble()
        listed = await self._submitted_files.look(checked)
        answers: list[Accepted] = []
        new_jobs: list[LiveJob] = []
        async with self._submitted_files.copies() as copies:
            async for each, depends_on in _yielding(zip(listed, waits, strict=True)):
                self._number += 1
                number = str(self._number)
                each, left_out = await copies.made_for(each, number)
                elements = [
                    one async for one in _yielding(self._elements(each, number, depends_on))
                ]
                new_jobs += elements
                ids = tuple(live.id for live in elements)
                ids = (number, *ids) if each.array is not None else ids
                copy = each.recipe.workdir if each.keeps_code else None
                answers.append(Accepted(ids, copy=copy, left_out=left_out))
            self._driver.writer.refuse_in_trouble()
        answer = json.dumps([list(each.ids) for each in answers])
        request = Request(
            events=[_submitted(live) for live in new_jobs],
            new_jobs=new_jobs,
            keys=[replace(row, answer_json=answer) for row in keys],
        )
        self._driver.take_in(request)
        await request.done
        notices = {live.id: live.history.deadline for live in new_jobs}
        return [replace(each, deadline=notices[each.ids[-1]]) for each in answers]

    async def check(self, asked: Submission) -> tuple[JobStatus, Forecast]:
        """A dry run: what the job would be and when it would start, without submitting it."""
        asked = self._checked(asked)
        await self._submitted_files.check(asked)
        first = next(self._elements(asked, "0", self._dependencies(asked)))
        return self._queries.draft(first), await self._queries.forecast(asked)

    def _checked(self, asked: Submission) -> Submission:
        """The submission with the defaults of this cluster; a RequestError where it can never run here."""
        state = self._driver.controller.state
        demand = _on_slots(asked.job.demand, state.topology)
        demand = self._demands.setdefault(demand, demand)
        asked = replace(asked, job=replace(asked.job, demand=demand))
        is_moldable = self._driver.controller.policy.is_moldable
        self._check_type(demand.gpu_type)
        if not ever_fits(self._empty, demand, is_moldable=is_moldable):
            raise RequestError(
                f"{asked.recipe.name or 'the job'} asks for {_demand_words(asked)}, but"
                f" {_capacity(state.topology)}: ask for less, or for another type."
            )
        self._check_queue(asked.job.queue)
        self._check_preemptible(asked.job)
        self._check_maximum(asked)
        self._check_grace(asked.recipe.grace_ms)
        most = self._driver.site_limits.array_elements
        if asked.array is not None and len(asked.array.indices) > most:
            raise RequestError(
                f"an array has at most {most:,} jobs here (the limit array_elements), not"
                f" {len(asked.array.indices):,}: submit several."
            )
        return asked

    def _check_number(self, asked: Sequence[Submission]) -> None:
        """Whether so many more jobs are taken."""
        limits, live = self._driver.site_limits, len(self._driver.jobs)
        count = sum(1 if each.array is None else len(each.array.indices) for each in asked)
        if count > limits.jobs_per_request:
            raise RequestError(
                f"a submission has at most {limits.jobs_per_request:,} jobs here (the limit"
                f" jobs_per_request), not {count:,}: submit them in several parts."
            )
        if live + count > limits.live_jobs:
            raise TooMany(
                f"this manager has {plural(live, 'job')} that have not ended and takes"
                f" {limits.live_jobs:,} (the limit live_jobs): wait until some have ended."
            )

    def _check_grace(self, grace_ms: int) -> None:
        most = self._driver.site_limits.max_grace
        if grace_ms > most:
            raise RequestError(
                f"a grace period of {length(grace_ms)} is longer than the {length(most)} that this"
                " manager allows (its limit max_grace): ask for less."
            )

    def _check_type(self, wanted: str | None) -> None:
        """A type that no node has is a mistake; `A|B` is either of them."""
        types = {node.type.name for node in self._driver.controller.state.topology.nodes}
        if not any(allows_type(wanted, kind) for kind in types):
            raise RequestError(
                f"gpus must be a number, or TYPE:NUMBER with a type that is here"
                f" ({', '.join(sorted(types))}), not {wanted!r}."
            )

    def _check_queue(self, name: str) -> None:
        """Where queues are defined, an unknown name is a mistake."""
        queues = self._driver.controller.state.queues
        most = self._driver.site_limits.queue_names
        if not queues and name not in self._queue_names and len(self._queue_names) >= most:
            raise RequestError(
                f"jobs use {most:,} queues already (the limit queue_names): use one of them, or define"
                " queues with `trainmaster queue set`."
            )
        if queues and name not in {*queues, DEFAULT_QUEUE}:
            near = did_you_mean(name, sorted({*queues, DEFAULT_QUEUE}))
            raise RequestError(f"there is no queue {name}; {near}")
        self._queue_names.add(name)

    def _check_maximum(self, asked: Submission) -> None:
        """Refuse a job that the maximum of its queue, or of one around it, keeps out for good."""
        if not getattr(self._driver.controller.policy, "obeys_queues", False):
            return
        queues, need = self._driver.controller.state.queues, asked.job.demand.nominal.total_share
        queue = queues.get(asked.job.queue)
        while queue is not None:
            if queue.maximum is not None and need > queue.maximum:
                raise RequestError(
                    f"{asked.recipe.name or 'the job'} asks for {gpu_count(need)}, but queue"
                    f" {queue.name} may hold {gpu_count(queue.maximum)} at most (its maximum): ask for"
                    " fewer, or choose another queue."
                )
            queue = None if queue.parent is None else queues.get(queue.parent)

    def _check_preemptible(self, job: Job) -> None:
        """Refuse `preemptible: false` where its queue, or one around it, does not allow it."""
        queues, name = self._driver.controller.state.queues, job.queue
        while not job.preemptible and name in queues:
            if not queues[name].allow_unpreemptible:
                raise RequestError(
                    f"queue {name} does not allow `preemptible: false`: leave it out, or choose"
                    " another queue."
                )
            name = queues[name].parent or ""

    def _dependencies(self, asked: Submission) -> tuple[Dependency, ...]:
        """What it depends on, arrays expanded; a RequestError where that can never be met."""
        found: list[Dependency] = []
        for wanted in asked.depends_on:
            if self._driver.state_of(wanted.job) is not None:
                found.append(wanted)
                continue
            named = self._driver.store.named(wanted.job)
            if named is not None and named.array is None:
                found.append(replace(wanted, job=named.id))
                continue
            array = wanted.job if named is None else named.array
            rows = self._driver.store.jobs(JobFilter(array=array, limit=MOST_ELEMENTS))
            if not rows:
                raise NotFound(f"there is no job {wanted.job} to wait for.")
            found += [replace(wanted, job=row.id, covers_array=True) for row in reversed(rows)]
        for wanted in found:
            state = self._driver.state_of(wanted.job)
            if outlook(wanted, state) is DependencyState.NEVER:
                how = ended_as(state or "unknown")
                raise Conflict(
                    f"job {wanted.job} {how}, so a job that depends on it can never start."
                )
        return tuple(found)

    def _elements(
        self, asked: Submission, number: str, depends_on: tuple[Dependency, ...]
    ) -> Iterator[LiveJob]:
        now, array = self._driver.clock.now(), asked.array
        shared = {Hold.OWNER} if asked.is_held else set()
        outlooks = (outlook(each, self._driver.state_of(each.job)) for each in depends_on)
        if any(each is not DependencyState.MET for each in outlooks):
            shared.add(Hold.DEPENDENCY)
        for position, index in enumerate((None,) if array is None else array.indices):
            id = number if index is None else f"{number}_{index}"
            holds = set(shared)
            if array is not None and array.limit is not None and position >= array.limit:
                holds.add(Hold.ARRAY)
            recipe = asked.recipe
            place = recipe.checkpoint_dir or str(self._folder / "jobs" / id / "checkpoints")
            size = None if array is None else len(array.indices)
            recipe = replace(
                recipe,
                checkpoint_dir=place,
                array_index=index,
                array_size=size,
                uuid=uuid4().hex,
            )
            kept_array = None if array is None else Array((), array.limit)
            job = submitted_job(asked, id, now)
            yield LiveJob(
                job=job,
                name=recipe.name,
                stored=StoredSubmission(recipe, job, depends_on, kept_array),
                spec=asked.spec,
                array=None if index is None else number,
                array_index=index,
                holds=holds,
            )

    # -- changing --------------------------------------------------------------------------------------

    async def cancel(self, job: str, user: str = "", *, now: bool = False) -> None:
        """End it; `now`: without a grace period, also where it is being ended already.

        While the store cannot be written, runs are ended all the same: it may be this one that fills the
        disk. Their journals say so, and the store as soon as it can.
        """
        lives = await self._driver.live(job)
        end, by = EndReason(EndCode.CANCELLED, by=user), _by(user)
        graces = [live.recipe.grace_ms for live in lives]
        if now:
            for live in lives:
                live.with_grace(0)
        request = Request(events=[LoggedEvent(e.JobWithdrawn(live.id), by, end) for live in lives])
        try:
            await self._driver.ask(request)
        except Unavailable:
            if not await self._end_unrecorded(lives):
                if not request.is_taken:  # refused: it is not going to be ended
                    for live, grace_ms in zip(lives, graces, strict=True):
                        live.with_grace(grace_ms)
                raise
            self._driver.inbox.request(request)
            return
        if now:
            standing = self._driver.dispatcher.standing
            kills = [standing.get(live.id) for live in lives]
            await self._driver.dispatcher.send(each for each in kills if isinstance(each, Kill))

    async def _end_unrecorded(self, lives: Iterable[LiveJob]) -> bool:
        """End the runs of these jobs before that is stored; whether there were any."""
        records = [live.record for live in lives if live.record is not None]
        kills = [Kill(record.run, cancels=True) for record in records if has_run(record)]
        await self._driver.dispatcher.send_unconfirmed(kills)
        return bool(kills)

    async def suspend(self, job: str, user: str = "", *, force: bool = False) -> None:
        """Take it off its devices and hold it until it is resumed."""
        if not force:
            for live in await self._driver.live(job):
                self._refuse_loss(live, "suspend it")
        await self._suspend(job, Suspension(Suspender.USER, user))

    async def idle(self, job: str, user: str = "") -> None:
        """The same, asked for by a session that is not used."""
        await self._suspend(job, Suspension(Suspender.IDLE))

    async def _suspend(self, job: str, by: Suspension) -> None:
        events = []
        lives = [each for each in await self._changeable(job) if not _is_stopping(each)]
        if not lives:
            raise Conflict(f"job {job} is being ended already, so it cannot be suspended.")
        for live in lives:
            if Hold.OWNER not in live.holds:
                live.holds.add(Hold.OWNER)
                events.append(LoggedEvent(e.JobHeld(live.id), _hold_detail(live, by), by))
        await self._submit_events(events)

    async def resume(self, job: str, user: str = "") -> None:
        lives = [live for live in await self._changeable(job) if Hold.OWNER in live.holds]
        if not lives:
            raise Conflict(
                f"job {job} was not suspended by hand: `trainmaster explain {job}` says why it waits."
            )
        dependencies = self._driver.dependencies
        await self._submit_events(
            [
                logged
                for live in lives
                for logged in dependencies.remove_hold(live, Hold.OWNER, user)
            ],
            lives,
        )

    async def save(self, job: str, user: str = "") -> None:
        """Ask it to write a checkpoint now and go on."""
        for live in await self._driver.live(job):
            if live.record is None or live.record.since_ms is None:
                raise Conflict(f"job {live.id} is not running, so it cannot save.")
            await self._driver.engine.save(live.record.run)

    async def change(self, job: str, changes: JobChanges) -> None:
        events, stated = [], changes.model_dump(exclude_unset=True)
        shown = {name: _shown(name, value) for name, value in stated.items()}
        if "queue" in stated:
            self._check_queue(changes.queue)
        if "grace_period" in stated:
            self._check_grace(changes.grace_period)
        lives = await self._changeable(job)
        for live in lives:
            self._check_preemptible(_changed(live.job, stated))
        for live in lives:
            live.respecify(shown)
            live.name = stated.get("name", live.name)
            if "grace_period" in stated:
                live.with_grace(changes.grace_period)
            if "max_runtime" in stated:
                live.with_runtime(changes.max_runtime)
                self._driver.limit(live)
            events.append(LoggedEvent(e.JobChanged(_changed(live.job, stated)), shown))
        await self._submit_events(events)

    def _refuse_loss(self, live: LiveJob, what: str, target: Placement | None = None) -> None:
        """Refuse what would end a program that can be neither suspended in memory nor told to save."""
        state, record, now = self._driver.controller.state, live.record, self._driver.clock.now()
        if record is None or record.placement is None:
            return
        if target is None:
            is_lost = loses_work(state, record, now, NOTHING_PLANNED)
        else:
            is_lost = record.cannot_save and not can_rebind(
                state.topology, record.placement, target
            )
        if is_lost and unsaved_ms(record, now):
            raise WorkWouldBeLost(
                f"job {live.id} can be neither suspended in memory nor told to save:"
                f" {length(unsaved_ms(record, now))} of its work would be lost. To {what} all the"
                " same, add --force (API: force)."
            )

    async def move(self, job: str, node: str, *, force: bool = False) -> None:
        live = await self._driver.one(job)
        record = live.record
        if record is None or record.placement is None:
            raise Conflict(f"job {job} is not running, so there is nothing to move.")
        placement = self._devices_on(record.placement, node)
        if placement is None:
            raise Conflict(f"{node} does not have {len(record.placement.slices)} free devices.")
        if not force:
            self._refuse_loss(live, "move it", placement)
        asked = LoggedEvent(e.ActionRequested(Migrate(live.id, placement)), {"to": node})
        await self._driver.ask(Request(events=[asked], about=live.id))

    def _devices_on(self, held: Placement, name: str) -> Placement | None:
        """As many devices of that node, free now."""
        state = self._driver.controller.state
        node = state.topology.node_by_name.get(name)
        if node is None:
            raise NotFound(f"there is no node {name}: `trainmaster nodes` lists them.")
        free = [node.first_gpu + local for local in bits(state.occupancy.whole[node.index])]
        count = len(held.slices)
        if len(free) < count:
            return None
        slices = tuple(
            Slice(node.index, gpu, WHOLE, piece.memory, piece.stage)
            for gpu, piece in zip(free, held.slices, strict=False)
        )
        return replace(held, slices=slices, span=state.topology.span_of_gpus(free[:count]))

    async def define_queue(self, queue: Queue) -> None:
        await self._submit_events([LoggedEvent(e.QueueDefined(queue))])

    async def remove_queue(self, name: str) -> None:
        """Forget a queue that nothing is in: no job that has not ended, and no other queue."""
        state = self._driver.controller.state
        if name not in state.queues:
            raise NotFound(f"there is no queue {name}: `trainmaster queues` lists them.")
        inside = sorted(each.name for each in state.queues.values() if each.parent == name)
        if inside:
            raise Conflict(
                f"queue {name} has queues in it ({', '.join(inside)}): remove them first."
            )
        jobs = [record.id for record in state.jobs.values() if record.job.queue == name]
        if jobs:
            raise Conflict(
                f"queue {name} has {plural(len(jobs), 'job')} that have not ended:"
                f" `trainmaster set {jobs[0]} queue=NAME` moves one to another queue."
            )
        await self._submit_events([LoggedEvent(e.QueueRemoved(name))])

    async def drain(self, node: str) -> None:
        """Start nothing more there; the policy moves what runs there, or it stays until it ends."""
        await self._submit_events([LoggedEvent(e.NodeDraining(self._node(node)))])

    async def undrain(self, node: str) -> None:
        await self._submit_events([LoggedEvent(e.NodeUndrained(self._node(node)))])

    def _node(self, name: str) -> int:
        node = self._driver.controller.state.topology.node_by_name.get(name)
        if node is None:
            raise NotFound(f"there is no node {name}: `trainmaster nodes` lists them.")
        return node.index

    async def set_policy(self, spec: PolicySpec) -> None:
        """Its files must come with it: the manager reads none of its own accord."""
        if is_path(spec.name) and not spec.source:
            raise RequestError(f"{spec.name}: send the text of a policy file with its name.")
        await asyncio.to_thread(policy_of, spec, _without_content)
        await self._submit_events([LoggedEvent(e.PolicyChanged.to(spec))])

    async def _changeable(self, job: str) -> Sequence[LiveJob]:
        """The same, refused before anything is changed if the change could not be stored."""
        found = await self._driver.live(job)
        self._driver.writer.refuse_in_trouble()
        return found

    async def _submit_events(
        self, events: Iterable[LoggedEvent], touched: Iterable[LiveJob] = ()
    ) -> None:
        """Submit these events; without any there is no step, but jobs that were touched are written."""
        events = list(events)
        said = {logged.event.job for logged in events if isinstance(logged.event, e.JobReleased)}
        events += [LoggedEvent(e.JobChanged(live.job)) for live in touched if live.id not in said]
        if events:
            await self._driver.ask(Request(events=events))


def _without_content(file: str) -> str:
    """A policy that is asked for names a file: what lies there may hang, or never end."""
    raise RequestError(f"{file}: send the content of a file that an option names, in `files`.")


async def _yielding(many: Iterable[T]) -> AsyncIterator[T]:
    """These, yielding to other tasks now and then."""
    for count, each in enumerate(many, 1):
        yield each
        if count % EVENTS_PER_STEP == 0:
            await asyncio.sleep(0)


def _is_stopping(live: LiveJob) -> bool:
    return live.record is not None and live.record.phase is Phase.STOPPING


def _answered(known: KeyRow, request_hash: str) -> Sequence[Accepted]:
    if known.request_hash != request_hash:
        raise Conflict("this idempotency key was used for another request: use a new one.")
    return [Accepted(tuple(ids), was_known=True) for ids in json.loads(known.answer_json)]


def _on_slots(demand: Demand, topology: Topology) -> Demand:
    """A job on CPU slots books as much host memory as it may keep there while it is suspended.

    By default it is a quarter of the memory of a slot: the rest is for other jobs that are suspended in
    memory meanwhile.
    """
    slots = [node.type.memory for node in topology.nodes if node.type.name == SLOT_TYPE]
    if not slots or demand.host_memory is not None:
        return demand
    return replace(demand, host_memory=min(slots))


def _submitted(live: LiveJob) -> LoggedEvent:
    detail: dict[str, object] = {"name": live.name}
    if live.holds:
        detail["held_for"] = sorted(hold.value for hold in live.holds)
    return LoggedEvent(e.JobSubmitted(live.job, held=bool(live.holds)), detail)


def _hold_detail(live: LiveJob, by: Suspension) -> dict[str, object]:
    detail: dict[str, object] = {"has_run": live.has_started, **_by(by.user)}
    return detail | ({"idle": True} if by.by == Suspender.IDLE else {})


def _by(user: str) -> dict[str, object]:
    return {"by": user} if user else {}


COPIED = ("priority", "queue", "retries", "preemptible")
"""Changes that the controller's value of a job takes as they are."""


def _changed(job: Job, stated: Mapping[str, Any]) -> Job:
    own = {name: stated[name] for name in COPIED if name in stated}
    if "grace_period" in stated:
        own["grace_ms"] = stated["grace_period"]
    if "deadline" in stated:
        own["deadline_ms"] = job.submit_ms + stated["deadline"]
    return replace(job, **own)


def _shown(name: str, value: Any) -> object:
    """In the words of a job file."""
    return exact_length(value) if name in DURATIONS else value


def _demand_words(asked: Submission) -> str:
    demand, said = asked.job.demand, asked.recipe
    count, kind = demand.nominal.total_share / WHOLE, demand.gpu_type or "GPU"
    words = [f"{count:g} {kind}" if count == 1 else f"{count:g} {kind}s"]
    if said.memory is not None and demand.host_memory is not None:
        words.append(f"{demand.host_memory / GIB:g} GiB of memory for each")
    if said.cpus is not None and demand.cpus is not None:
        words.append(f"{demand.cpus / 1000:g} cores for each")
    return ", ".join(words)


def _capacity(topology: Topology) -> str:
    """What the largest node has, in words."""
    node = max(topology.nodes, key=lambda each: (each.gpus, each.memory))
    has = (
        f"{node.gpus} {node.type.name}s, {node.cpus / 1000:g} cores and {node.memory / GIB:.0f} GiB"
    )
    if len(topology.nodes) == 1:
        return f"this machine has {has}"
    return f"this cluster has {topology.gpu_count} of them, {has} on its largest node"
