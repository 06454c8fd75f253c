"""Submitting jobs: checked, their code copied, stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from trainmaster.core.state import ScopeKey
from trainmaster.daemon.data_folder import largest_number, last_given
from trainmaster.daemon.dependencies import DependencyState, outlook
from trainmaster.daemon.driver import EVENTS_PER_STEP, Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import (
    Hold,
    LiveJob,
    StoredSubmission,
    submitted_job,
)
from trainmaster.daemon.queries import Queries
from trainmaster.daemon.quota_rows import LowBudget, warnings_for
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.request_errors import RequestError
from trainmaster.daemon.service_api import (
    RELEASED_FIRST,
    Accepted,
    Asker,
    Conflict,
    Forecast,
    JobStatus,
    NotFound,
    Submission,
)
from trainmaster.daemon.submission_checks import NEW_QUEUE, SubmissionChecks
from trainmaster.daemon.submitted_files import SubmittedFiles
from trainmaster.model import events as e
from trainmaster.model.job import Estimate
from trainmaster.model.profile import Profile, profile_of
from trainmaster.model.submission import Array, Dependency
from trainmaster.store.rows import JobFilter, KeyRow
from trainmaster.text.stop_messages import ended_as

MOST_ELEMENTS = 100_000
T = TypeVar("T")
Known = tuple[Profile | None, Estimate | None]
"""What earlier runs say of a job."""


@contextmanager
def _secrets_named(asked: Iterable[Submission]) -> Iterator[None]:
    """Files of secrets are looked for with the data of a job: by what they are where one is missing."""
    try:
        yield
    except RequestError as no:
        said = str(no)
        for name, path in (each for job in asked for each in job.recipe.secrets):
            said = said.replace(f"data {path} does", f"secrets {name}={path} does")
        if said == str(no):
            raise
        raise RequestError(said) from None


class Submissions:
    """Turns submissions into live jobs; answers when they are durable."""

    def __init__(
        self,
        driver: Driver,
        folder: Path,
        files: SubmittedFiles,
        queries: Queries,
        checks: SubmissionChecks,
    ) -> None:
        self._driver = driver
        self._queries = queries
        self._checks = checks
        self._folder = folder
        self._warned: dict[tuple[str, ScopeKey], tuple[float, bool]] = {}
        """At which stage of a budget its users were warned last."""
        self._number = max(
            driver.store.last_number(),
            largest_number(folder / "runs", folder / "jobs"),
            last_given(folder),
        )
        self._submitted_files = files
        self._in_flight: dict[str, asyncio.Task[Sequence[Accepted]]] = {}
        """Idempotency keys of submissions in progress."""

    async def submit(
        self,
        asked: Sequence[Submission],
        key: str | None = None,
        request_hash: str = "",
        by: Asker | None = None,
    ) -> Sequence[Accepted]:
        """All of them or none; answered when they are durable."""
        while key is not None and key in self._in_flight:
            await self._driver.until_stored(self._in_flight[key])
        submitting = (
            self._submit(asked, (), by)
            if key is None
            else self._submit_once(asked, key, request_hash, by)
        )
        # It goes on, and its key stays busy, until it is stored: even if its client does not wait.
        task, name = asyncio.create_task(submitting), key or uuid4().hex
        self._in_flight[name] = task
        task.add_done_callback(lambda _: self._in_flight.pop(name))
        await self._driver.until_stored(task)
        return task.result()

    async def _submit_once(
        self, asked: Sequence[Submission], key: str, request_hash: str, by: Asker | None
    ) -> Sequence[Accepted]:
        known = await asyncio.to_thread(self._driver.store.key, key)
        if known is None and " " in key:  # an earlier version stored keys without their users
            bare = key.rpartition(" ")[2]
            known = await asyncio.to_thread(self._driver.store.key, bare)
        if known is not None:
            return _answered(known, request_hash)
        row = KeyRow(key, self._driver.clock.now(), request_hash, "")
        return await self._submit(asked, (row,), by)

    async def _submit(
        self, asked: Sequence[Submission], keys: Sequence[KeyRow], by: Asker | None
    ) -> Sequence[Accepted]:
        self._checks.check_number(asked)
        self._checks.check_user_jobs(asked)
        queues = {each.job.queue for each in asked}
        self._checks.check_queues(queues)
        new_queues = await self._checks.new_queues(queues)
        checked = [self._checks.checked(each) async for each in _yielding(asked)]
        waits = [
            await asyncio.to_thread(self._dependencies, each, by) if each.depends_on else ()
            for each in checked
        ]
        self._driver.writer.refuse_in_trouble()
        with _secrets_named(checked):
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
                is_new = each.job.queue in new_queues
                answers.append(Accepted(ids, copy=copy, left_out=left_out, is_new_queue=is_new))
            self._driver.writer.refuse_in_trouble()
        answer = json.dumps([list(each.ids) for each in answers])
        preruns = self._driver.preruns
        passed = await asyncio.to_thread(preruns.look_up, new_jobs)
        preruns.plan(new_jobs, passed, self._driver.clock.now())
        try:
            request = Request(
                events=await self._events(new_jobs),
                new_jobs=new_jobs,
                keys=[replace(row, answer_json=answer) for row in keys],
            )
            self._driver.take_in(request)
        except BaseException:
            self._driver.inbox.follow_up(preruns.withdraw(new_jobs))
            raise
        await request.done
        self._checks.remember_queues(queues)
        notices = {live.id: live.history.deadline for live in new_jobs}
        return [
            replace(answer, deadline=notices[answer.ids[-1]], warnings=self._new_warnings(each))
            for each, answer in zip(listed, answers, strict=True)
        ]

    async def _events(self, new_jobs: Sequence[LiveJob]) -> list[LoggedEvent]:
        for live in new_jobs:
            self._driver.host_bookings.book(live)
        known = await self._known(new_jobs)
        return [_submitted(live, *known[live.id]) for live in new_jobs]

    async def _known(self, new_jobs: Sequence[LiveJob]) -> dict[str, Known]:
        """What is known of their programs: from their job files, and by what earlier runs have shown."""
        of = self._driver.known_profiles.of
        programs = await asyncio.to_thread(lambda: [of(live) for live in new_jobs])
        estimate, memory = self._driver.run_times.first_estimate, self._driver.memory_forecasts
        found: dict[str, Known] = {}
        async for live, program in _yielding(zip(new_jobs, programs, strict=True)):
            stated = stated_profile(live.spec)
            shown = memory.profile(live, None if program is None else program.profile, stated)
            found[live.id] = (shown, estimate(live, program))
        return found

    async def check(self, asked: Submission, by: Asker | None = None) -> tuple[JobStatus, Forecast]:
        """A dry run: what the job would be and when it would start, without submitting it."""
        self._checks.check_queues([asked.job.queue])
        self._checks.check_user_jobs([asked])
        asked = self._checks.checked(asked)
        with _secrets_named([asked]):
            await self._submitted_files.check(asked)
        first = next(self._elements(asked, "0", self._dependencies(asked, by)))
        new = await self._checks.new_queues([asked.job.queue])
        status = self._queries.draft(first)
        said = (*status.remarks, *(NEW_QUEUE.format(queue=name) for name in new))
        said = (*said, *(low.warning for low in self._low_budgets(asked)))
        profile, estimate = (await self._known([first]))[first.id]
        forecast = await self._queries.forecast(
            e.JobSubmitted(first.job, estimate, profile=profile)
        )
        if first.holds:
            forecast = replace(forecast, start_ms=None, basis=RELEASED_FIRST)
        return replace(status, remarks=said), forecast

    def _low_budgets(self, asked: Submission) -> list[LowBudget]:
        """Budgets that it is charged to and that little is left of."""
        state, job = self._driver.controller.state, asked.job
        return warnings_for(state, self._driver.clock.now(), job.queue, job.user)

    def _new_warnings(self, asked: Submission) -> tuple[str, ...]:
        """What its user was not told yet: once in a period, and once more when it is used up."""
        said = []
        for low in self._low_budgets(asked):
            who = asked.job.user, low.key
            if self._warned.get(who) != low.stage:
                self._warned[who] = low.stage
                said.append(low.warning)
        return tuple(said)

    def _dependencies(self, asked: Submission, by: Asker | None) -> tuple[Dependency, ...]:
        """What it depends on, arrays expanded; a RequestError where that can never be met."""
        found: list[Dependency] = []
        for wanted in asked.depends_on:
            owner = self._driver.stored_owner_of(wanted.job)
            if owner is not None and (by is None or by.finds(owner)):
                found.append(wanted)
                continue
            named = self._queries.newest_named(wanted.job, by)
            if named is not None and named.array is None:
                found.append(replace(wanted, job=named.id))
                continue
            array = wanted.job if named is None else named.array
            rows = self._driver.store.jobs(JobFilter(array=array, limit=MOST_ELEMENTS))
            if not rows or not (by is None or by.finds(rows[0].user)):
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
        if self._driver.inputs.is_blocked(asked.recipe, asked.data):
            shared.add(Hold.INPUT)
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
            warm = self._driver.warm_nodes.of(recipe.program_digest)
            job = submitted_job(asked, id, now, warm)
            yield LiveJob(
                job=job,
                name=recipe.name,
                stored=StoredSubmission(recipe, job, depends_on, kept_array, asked.data),
                spec=asked.spec,
                array=None if index is None else number,
                array_index=index,
                holds=holds,
            )


async def _yielding(many: Iterable[T]) -> AsyncIterator[T]:
    """These, yielding to other tasks now and then."""
    for count, each in enumerate(many, 1):
        yield each
        if count % EVENTS_PER_STEP == 0:
            await asyncio.sleep(0)


def _answered(known: KeyRow, request_hash: str) -> Sequence[Accepted]:
    if known.request_hash != request_hash:
        raise Conflict("this idempotency key was used for another request: use a new one.")
    return [Accepted(tuple(ids), was_known=True) for ids in json.loads(known.answer_json)]


def _submitted(live: LiveJob, profile: Profile | None, estimate: Estimate | None) -> LoggedEvent:
    detail: dict[str, object] = {"name": live.name}
    if live.holds:
        detail["held_for"] = sorted(hold.value for hold in live.holds)
    prerun = live.history.prerun
    if prerun is not None and prerun.passed_as:
        detail["passed_as"] = prerun.passed_as
    is_first = prerun is not None and not prerun.passed_as
    event = e.JobSubmitted(
        live.job, estimate, profile=profile, held=bool(live.holds), preflight=is_first
    )
    return LoggedEvent(event, detail)


def stated_profile(spec: Mapping[str, Any]) -> Profile | None:
    """What was measured of the program before it was submitted, by its job file."""
    said = spec.get("profile")
    return None if said is None else profile_of(said)
