"""Looking at jobs, and doing things to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from trainmaster.api import params
from trainmaster.api import response_models as shapes
from trainmaster.api import serializers as rows
from trainmaster.api.job_lookup import sheet_of
from trainmaster.api.jobfile_fields import Duration, JobName, Name, Priority, Retries
from trainmaster.api.messages import ENDS, WAITS
from trainmaster.api.request_body import checked, object_of
from trainmaster.api.responses import ApiError, Json, errors
from trainmaster.api.units import MOST_ELEMENTS
from trainmaster.api.validation_errors import nearest
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.service_api import Changes, JobStatus, NotFound, Service
from trainmaster.store.protocol import Wanted

STATES: Collection[str] = tuple(dict.fromkeys((*(phase.name.lower() for phase in Phase), "held")))
MOST_HOLDERS = 20


class JobChanges(BaseModel):
    """What may be changed of a job that has not ended; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    name: JobName = Field(default="", description="What to call it.")
    queue: Name = Field(default="", description="The queue that it waits in.")
    priority: Priority = Field(0, description="Higher goes first.")
    retries: Retries = Field(0, description="How often it is started again.")
    max_runtime: Duration = Field(0, description="How long it may run in all.")
    deadline: Duration = Field(0, description="How long after the submission it must be done.")


class Destination(BaseModel):
    """Where to move a job."""

    model_config = ConfigDict(extra="forbid")

    node: Name = Field(description="The node's name.", examples=["n0"])


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["jobs"])
    _listing(router, service)
    _showing(router, service)
    _measuring(router, service)
    _doing(router, service)
    return router


def _listing(router: APIRouter, service: Service) -> None:
    """Many jobs."""

    @router.get(
        "/jobs",
        summary="List jobs, newest first",
        response_model=None,
        responses={200: {"model": shapes.JobList}, **errors(400, 422, 503)},
    )
    async def list_jobs(
        state: params.States = None,
        user: params.Filter = None,
        queue: params.Filter = None,
        array: params.Filter = None,
        text: params.Filter = None,
        since: params.Since = None,
        before: params.Before = None,
        limit: params.Limit = 100,
    ) -> Response:
        """All jobs that match every parameter given; `text` is part of the name or id."""
        wanted = Wanted(
            states=_states(state),
            user=user,
            queue=queue,
            array=array,
            text=text,
            since_ms=None if since is None else round(since * 1000),
            before=before,
            limit=limit,
        )
        found = await service.jobs(wanted)
        now = service.now_ms()
        last = found[-1].row.id if len(found) == limit else None
        listed = [rows.job_row(sheet, now) for sheet in found]
        return Json({"jobs": listed, "next": last, "counts": dict(await service.counts())})


def _showing(router: APIRouter, service: Service) -> None:
    """One job: what it is, why it waits, what has happened to it."""

    @router.get(
        "/jobs/{job}",
        summary="All about a job",
        response_model=None,
        responses={200: {"model": shapes.JobSheetShape}, **errors(400, 404, 422, 503)},
    )
    async def show_job(job: params.JobId) -> Response:
        return Json(rows.job_sheet(await sheet_of(service, job), service.now_ms()))

    @router.get(
        "/jobs/{job}/explain",
        summary="Why a job waits",
        response_model=None,
        responses={200: {"model": shapes.Explanation}, **errors(400, 404, 422, 503)},
    )
    async def explain(job: params.JobId) -> Response:
        """The reason with its numbers, who holds what, and an expected start by simulating the queue."""
        return Json(
            await explained(service, await _spokesman(service, await sheet_of(service, job)))
        )

    @router.get(
        "/jobs/{job}/story",
        summary="What happened to a job",
        response_model=None,
        responses={200: {"model": shapes.Story}, **errors(400, 404, 422, 503)},
    )
    async def tell(job: params.JobId) -> Response:
        sheet = await sheet_of(service, job)
        return Json({"story": [rows.told(each) for each in await service.story(sheet.row.id)]})


def _measuring(router: APIRouter, service: Service) -> None:
    """One job from within: what its program says, and what it sees."""

    @router.get(
        "/jobs/{job}/progress",
        summary="Progress reports of a job",
        response_model=None,
        responses={200: {"model": shapes.ProgressList}, **errors(400, 404, 422, 503)},
    )
    async def progress(job: params.JobId) -> Response:
        sheet = await sheet_of(service, job)
        reports = await service.progress(sheet.row.id)
        return Json({"progress": [rows.reported(each) for each in reports]})

    @router.get(
        "/jobs/{job}/environment",
        summary="Where a job's first rank runs, and its environment",
        response_model=None,
        responses={200: {"model": shapes.Surroundings}, **errors(400, 404, 409, 422, 503)},
    )
    async def environment(job: params.JobId) -> Response:
        sheet = await sheet_of(service, job)
        workdir, variables = await service.environment(sheet.row.id)
        return Json({"workdir": str(workdir), "environment": dict(variables)})


Deed = Callable[[str], Awaitable[None]]
SAID = {
    "cancel": (
        "Cancel a job",
        "It is ended if it runs: told to stop, and killed after its grace period.",
    ),
    "suspend": ("Suspend a job", "It leaves its devices and is held until it is resumed."),
    "resume": (
        "Resume a job",
        "One that was suspended or held may run again, when the policy says so.",
    ),
    "save": ("Ask a job for a checkpoint", "It writes one now and goes on."),
}


def _doing(router: APIRouter, service: Service) -> None:
    deeds: dict[str, Deed] = {
        "cancel": service.cancel,
        "suspend": service.suspend,
        "resume": service.resume,
        "save": service.save,
    }
    for name, deed in deeds.items():
        _deed(router, service, name, deed)

    @router.post(
        "/jobs/{job}/move",
        summary="Move a job to another node",
        response_model=None,
        responses={
            200: {"model": shapes.JobRowShape},
            **errors(400, 403, 404, 409, 413, 415, 422, 503),
        },
        openapi_extra={"requestBody": _body("Destination")},
    )
    async def move(job: params.JobId, request: Request) -> Response:
        wanted = checked(Destination, await object_of(request), Destination.model_fields)
        sheet = await sheet_of(service, job)
        if sheet.nodes == (wanted.node,):
            raise ApiError(409, f"Job {sheet.row.id} is on {wanted.node} already.")
        await service.move(sheet.row.id, wanted.node)
        return await _row_now(service, sheet)

    @router.patch(
        "/jobs/{job}",
        summary="Change a job",
        response_model=None,
        responses={
            200: {"model": shapes.JobRowShape},
            **errors(400, 403, 404, 409, 413, 415, 422, 503),
        },
        openapi_extra={"requestBody": _body("JobChanges")},
    )
    async def change(job: params.JobId, request: Request) -> Response:
        changes = changes_of(checked(JobChanges, await object_of(request), JobChanges.model_fields))
        sheet = await sheet_of(service, job)
        await service.change(sheet.row.id, changes)
        return await _row_now(service, sheet)


def _deed(router: APIRouter, service: Service, name: str, deed: Deed) -> None:
    summary, description = SAID[name]

    async def do(job: params.JobId) -> Response:
        sheet = await sheet_of(service, job)
        await deed(sheet.row.id)
        return await _row_now(service, sheet)

    router.add_api_route(
        f"/jobs/{{job}}/{name}",
        do,
        methods=["POST"],
        name=name,
        operation_id=name,
        summary=summary,
        description=f"{description} The answer is the job as it is now.",
        response_model=None,
        responses={200: {"model": shapes.JobRowShape}, **errors(400, 403, 404, 409, 422, 503)},
    )


async def _row_now(service: Service, before: JobStatus) -> Response:
    return Json(rows.job_row(await service.sheet(before.row.id), service.now_ms()))


async def _spokesman(service: Service, sheet: JobStatus) -> JobStatus:
    """For an array: its first element that waits, which says what the array waits for."""
    if sheet.row.state not in WAITS or sheet.row.array is not None or sheet.reason is not None:
        return sheet
    waiting = await service.jobs(Wanted(states=WAITS, array=sheet.row.id, limit=MOST_ELEMENTS))
    if not waiting:
        return sheet
    # Those that are only held back by the array's limit say less than those that are not.
    first = next((each for each in reversed(waiting) if not each.held_for), waiting[-1])
    return replace(first, remarks=(*sheet.remarks, *first.remarks))


async def explained(service: Service, sheet: JobStatus) -> rows.Row:
    """Why it waits, with the jobs in its way as they are now."""
    held_by = () if sheet.reason is None else sheet.reason.held_by
    holders = []
    for other in held_by[:MOST_HOLDERS]:
        try:
            holders.append(rows.holder(await service.sheet(other)))
        except NotFound:
            continue
    waits = sheet.row.state in WAITS and sheet.row.state not in ENDS
    forecast = await service.forecast(sheet.row.id) if waits else None
    return rows.explanation(sheet, forecast, holders, service.now_ms())


def changes_of(wanted: JobChanges) -> Changes:
    """What was said, as the daemon takes it."""
    said = wanted.model_fields_set
    if not said:
        names = ", ".join(JobChanges.model_fields)
        raise ApiError(422, f"There is nothing to change: give one of {names}.")
    return Changes(
        priority=wanted.priority if "priority" in said else None,
        queue=wanted.queue if "queue" in said else None,
        max_runtime_ms=wanted.max_runtime if "max_runtime" in said else None,
        deadline_ms=wanted.deadline if "deadline" in said else None,
        retries=wanted.retries if "retries" in said else None,
        name=wanted.name if "name" in said else None,
    )


def _states(given: list[str] | None) -> frozenset[str]:
    names = [name.strip() for each in given or () for name in each.split(",") if name.strip()]
    for name in names:
        if name not in STATES:
            raise ApiError(422, f"There is no state {name[:50]!r}{nearest(name, STATES)}")
    return frozenset(names)


def _body(schema: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"required": True, "content": {"application/json": {"schema": reference}}}


BODIES: tuple[type[BaseModel], ...] = (JobChanges, Destination)
