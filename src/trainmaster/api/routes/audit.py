"""The audit log, for admins: who asked for what, the newest last."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query
from starlette.responses import Response

from trainmaster.api import params
from trainmaster.api.audit_log import last_lines
from trainmaster.api.responses import JsonAnswer, answers
from trainmaster.daemon import response_models as models

MOST = 10_000
Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many, the newest.")]


def routes(place: Path | None) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/audit",
        tags=["accounts"],
        summary="Who asked for what",
        **answers(models.AuditList, 422, 503),
    )
    async def audit(
        user: params.Filter = None, since: params.Since = None, limit: Limit = 100
    ) -> Response:
        """Requests that changed something, were refused or showed secrets; the newest is the last."""
        found = await to_thread.run_sync(last_lines, place, limit, user, since)
        return JsonAnswer(models.AuditList([models.AuditRow(**each) for each in found]))

    return router
