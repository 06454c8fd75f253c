"""Reads what a request carries, with a limit, and by its content type only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import Request

from trainmaster.api.audit_subject import note_subject
from trainmaster.api.caller import Caller, asked_by
from trainmaster.api.request_limits import OVER, SOON
from trainmaster.api.responses import LATER, ApiError
from trainmaster.config.limits import Limits
from trainmaster.config.validation import ConfigError, shown
from trainmaster.config.yaml_file import check_plain
from trainmaster.daemon.places import PlaceLimits, Places, Shortage
from trainmaster.model.units import MIB, SECOND
from trainmaster.text.formatting import size

JSON = "application/json"
FEW_BYTES = 1 * MIB
"""Who has no more than that coming may take the last part of the bytes of all: most job files are smaller."""
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body_of(request: Request) -> bytes:
    """The whole body, or an error as soon as it is too large or too slow."""
    limits: Limits = request.app.state.limits
    name = "yaml_bytes" if content_type(request) in YAML_TYPES else "body_bytes"
    most: int = getattr(limits, name)
    too_large = ApiError(
        413, f"The body is larger than {size(most)} (the limit {name}): submit it in several parts."
    )
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated[:20]) > most:
        raise too_large
    wait_s = limits.body_deadline / SECOND
    coming = BodiesComing.of(request)
    try:
        async with asyncio.timeout(wait_s):
            with coming.another(asked_by(request)) as body:
                async for piece in request.stream():
                    if body.size + len(piece) > most:
                        raise too_large
                    body.add(piece)
                return body.whole()
    except TimeoutError:
        said = (
            f"The body did not come within {wait_s:g} s (the limit body_deadline): send it again."
        )
        raise ApiError(408, said) from None


class BodiesComing:
    """The bodies that are being received: how large they are together, and those of each user."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._of_one = max(limits.user_bodies_bytes, limits.body_bytes)
        self._places = Places(PlaceLimits(limits.bodies_bytes, self._of_one, FEW_BYTES))

    @classmethod
    def of(cls, request: Request) -> BodiesComing:
        state = request.app.state
        if not hasattr(state, "bodies_coming"):
            state.bodies_coming = cls(state.limits)
        found: BodiesComing = state.bodies_coming
        return found

    @contextmanager
    def another(self, by: Caller) -> Iterator[Body]:
        body = Body(self, None if by.is_operator else by.user)
        try:
            yield body
        finally:
            self._places.give_back(body.user, body.size)

    def take(self, user: str | None, bytes_: int) -> None:
        """Make room for so many bytes more, or refuse them."""
        shortage = self._places.shortage(user, bytes_)
        if shortage is Shortage.OWN:
            said = f"Bodies of {user} that are coming fill {size(self._of_one)} (the limit user_bodies_bytes)"
            raise ApiError(429, f"{said}: try again when they have come.", SOON, OVER)
        if shortage is Shortage.ALL:
            most = size(self._limits.bodies_bytes)
            said = f"The bodies that are coming fill the {most} for all (the limit bodies_bytes)"
            raise ApiError(503, f"{said}: try again later.", LATER)
        self._places.take(user, bytes_)


class Body:
    """What has come of one; of no `user`: an operator's."""

    def __init__(self, coming: BodiesComing, user: str | None) -> None:
        self._coming = coming
        self._pieces: list[bytes] = []
        self.user = user
        self.size = 0

    def add(self, piece: bytes) -> None:
        self._coming.take(self.user, len(piece))
        self.size += len(piece)
        self._pieces.append(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


def text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        raise ConfigError(
            f"The body is not UTF-8: byte {bad.start} is wrong.", is_malformed=True
        ) from None


async def object_of(request: Request) -> Mapping[str, object]:
    """The JSON object that a request carries."""
    if content_type(request) != JSON:
        raise ApiError(415, "Send the body as application/json.")
    value = read_json(text_of(await body_of(request)))
    if not isinstance(value, dict):
        raise ApiError(422, f"The body must be an object, not {shown(value)}.")
    check_plain(value)
    note_subject(request, json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return value


def read_json(text: str | bytes) -> object:
    """JSON as the standard has it: no NaN, no duplicate names, limited nesting."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except RecursionError:
        raise ConfigError("The body is nested too deeply.", is_malformed=True) from None
    except ValueError as error:
        said = str(error)[:120]
        raise ConfigError(f"The body is not JSON: {said}.", is_malformed=True) from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found
