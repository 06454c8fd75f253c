"""Whether the manager works, and what it counts: for those who watch it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from trainmaster.api import metrics, serializers
from trainmaster.api.caller import By, Caller, Role
from trainmaster.api.responses import JsonAnswer, answer, errors, sends
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.response_models import HealthRow


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

    return router


def _shown_jobs(service: Daemon, by: Caller) -> frozenset[str] | None:
    """The live jobs whose names a caller sees; None: all."""
    if by.role is not Role.USER or service.health().role != "active":
        return None
    return service.queries.live_jobs_of(by.user)
