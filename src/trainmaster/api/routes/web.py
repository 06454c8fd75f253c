"""Pages for people with a browser, health, and metrics: what lies at the root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from trainmaster import __version__
from trainmaster.api import messages as wording
from trainmaster.api import metrics, params
from trainmaster.api import response_models as shapes
from trainmaster.api.html import Content, Html, document, joined, link, table, tag
from trainmaster.api.job_lookup import sheet_of
from trainmaster.api.logs import Log
from trainmaster.api.responses import Json, errors
from trainmaster.api.serializers import with_default
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.service_api import (
    JobStatus,
    LogFile,
    NodeStatus,
    PolicyStatus,
    Refusal,
    Service,
)
from trainmaster.model.units import WHOLE
from trainmaster.store.protocol import Wanted
from trainmaster.text import formatting as text
from trainmaster.text.messages import story_sentence

REFRESH_S = 5
SHOWN = 200
LAST_LINES = 40
LAST_BYTES = 64 * 1024
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

NO_JOBS = "No job has been submitted yet: `trainmaster run -- COMMAND` submits one."


def routes(service: Service, meters: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/healthz",
        tags=["watching"],
        summary="Whether this daemon works, and in which role",
        response_model=None,
        responses={
            200: {"model": shapes.HealthShape},
            503: {"model": shapes.HealthShape, "description": "It cannot change anything now."},
            **errors(400),
        },
    )
    async def healthz() -> Response:
        health = service.health()
        said = {"role": health.role, "trouble": health.trouble or None, "version": __version__}
        return Json(said, 503 if health.trouble else 200)

    @router.get(
        "/metrics",
        tags=["watching"],
        summary="Metrics for Prometheus",
        response_model=None,
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **errors(400, 503),
        },
    )
    async def for_prometheus() -> Response:
        return Response(await metrics.page(service, meters), media_type=metrics.CONTENT_TYPE)

    @router.get("/", include_in_schema=False, response_class=HTMLResponse)
    async def overview() -> Response:
        return HTMLResponse(await _overview(service), headers=HEADERS)

    @router.get("/jobs/{job}", include_in_schema=False, response_class=HTMLResponse)
    async def job_page(job: params.JobId) -> Response:
        try:
            return HTMLResponse(await _job_page(service, job), headers=HEADERS)
        except Refusal as refusal:
            body = (link("/", "Trainmaster"), tag("p", str(refusal)))
            page = document("Trainmaster", *body, refresh_s=60)
            return HTMLResponse(page, 404, headers=HEADERS)

    return router


async def _overview(service: Service) -> str:
    health = service.health()
    head: list[Content] = [tag("h1", f"Trainmaster {__version__}")]
    if health.trouble:
        head.append(tag("p", health.trouble, css="bad"))
    try:
        body = await _tables(service)
    except Refusal as refusal:
        body = [tag("p", f"This daemon is {health.role}. {refusal}")]
    return document("Trainmaster", *head, *body, refresh_s=REFRESH_S)


async def _tables(service: Service) -> list[Content]:
    now = service.now_ms()
    policy = service.policy()
    counts = await service.counts()
    live = await service.jobs(Wanted(states=_live(counts), limit=SHOWN)) if _live(counts) else ()
    ended = await service.jobs(Wanted(states=wording.ENDS, limit=20))
    counted = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()) if count)
    queues = with_default(service.queues())
    return [
        _policy(policy),
        *((tag("p", f"The policy failed: {policy.trouble}", css="bad"),) if policy.trouble else ()),
        tag("h2", "Nodes"),
        table(("node", "state", "devices", ""), map(_node, service.nodes()), "There are no nodes."),
        tag("h2", "Queues"),
        table(
            ("queue", "weight", "running", "waiting", "held", "GPUs"),
            (
                (q.queue.name, q.queue.weight, q.running, q.waiting, q.held, text.gpus(q.gpus))
                for q in queues
            ),
            "There are no queues.",
        ),
        tag("h2", "Jobs"),
        *(_jobs(live, ended, counted, now) if counted else (tag("p", NO_JOBS, css="quiet"),)),
    ]


def _policy(policy: PolicyStatus) -> Html:
    """Its name; its options for those who want to see them."""
    options = (
        tag("div", f"{name} = {value}", css="quiet")
        for name, value in policy.options.items()
        if str(value)
    )
    return tag("details", tag("summary", "Policy ", tag("b", policy.name)), *options)


def _jobs(
    live: Sequence[JobStatus], ended: Sequence[JobStatus], counted: str, now: int
) -> tuple[Content, ...]:
    return (
        tag("p", counted, css="quiet"),
        table(
            ("job", "name", "user", "queue", "state", "GPUs", "since", "where, or why it waits"),
            (_job(sheet, now) for sheet in live),
            "No job runs or waits.",
        ),
        *((tag("p", f"The newest {SHOWN} are shown.", css="quiet"),) if len(live) == SHOWN else ()),
        tag("h2", "Ended"),
        table(
            ("job", "name", "user", "queue", "state", "GPUs", "since", ""),
            (_job(sheet, now) for sheet in ended),
            "No job has ended yet.",
        ),
    )


def _live(counts: Mapping[str, int]) -> frozenset[str]:
    return frozenset(counts) - wording.ENDS


def _node(node: NodeStatus) -> tuple[Content, ...]:
    devices = joined(
        tag("span", joined(map(job_link, jobs), " "), css="device used")
        if jobs
        else tag("span", name, css="device quiet")
        for name, jobs in zip(node.devices, node.jobs, strict=True)
    )
    notes = [f"suspended in memory: {', '.join(node.frozen)}"] if node.frozen else []
    return (
        joined((node.name, tag("div", node.device_type, css="quiet"))),
        node.state,
        devices,
        " ".join([*notes, *node.remarks]),
    )


def job_link(job: str) -> Html:
    return link(f"/jobs/{quote(job, safe='')}", job)


def _job(sheet: JobStatus, now: int) -> tuple[Content, ...]:
    row = sheet.row
    why = wording.why_waiting(sheet, now)
    since = row.finish_ms or row.start_ms or row.submit_ms
    note = why[1] if why else ", ".join(sheet.devices)
    if row.state in wording.ENDS and row.exit_code is not None:
        note = f"exit code {row.exit_code}. {wording.ended_because(sheet) or ''}".rstrip(". ")
    return (
        job_link(row.id),
        row.name,
        row.user,
        row.queue,
        tag("span", row.state, css="bad" if row.state == "failed" else ""),
        text.gpus(row.gpus),
        text.when(since, now),
        note,
    )


async def _job_page(service: Service, job: str) -> str:
    sheet = await sheet_of(service, job)
    now, row = service.now_ms(), sheet.row
    story = await service.story(row.id)
    files = await service.log_files(row.id)
    lines = await to_thread.run_sync(_last_lines, files)
    _, sentence = wording.standing(sheet, now)
    facts: list[tuple[Content, ...]] = [
        ("state", row.state),
        ("user, queue", f"{row.user}, {row.queue}"),
        ("GPUs", f"{text.gpus(row.gpus)} ({', '.join(sheet.devices) or 'none now'})"),
        ("submitted", text.utc_time(row.submit_ms)),
        (
            "ran",
            f"{text.length(sheet.run_ms)}, {sheet.gpu_ms / WHOLE / 3_600_000:.2f} GPU-hours",
        ),
        (
            "attempt",
            f"{sheet.attempt}, {text.plural(sheet.preemptions, 'preemption')},"
            f" {text.plural(sheet.failures, 'failure')}",
        ),
        *((("progress", _progress(sheet)),) if sheet.progress else ()),
    ]
    return document(
        f"{row.name} ({row.id})",
        tag("p", link("/", "Trainmaster")),
        tag("h1", f"Job {row.id}: {row.name}"),
        tag("p", sentence),
        *(tag("p", remark, css="quiet") for remark in sheet.remarks),
        table(("", ""), facts, ""),
        tag("h2", "Story"),
        table(
            ("when (UTC)", "what"),
            (
                (
                    text.utc_time(each.at_ms),
                    story_sentence(each.what, wording.details(each.detail_json)),
                )
                for each in story
            ),
            "Nothing has happened yet.",
        ),
        tag("h2", "Last lines of its output"),
        tag("pre", lines) if lines else tag("p", "It has written nothing.", css="quiet"),
        refresh_s=REFRESH_S,
    )


def _progress(sheet: JobStatus) -> str:
    said = sheet.progress
    assert said is not None
    total = f" of {said.total_steps}" if said.total_steps is not None else ""
    loss = f", loss {said.loss:g}" if said.loss is not None else ""
    speed = f", {said.samples_per_s:g} samples/s" if said.samples_per_s is not None else ""
    return f"step {said.step}{total}{loss}{speed}"


def _last_lines(files: Sequence[LogFile]) -> str:
    """Of rank 0 of the last attempt; lines may be a megabyte long, so bytes are limited too."""
    newest = max((file for file in files if file.rank == 0), key=lambda f: f.attempt, default=None)
    if newest is None:
        return ""
    log = Log(newest.paths)
    start = max(log.tail_start(LAST_LINES), log.size - LAST_BYTES)
    return b"".join(log.pieces(start)).decode("utf-8", "replace").replace("\x00", "�")
