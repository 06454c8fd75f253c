"""The HTTP application of one manager."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.routing import Route

from trainmaster import __version__
from trainmaster.api import responses, schema
from trainmaster.api.access import AccessControl
from trainmaster.api.audit_log import AuditFile, AuditLog
from trainmaster.api.host_check import HostCheck
from trainmaster.api.identity import Authentication, CallerLookup
from trainmaster.api.page_process import PageProcess
from trainmaster.api.page_proxy import PageProxy
from trainmaster.api.request_limits import RequestLimits
from trainmaster.api.routes import (
    accounts,
    cluster,
    health,
    jobs,
    lab,
    logs,
    overview,
    ports,
    reservations,
    submit,
    whatif,
)
from trainmaster.api.routes import (
    audit as audit_routes,
)
from trainmaster.api.sessions import Sessions
from trainmaster.api.store_header import StoreHeader
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.job_rows import ResponseModel
from trainmaster.daemon.metrics import Metrics
from trainmaster.whatif.daily import DailyComparison
from trainmaster.whatif.simulation_processes import SimulationProcesses

ROOT = "/api/v1"
SIMULATIONS = "simulations"
"""The folder of those that people ask for."""
REFERENCE = "#/components/schemas/{model}"
DESCRIPTION = """
Submit training programs, see why they wait, watch them run.

Times are Unix seconds, amounts of GPUs are numbers of GPUs; what is absent is null. Every error is
`{"error": {"code", "sentence"}}`. Jobs are named by their id or by their name (the newest of that name).
"""
TAGS = [
    {"name": "jobs", "description": "Submitting jobs, looking at them, doing things to them."},
    {"name": "cluster", "description": "Nodes and queues."},
    {"name": "policy", "description": "The scheduling policy and its options."},
    {"name": "watching", "description": "Changes as they happen, health, metrics."},
    {"name": "accounts", "description": "Who may ask: tokens, roles, sessions of the page."},
    {"name": "history", "description": "What happened, for simulation and replay."},
    {"name": "what-if", "description": "What would have happened, or will, under another policy."},
]


def create_app(
    service: Daemon,
    metrics: Metrics | None = None,
    hosts: Collection[str] = (),
    *,
    url: str = "",
    fingerprint: str | None = None,
    sessions: Sessions | None = None,
    audit: Path | None = None,
    is_proxied: bool = False,
    pages: PageProcess | None = None,
) -> FastAPI:
    """The application of one manager, which answers at `url`, with a certificate of this `fingerprint`;
    `hosts` are host names that it serves besides localhost, `audit` is where it writes who asked for what,
    and `is_proxied` whether a reverse proxy stands before it; `pages` serves the pages, where it has any."""
    sessions = Sessions() if sessions is None else sessions
    callers = CallerLookup(service.accounts, sessions, service.limits, is_proxied=is_proxied)
    app = FastAPI(
        title="Trainmaster",
        version=__version__,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        openapi_url=f"{ROOT}/openapi.json",
        docs_url=None,  # These two would load scripts from elsewhere.
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    for part in (submit, jobs, logs, ports, cluster, overview, reservations):
        app.include_router(part.routes(service), prefix=ROOT)
    simulations = SimulationProcesses(service.folder / SIMULATIONS)
    daily = DailyComparison(service, simulations)
    app.include_router(lab.routes(service, simulations), prefix=ROOT)
    app.include_router(whatif.routes(service, simulations, daily), prefix=ROOT)
    app.include_router(audit_routes.routes(audit), prefix=ROOT)
    app.include_router(accounts.routes(service, sessions, url), prefix=ROOT)
    app.include_router(accounts.login_routes(sessions, callers, url))
    app.include_router(health.routes(service, metrics or Metrics()))
    proxy = PageProxy(service, pages)
    for path, method in (
        ("/_nicegui/{path:path}", "POST"),
        ("/_nicegui_ws/{path:path}", "GET"),
        ("/{path:path}", "GET"),
    ):
        app.router.routes.append(Route(path, proxy, methods=[method], include_in_schema=False))
    responses.install(app)
    app.state.simulations, app.state.daily = simulations, daily
    app.state.limits = service.limits
    app.state.url, app.state.fingerprint = url, fingerprint
    app.add_middleware(AccessControl, identify=callers.of)
    app.add_middleware(RequestLimits, limits=service.limits, is_proxied=is_proxied)
    app.add_middleware(Authentication, identify=callers.of)
    app.add_middleware(HostCheck, hosts=hosts)
    app.state.audit = AuditFile(audit)
    app.add_middleware(AuditLog, file=app.state.audit)
    app.add_middleware(StoreHeader, service=service)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas that the routes refer to."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        made["components"] = {"schemas": _schemas()}
        app.openapi_schema = made
    return app.openapi_schema


def _response_models(kind: type[ResponseModel]) -> Iterator[type[ResponseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from _response_models(each)


@cache
def _schemas() -> dict[str, Any]:
    """What requests and answers look like, by name."""
    found: dict[str, Any] = {}
    job = schema.job_schema(REFERENCE)
    job.pop("$schema")
    found.update(job.pop("$defs"))
    found["JobFile"] = job
    for model in (
        *jobs.BODIES,
        *cluster.BODIES,
        *reservations.BODIES,
        *accounts.BODIES,
        *whatif.BODIES,
        *lab.BODIES,
        *_response_models(ResponseModel),
    ):
        made = TypeAdapter(model).json_schema(ref_template=REFERENCE)
        found.update(made.pop("$defs", {}))
        found[model.__name__] = made
    return found
