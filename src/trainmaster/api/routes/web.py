"""Pages for browsers, health and metrics: everything outside /api."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from trainmaster.api import messages, metrics, params, serializers
from trainmaster.api.caller import By, Caller, Role
from trainmaster.api.job_lookup import find_job
from trainmaster.api.last_lines import last_lines, process_shown
from trainmaster.api.login_page import PAGE_HEADERS as HEADERS
from trainmaster.api.responses import JsonAnswer, answer, errors, sends
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.job_rows import ProgressRow
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.response_models import HealthRow, JobDetails
from trainmaster.daemon.service_api import JobStatus, RequestError
from trainmaster.model.units import SECOND
from trainmaster.text import formatting as text

if TYPE_CHECKING:
    from jinja2 import Environment

REFRESH_S = 5
SHOWN = 200
LAST_LINES = 40


def routes(service: Daemon, counters: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/healthz",
        tags=["watching"],
        summary="Whether this manager works, and in which role",
        response_model=None,
        responses={
            200: answer(HealthRow, "It works, or stands by."),
            503: answer(HealthRow, "It cannot change anything now."),
            **errors(400),
        },
    )
    async def healthz(request: Request) -> Response:
        """Without a token only the role, and whether it works."""
        health, by = service.health(), request.state.caller
        row = serializers.open_health_row(health)
        if by is not None:
            row = serializers.health_row(health, by)
        return JsonAnswer(row, 503 if health.trouble else 200)

    @router.get(
        "/metrics",
        tags=["watching"],
        summary="Metrics for Prometheus",
        **sends("text/plain", "string", 503),
    )
    async def for_prometheus(by: By) -> Response:
        """Of jobs a plain user sees its own; others see all."""
        page = await metrics.page(service, counters, _shown_jobs(service, by))
        return Response(page, media_type=metrics.CONTENT_TYPE)

    @router.get("/jobs/{job}", include_in_schema=False, response_class=HTMLResponse)
    async def job_page(job: params.JobId, by: By) -> Response:
        try:
            return HTMLResponse(await _job(service, job, by), headers=HEADERS)
        except RequestError as refusal:
            page = render("job.html", {"title": "Trainmaster", "refusal": refusal}, refresh_s=60)
            return HTMLResponse(page, 404, headers=HEADERS)

    return router


def _shown_jobs(service: Daemon, by: Caller) -> frozenset[str] | None:
    """The live jobs whose names a caller sees; None: all."""
    if by.role is not Role.USER or service.health().role != "active":
        return None
    return service.queries.live_jobs_of(by.user)


async def _job(service: Daemon, job: str, by: Caller) -> str:
    queries = service.queries
    status = await find_job(service, job, by)
    now, id = queries.now_ms(), status.row.id
    details = serializers.job_details(status, now)
    page = {
        "now": now,
        "title": f"{details.name} ({id})",
        "job": details,
        "sentence": _sentence(status, now),
        "elements": [serializers.job_row(each, now) for each in status.elements[:SHOWN]],
        "facts": _facts(details),
        "story": [serializers.story_entry(each, by) for each in await queries.story(id)],
        "lines": await to_thread.run_sync(
            last_lines, await queries.log_files(id), LAST_LINES, process_shown(status)
        ),
    }
    return render("job.html", page)


def _clock(at_s: float) -> str:
    """A date and time of day with its zone, as this machine has it."""
    return f"{datetime.fromtimestamp(at_s, UTC).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _sentence(status: JobStatus, now: int) -> str:
    if status.elements:
        return serializers.array_summary(status).sentence
    return messages.status_sentence(status, now)[1]


def _facts(job: JobDetails) -> list[tuple[str, str]]:
    facts = [
        ("state", job.state_words),
        ("user, queue", f"{job.user}, {job.queue}"),
        ("GPUs", f"{job.size} ({', '.join(job.devices) or 'none now'})"),
        ("submitted", _clock(job.submit_s)),
        (
            "ran",
            f"{text.length(round(job.run_s * SECOND))}, {job.gpu_s / 3_600:.2f} GPU-hours",
        ),
        (
            "attempt",
            f"{job.attempt}, {text.plural(job.preemptions, 'preemption')},"
            f" {text.plural(job.failures, 'failure')}",
        ),
    ]
    if job.prerun is not None:
        facts.append(("pre-run", job.prerun.sentence))
    if job.gpu_use:
        used = (f"{text.size(each.memory_bytes)} on {each.device}" for each in job.gpu_use)
        facts.append(("GPU memory", ", ".join(used)))
    if job.lost_s:
        facts.append(("lost", f"{text.length(round(job.lost_s * SECOND))} of its work"))
    if job.progress is not None:
        facts.append(("progress", _progress(job.progress)))
    return facts


def _progress(at: ProgressRow) -> str:
    total = f" of {at.total_steps}" if at.total_steps is not None else ""
    loss = f", loss {at.loss:g}" if at.loss is not None else ""
    speed = f", {at.samples_per_s:g} samples/s" if at.samples_per_s is not None else ""
    rate = f", {text.step_rate(at.steps_per_s)}" if at.steps_per_s else ""
    return f"step {at.step}{total}{loss}{speed}{rate}"


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, pass_context

    made = Environment(
        loader=PackageLoader("trainmaster.api"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["length_of"] = lambda seconds: text.length(round(seconds * SECOND))
    made.filters["sentence"] = lambda said: text.as_sentence(said[:1].upper() + said[1:])
    made.filters["quote"] = partial(quote, safe="")
    made.filters["clock"] = _clock
    made.filters["when"] = pass_context(
        lambda page, at_s: text.when(round(at_s * SECOND), page["now"])
    )
    return made


def render(template: str, page: Mapping[str, object], refresh_s: int = REFRESH_S) -> str:
    """A whole page that loads itself again."""
    return _templates().get_template(template).render(page, refresh_s=refresh_s)
