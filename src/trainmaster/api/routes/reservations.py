"""Maintenance and reservations: listing, making and cancelling them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from trainmaster.api import params
from trainmaster.api.audit_subject import note_subject
from trainmaster.api.caller import By
from trainmaster.api.request_body import object_of
from trainmaster.api.responses import ApiError, JsonAnswer, answers, changes, takes
from trainmaster.config.job_file import Duration, Name
from trainmaster.config.validation import StrictModel, checked
from trainmaster.daemon import response_models as models
from trainmaster.daemon.cluster_control import WantedReservation
from trainmaster.daemon.daemon import Daemon
from trainmaster.model.units import SECOND

MOST_DEVICES = 100_000
Place = Annotated[str, Field(min_length=1, max_length=300, pattern=params.PRINTABLE)]
Number = Annotated[int, Path(ge=1, le=1_000_000_000, description="Its number.", examples=[3])]


class ReservationTerms(StrictModel):
    """Devices to keep free: for a user, a queue, or for maintenance if neither is named."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"places": ["n0"], "begin_s": 1796162400, "for": "4h", "reason": "driver"}]
        },
    )

    places: list[Place] = Field(
        default_factory=list,
        max_length=10_000,
        description="Nodes, or `node:number` for one device. For maintenance: nodes, or `all`.",
    )
    devices: int = Field(
        0, ge=0, le=MOST_DEVICES, strict=True, description="So many devices, whichever they are."
    )
    begin_s: float | None = Field(
        None,
        ge=0,
        le=params.LATEST_S,
        description="When it begins, in seconds since 1970; null: now.",
    )
    length: Duration = Field(alias="for", description="How long it lasts.")
    user: Name | None = Field(None, description="Whose jobs may use the devices.")
    queue: Name | None = Field(None, description="The queue whose jobs may use the devices.")
    reason: str = Field("", max_length=200, pattern=params.PRINTABLE, description="For people.")
    force: bool = Field(
        False, strict=True, description="End runs that would lose work, too, when it begins."
    )

    def wanted(self) -> WantedReservation:
        if bool(self.places) == bool(self.devices):
            raise ApiError(422, "Name places, or a number of devices: one of them.")
        if self.devices and not (self.user or self.queue):
            raise ApiError(422, "Maintenance is of whole nodes: name them in places, or write all.")
        return WantedReservation(
            tuple(self.places),
            self.devices,
            None if self.begin_s is None else round(self.begin_s * SECOND),
            self.length,
            self.user or "",
            self.queue or "",
            self.reason.strip(),
            self.force,
        )


BODIES: tuple[type[BaseModel], ...] = (ReservationTerms,)


def routes(service: Daemon) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/reservations",
        tags=["cluster"],
        summary="Maintenance and reservations, now and later",
        **answers(models.ReservationList, 503),
    )
    async def reservations() -> Response:
        return JsonAnswer(models.ReservationList(list(service.queries.reservations())))

    @router.post(
        "/reservations",
        tags=["cluster"],
        summary="Keep devices free for maintenance, a user or a queue",
        **takes(ReservationTerms, models.ReservationRow),
    )
    async def reserve(request: Request, by: By) -> Response:
        """No job of others is started there that might still run when it begins. Then runs are suspended that
        lose nothing by it, and the others stay, unless `force` is set. It ends by itself."""
        terms = checked(ReservationTerms, await object_of(request))
        number = await service.cluster_control.reserve(terms.wanted(), by.user)
        note_subject(request, f"reservation {number}")
        return JsonAnswer(_row(service, number))

    @router.delete(
        "/reservations/{number}",
        tags=["cluster"],
        summary="Cancel maintenance or a reservation",
        **changes(models.ReservationRow),
    )
    async def cancel_reservation(number: Number) -> Response:
        """It may have begun already. The answer is how it was."""
        rows = {row.number: row for row in service.queries.reservations()}
        await service.cluster_control.cancel_reservation(number)
        return JsonAnswer(rows[number])

    return router


def _row(service: Daemon, number: int) -> models.ReservationRow:
    for row in service.queries.reservations():
        if row.number == number:
            return row
    raise ApiError(404, f"Reservation {number} is over already.")
