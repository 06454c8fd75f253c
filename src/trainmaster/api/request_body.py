"""Reads what a request carries, with a limit, and by its content type only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from trainmaster.api.input_limits import check_plain
from trainmaster.api.responses import ApiError
from trainmaster.api.units import shown
from trainmaster.api.validation_errors import BadJobFile, sentence_of
from trainmaster.api.yaml_loader import read_json
from trainmaster.model.units import MIB

MOST_BYTES = 32 * MIB
Model = TypeVar("Model", bound=BaseModel)
JSON = "application/json"
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body_of(request: Request) -> bytes:
    """All of it, or an error as soon as it is too much."""
    too_large = ApiError(413, "The body is larger than 32 MiB: submit the jobs in several parts.")
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated[:20]) > MOST_BYTES:
        raise too_large
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MOST_BYTES:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


def text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        raise BadJobFile(
            f"The body is no UTF-8: byte {bad.start} is not.", is_malformed=True
        ) from None


async def object_of(request: Request) -> Mapping[str, object]:
    """The JSON object that a request carries."""
    if content_type(request) != JSON:
        raise ApiError(415, "Send the body as application/json.")
    value = read_json(text_of(await body_of(request)))
    if not isinstance(value, dict):
        raise ApiError(422, f"The body must be an object, not {shown(value)}.")
    check_plain(value)
    return value


def checked(kind: type[Model], value: Mapping[str, object], fields: Collection[str]) -> Model:
    """The value as the model takes it, or one sentence."""
    try:
        return kind.model_validate(value)
    except ValidationError as bad:
        raise ApiError(422, sentence_of(bad, fields)) from None
