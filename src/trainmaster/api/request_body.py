"""Reads what a request carries, with a limit, and by its content type only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Request

from trainmaster.api.responses import ApiError
from trainmaster.config.validation import ConfigError, shown
from trainmaster.config.yaml_file import check_plain
from trainmaster.model.units import MIB

MOST_BYTES = 32 * MIB
JSON = "application/json"
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body_of(request: Request) -> bytes:
    """The whole body, or an error as soon as it is too large."""
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
