"""Jobs: lists, details, and commands to one of them."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from trainmaster.api import params, serializers
from trainmaster.api.caller import By, Caller, Role
from trainmaster.api.job_lookup import find_job, named_as
from trainmaster.api.last_lines import lines_after_failure
from trainmaster.api.request_body import object_of
from trainmaster.api.responses import (
    ApiError,
    JsonAnswer,
    NotAllowed,
    answer,
    answers,
    changes,
    sends,
    takes,
)
from trainmaster.api.timed_stream import TimedStream
from trainmaster.api.visibility import (
    asker,
    sees_secrets,
    shown_holder,
    shown_notes,
    shown_row,
    shown_spec,
)
from trainmaster.config.job_file import Name
from trainmaster.config.validation import StrictModel, checked
from trainmaster.daemon import response_models as models
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.job_rows import JobRow
from trainmaster.daemon.service_api import JobChanges, JobStatus, NotFound, Unavailable
from trainmaster.model.job_state import WAITING_STATES, JobState
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import SECOND
from trainmaster.store.rows import JobFilter
from trainmaster.text.suggest import did_you_mean

JOB_NOW = "The answer is the job as it is now."
UNRECORDED = "It is told to end; that is stored as soon as the database answers."
STATES = [state.value for state in JobState]


class Destination(StrictModel):
    """Where to move a job."""

    node: Name = Field(description="The node's name.", examples=["n0"])
    force: bool = Field(
        False, description="Move it even if work is lost that it has not saved.", strict=True
    )


def routes(service: Daemon) -> APIRouter:
    router = APIRouter(tags=["jobs"])
    _list(router, service)
    _details(router, service)
    _reports(router, service)
    _commands(router, service)
    return router


def _list(router: APIRouter, service: Daemon) -> None:
    """Many jobs."""

    @router.get(
        "/jobs",
        summary="List jobs, newest first",
        **answers(models.JobList, 422, 503),
    )
    async def list_jobs(
        by: By,
        state: params.States = None,
        user: params.Filter = None,
        queue: params.Filter = None,
        array: params.Filter = None,
        text: params.Filter = None,
        since: params.Since = None,
        before: params.Before = None,
        limit: params.Limit = 100,
        fold: params.Fold = False,
    ) -> Response:
        """All jobs that match every parameter given; `text` is part of the name or id. Of other users' jobs
        a plain user sees id, user, queue, state and GPUs, and does not find them by `text`."""
        if text is not None and by.role is Role.USER:
            if user not in (None, by.user):
                return JsonAnswer(models.JobList([], None, {}, []))
            user = by.user
        wanted = JobFilter(
            states=_states(state),
            user=user,
            queue=queue,
            array=array,
            text=text,
            since_ms=None if since is None else round(since * 1000),
            before=before,
            limit=limit,
            is_folded=fold,
        )
        found = await service.queries.jobs(wanted)
        now = service.queries.now_ms()
        last = found[-1].row.id if len(found) == limit else None
        listed = [shown_row(serializers.job_row(status, now), by) for status in found]
        health = service.health()
        notes = [note for note in (health.trouble, *shown_notes(health, by)) if note]
        counts = dict(await service.queries.counts())
        arrays = [row.array for row in listed if row.array is not None] if fold else []
        folded = await service.queries.array_states(arrays) if fold else None
        return JsonAnswer(models.JobList(listed, last, counts, notes, folded))


def _details(router: APIRouter, service: Daemon) -> None:
    """One job: what it is, why it waits, what has happened to it."""

    @router.get(
        "/jobs/{job}",
        summary="A job with all its details",
        **answers(models.JobDetails, 404, 422, 503),
    )
    async def show_job(job: params.JobId, by: By) -> Response:
        status = await find_job(service, job, by)
        lines = await lines_after_failure(service, status)
        details = serializers.job_details(status, service.queries.now_ms(), lines)
        return JsonAnswer(replace(details, spec=shown_spec(details.spec, by, details.user)))

    @router.get(
        "/jobs/{job}/explain",
        summary="Why a job waits",
        **answers(models.Explanation, 404, 422, 503),
    )
    async def explain(job: params.JobId, by: By) -> Response:
        """The reason with its numbers, the jobs that block it, and a simulated start."""
        return JsonAnswer(await _explanation(service, await find_job(service, job, by), by))

    @router.get(
        "/jobs/{job}/placement",
        summary="Where a job is: its nodes and its devices on them",
        **answers(models.JobPlacement, 404, 422, 503),
    )
    async def placement(job: params.JobId, by: By) -> Response:
        """Of an array, ask for one of its jobs."""
        status = await find_job(service, job, by)
        return JsonAnswer(service.queries.placement(status.row.id))

    @router.get(
        "/jobs/{job}/story",
        summary="What happened to a job",
        **answers(models.Story, 404, 422, 503),
    )
    async def story(job: params.JobId, by: By) -> Response:
        status = await find_job(service, job, by)
        story = await service.queries.story(status.row.id)
        return JsonAnswer(models.Story([serializers.story_entry(each, by) for each in story]))


def _reports(router: APIRouter, service: Daemon) -> None:
    """One job's program: its progress reports and its environment."""

    @router.get(
        "/jobs/{job}/progress",
        summary="Progress reports of a job",
        **answers(models.ProgressList, 404, 422, 503),
    )
    async def progress(job: params.JobId, by: By) -> Response:
        status = await find_job(service, job, by)
        reports = await service.queries.progress(status.row.id)
        return JsonAnswer(
            models.ProgressList([serializers.progress_report(each) for each in reports])
        )

    @router.get(
        "/jobs/{job}/curves",
        summary="A job over time: use of its GPUs, loss and speed",
        **answers(models.JobCurves, 404, 422, 503),
    )
    async def curves(job: params.JobId, by: By) -> Response:
        own = (await find_job(service, job, by)).row.id
        use = await service.queries.gpu_use(own)
        reports = await service.queries.progress(own)
        return JsonAnswer(serializers.job_curves(use, service.queries.why_no_gpu_use(), reports))

    @router.get(
        "/jobs/{job}/attempts",
        summary="Attempts and ranks whose output is kept",
        **answers(models.AttemptList, 404, 422, 503),
    )
    async def attempts(job: params.JobId, by: By) -> Response:
        own = (await find_job(service, job, by)).row.id
        ranks: dict[int, list[int]] = {}
        for file in await service.queries.log_files(own):
            ranks.setdefault(file.attempt, []).append(file.rank)
        return JsonAnswer(
            models.AttemptList([models.AttemptRow(*each) for each in sorted(ranks.items())])
        )

    @router.get(
        "/jobs/{job}/outputs",
        summary="What a job wrote in its copy of the code",
        **answers(models.Outputs, 404, 409, 422, 503),
    )
    async def outputs(job: params.JobId, by: By) -> Response:
        recipe, files = await service.job_outputs.outputs(await find_job(service, job, by))
        folder = recipe.workdir
        return JsonAnswer(models.Outputs(folder, [models.OutputFile(*each) for each in files]))

    @router.get(
        "/jobs/{job}/outputs/archive",
        summary="The same files as a tar archive",
        **sends("application/x-tar", "string", 404, 409, 422, 503),
    )
    async def archive(job: params.JobId, by: By) -> Response:
        recipe, _ = await service.job_outputs.outputs(await find_job(service, job, by))
        pieces = service.job_outputs.outputs_archive(recipe)
        return TimedStream(pieces, service.limits.archive_silence / SECOND, "application/x-tar")

    @router.get(
        "/jobs/{job}/environment",
        summary="Where a job's first rank runs, and its environment",
        **answers(models.RunEnvironment, 404, 409, 422, 503),
    )
    async def environment(job: params.JobId, by: By) -> Response:
        status = await find_job(service, job, by)
        if not sees_secrets(by, status.row.user):
            raise NotAllowed(f"The environment of a job is its owner's, {status.row.user}.")
        with named_as(job, status.row.id):
            workdir, variables = await service.queries.environment(status.row.id)
        return JsonAnswer(models.RunEnvironment(str(workdir), dict(variables)))


ACTIONS = {
    "resume": (
        "Resume a job",
        "A job that was suspended or held runs again when the policy starts it.",
    ),
    "idle": (
        "Suspend an idle session",
        "The same as suspend, asked for by an interactive session that is not used.",
    ),
    "save": ("Ask a job for a checkpoint", "It writes one now and continues."),
}
"""Commands that take a job and nothing else: their summaries and descriptions."""


def _commands(router: APIRouter, service: Daemon) -> None:
    for name in ACTIONS:
        _action(router, service, name)
    _cancel(router, service)
    _suspend(router, service)
    _move(router, service)
    _change(router, service)


def _cancel(router: APIRouter, service: Daemon) -> None:
    @router.post(
        "/jobs/{job}/cancel",
        summary="Cancel a job",
        description=f"A running job is asked to stop, and killed after its grace period. {JOB_NOW}",
        operation_id="cancel",
        **changes(JobRow, accepted=answer(models.UnrecordedCancel, UNRECORDED)),
    )
    async def cancel(job: params.JobId, by: By, now: params.Now = False) -> Response:
        try:
            status = await find_job(service, job, by)
        except Unavailable:
            ended = await service.cancel_unrecorded(job, asker(by))
            if not ended:
                raise
            return JsonAnswer(models.UnrecordedCancel(list(ended), UNRECORDED), 202)
        cancelling = service.job_control.cancel(status.row.id, by.user, now=now)
        return await _done(service, job, status, cancelling)


def _suspend(router: APIRouter, service: Daemon) -> None:
    @router.post(
        "/jobs/{job}/suspend",
        summary="Suspend a job",
        description="It releases its devices and waits until it is resumed. Refused with the code"
        " `work_would_be_lost` where its program can be neither suspended in memory nor told to save,"
        f" unless `force` is true. {JOB_NOW}",
        operation_id="suspend",
        **changes(JobRow),
    )
    async def suspend(job: params.JobId, by: By, force: params.Force = False) -> Response:
        status = await find_job(service, job, by)
        suspending = service.job_control.suspend(status.row.id, by.user, force=force)
        return await _done(service, job, status, suspending)


def _move(router: APIRouter, service: Daemon) -> None:
    @router.post(
        "/jobs/{job}/move",
        summary="Move a job to another node",
        **takes(Destination, JobRow),
    )
    async def move(job: params.JobId, request: Request, by: By) -> Response:
        wanted = checked(Destination, await object_of(request))
        status = await find_job(service, job, by)
        if status.nodes == (wanted.node,):
            raise ApiError(409, f"Job {status.row.id} is on {wanted.node} already.")
        moving = service.job_control.move(status.row.id, wanted.node, force=wanted.force)
        return await _done(service, job, status, moving)


def _change(router: APIRouter, service: Daemon) -> None:
    @router.patch(
        "/jobs/{job}",
        summary="Change a job",
        **takes(JobChanges, JobRow),
    )
    async def change(job: params.JobId, request: Request, by: By) -> Response:
        wanted = checked(JobChanges, await object_of(request))
        if not wanted.model_fields_set:
            names = ", ".join(JobChanges.model_fields)
            raise ApiError(422, f"There is nothing to change: give one of {names}.")
        status = await find_job(service, job, by)
        changing = service.job_control.change(status.row.id, wanted)
        return await _done(service, job, status, changing)


def _action(router: APIRouter, service: Daemon, name: str) -> None:
    summary, description = ACTIONS[name]

    async def do(job: params.JobId, by: By) -> Response:
        status = await find_job(service, job, by)
        doing = getattr(service.job_control, name)(status.row.id, by.user)
        return await _done(service, job, status, doing)

    router.add_api_route(
        f"/jobs/{{job}}/{name}",
        do,
        methods=["POST"],
        name=name,
        operation_id=name,
        summary=summary,
        description=f"{description} {JOB_NOW}",
        **changes(JobRow),
    )


async def _done(
    service: Daemon, job: str, before: JobStatus, command: Coroutine[Any, Any, None]
) -> Response:
    """Carry out a command to a job that was asked for as `job`; the answer is the job as it is then."""
    with named_as(job, before.row.id):
        await command
    status = await service.queries.job(before.row.id)
    return JsonAnswer(serializers.job_row(status, service.queries.now_ms()))


def _waiting_element(array: JobStatus) -> JobStatus | None:
    """The first job of an array that waits: those that only wait for a place in it come last."""
    waiting = [each for each in array.elements if each.row.state in WAITING_STATES]
    free = [each for each in waiting if each.reason is None or not _is_limited(each.reason)]
    return next(iter(free or waiting), None)


def _is_limited(reason: Reason) -> bool:
    return reason.why is Why.ARRAY_LIMIT


async def _explanation(service: Daemon, status: JobStatus, by: Caller) -> models.Explanation:
    """Why it waits, with the jobs that block it as they are now."""
    queries, array = service.queries, None
    if status.elements:
        array, summary = status.row.id, serializers.array_summary(status).sentence
        element = _waiting_element(status)
        if element is not None:
            status = await queries.job(element.row.id)  # elements are without remarks
            status = replace(status, remarks=(f"Array {array}: {summary}", *status.remarks))
    holders = []
    for other in () if status.reason is None else status.reason.held_by[: serializers.MOST_HOLDERS]:
        with suppress(NotFound):
            other_row = serializers.job_row(await queries.job(other), queries.now_ms())
            holders.append(shown_holder(other_row, by))
    waits = status.row.state in WAITING_STATES
    forecast = await queries.forecast(status.row.id) if waits else None
    lines = await lines_after_failure(service, status)
    return serializers.explanation(status, forecast, holders, queries.now_ms(), lines, array)


def _states(given: list[str] | None) -> frozenset[str]:
    names = [name.strip() for each in given or () for name in each.split(",") if name.strip()]
    for name in names:
        if name not in STATES:
            raise ApiError(
                422, f"There is no state {name[:50]!r}; {did_you_mean(name, sorted(STATES))}"
            )
    return frozenset(names)


BODIES: tuple[type[BaseModel], ...] = (JobChanges, Destination)
