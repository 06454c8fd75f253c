"""Ports that a job listens on, reached through the manager."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from trainmaster.api import params
from trainmaster.api.caller import By, Caller
from trainmaster.api.job_lookup import find_job, named_as
from trainmaster.api.responses import JsonAnswer, answers, errors
from trainmaster.api.tunnel import Tunnel
from trainmaster.daemon import response_models as models
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.job_ports import PortConnection
from trainmaster.daemon.service_api import JobStatus

BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
Port = Annotated[int, Path(ge=1, le=65535, description="A TCP port.", examples=[6006])]


def routes(service: Daemon) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.get(
        "/jobs/{job}/ports/{port}",
        summary="Whether a job listens on a port",
        **answers(models.PortRow, 404, 409, 422, 503),
    )
    async def port_of(job: params.JobId, port: Port, caller: By) -> Response:
        status, connection = await _connected(service, job, port, caller)
        connection.writer.close()
        return JsonAnswer(models.PortRow(status.row.id, port))

    @router.post(
        "/jobs/{job}/ports/{port}",
        summary="Connect to a port that a job listens on",
        response_model=None,
        response_class=Response,
        responses={
            200: {"description": "What the job sends, as it comes.", "content": BYTES},
            **errors(400, 401, 403, 404, 409, 422, 429, 503),
        },
        openapi_extra={"requestBody": {"content": BYTES}},
    )
    async def connect(job: params.JobId, port: Port, caller: By) -> Response:
        """A TCP connection inside one request: its body goes to the job while the answer's comes from it.

        The port must be held by a process of the job; no other port of the machine is reached.
        """
        _, connection = await _connected(service, job, port, caller)
        return Tunnel(connection)

    return router


async def _connected(
    service: Daemon, job: str, port: int, caller: Caller
) -> tuple[JobStatus, PortConnection]:
    status = await find_job(service, job, caller)
    with named_as(job, status.row.id):
        return status, await service.job_ports.connect(status, port)
