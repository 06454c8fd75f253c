"""Answers of the API: JSON that is dumped once, and errors that are one sentence."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trainmaster.config.validation import ConfigError, parameter_sentence
from trainmaster.daemon.request_errors import WorkWouldBeLost
from trainmaster.daemon.response_models import ErrorAnswer
from trainmaster.daemon.service_api import Conflict, NotFound, RequestError, TooMany, Unavailable
from trainmaster.store.errors import StoreError

LOG = logging.getLogger("trainmaster.api")

CODES = {
    400: "malformed",
    401: "unauthorized",
    403: "foreign_origin",
    404: "not_found",
    405: "no_such_method",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "unknown_content_type",
    422: "refused",
    429: "too_many",
    500: "internal",
    503: "unavailable",
}
MEANINGS = {
    400: "The request cannot be read, or came by a host name that this manager does not serve.",
    401: "The request does not show who sent it: it has no token, or one that is not valid.",
    403: "The caller's role does not allow this, or the request comes from another web site.",
    404: "There is no such job, queue, node or page.",
    409: "It cannot be done now: the job has ended, or the key was used for another submission.",
    408: "The body did not come in time.",
    413: "The body is larger than 32 MiB, or, as YAML, than 1 MiB.",
    415: "The body is neither JSON nor, for jobs, YAML, by its content type.",
    422: "A value in the request is invalid: the sentence names it.",
    429: "There are too many live jobs or followers, or the caller asks too often or too much at once.",
    503: "Not now: this manager is a standby, or its store cannot be reached. Try again later.",
}
EXAMPLES = {
    400: "The body is not JSON: Expecting value: line 1 column 1 (char 0).",
    401: "This token is not valid: it is unknown, has expired or was revoked.",
    403: "This request comes from another web site, which may not change anything here.",
    404: "There is no job 99.",
    408: "The body did not come within 60 s (the limit body_deadline): send it again.",
    409: "Job 12 has ended.",
    413: "The body is larger than 32 MiB: submit the jobs in several parts.",
    415: "Send jobs as application/json or application/yaml.",
    422: "unknown key 'gpu_count'; did you mean gpus?",
    429: "50,000 jobs have not ended yet (the limit live_jobs): wait until some have.",
    503: "This manager is a standby: ask the active one.",
}
LATER = {"Retry-After": "5"}
PAGES = {404: "There is no such page.", 405: "This page does not support that method."}


NAMES_NOTHING = re.compile(r"(a|an|it|its|job|line|of|the|there|this|what)\b[^.=]")
"""How sentences begin that do not begin with the name of a field."""


class NotAllowed(Exception):
    """What the caller may not do: one sentence."""


class ApiError(Exception):
    """An error answer: a status and one sentence."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None, code: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers
        self.code = code


KINDS: tuple[type[Exception], ...] = (
    *(ApiError, NotAllowed, ConfigError, RequestError, StoreError),
    *(HTTPException, RequestValidationError, Exception),
)


class JsonAnswer(Response):
    """Response models, or plain dicts, as JSON that is dumped once."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=vars).encode()


def error(
    status: int, sentence: str, headers: Mapping[str, str] | None = None, code: str = ""
) -> JsonAnswer:
    said = sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
    if NAMES_NOTHING.match(said):  # the name of a field or parameter stays as it is written
        said = f"{said[0].upper()}{said[1:]}"
    # What a client sent may hold half a character, which no answer can.
    safe = said.encode("utf-8", "replace").decode()
    body = {"error": {"code": code or CODES.get(status, "error"), "sentence": safe}}
    return JsonAnswer(body, status, headers=dict(headers or {}))


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document describes these errors."""
    return {
        status: answer(
            ErrorAnswer,
            MEANINGS[status],
            {"error": {"code": CODES[status], "sentence": EXAMPLES[status]}},
        )
        for status in statuses
    }


def schema(*models: type) -> dict[str, Any]:
    """How the OpenAPI document refers to these; it makes their schemas only when it is asked for."""
    found = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return found[0] if len(found) == 1 else {"anyOf": found}


def answer(model: type, description: str, example: object = None) -> dict[str, Any]:
    """One answer of a route."""
    content = {"schema": schema(model)} | ({} if example is None else {"example": example})
    return {"description": description, "content": {"application/json": content}}


def answers(model: type, *statuses: int) -> dict[str, Any]:
    """How a route declares what it answers: this model, or one of these errors."""
    success = answer(model, "Successful Response")
    return {
        "response_model": None,
        "responses": {200: success, **errors(400, 401, 403, 429, *statuses)},
    }


def sends(media: str, kind: str, *statuses: int) -> dict[str, Any]:
    """The same for a route that answers with something else than JSON of a model: texts, lines, a schema."""
    success = {"content": {media: {"schema": {"type": kind}}}}
    return {
        "response_model": None,
        "response_class": Response,
        "responses": {200: success, **errors(400, 401, 403, 429, *statuses)},
    }


def changes(model: type, *statuses: int, accepted: dict[str, Any] | None = None) -> dict[str, Any]:
    """The same for a route that changes something; `accepted` is what it answers where that is later."""
    made = answers(model, 403, 404, 409, 422, 503, *statuses)
    if accepted is not None:
        made["responses"][202] = accepted
    return made


def takes(body: type, model: type) -> dict[str, Any]:
    """The same for one that reads a JSON object, which it checks itself."""
    content = {"application/json": {"schema": schema(body)}}
    return {
        **changes(model, 413, 415),
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


def install(app: FastAPI) -> None:
    """Turn every exception into an error answer."""

    async def answer_failure(_request: Request, failure: Exception) -> Response:
        return error_of(failure)

    for kind in KINDS:
        app.add_exception_handler(kind, answer_failure)


def error_of(failure: Exception) -> JsonAnswer:
    """The error answer for an exception."""
    said = str(failure)
    match failure:
        case ApiError():
            return error(failure.status, said, failure.headers, failure.code)
        case NotAllowed():
            return error(403, said, code="not_allowed")
        case ConfigError():
            return error(400 if failure.is_malformed else 422, said)
        case Unavailable() | StoreError():
            return error(503, said, LATER)
        case TooMany():
            return error(429, said, LATER)
        case NotFound():
            return error(404, said)
        case WorkWouldBeLost():
            return error(409, said, code="work_would_be_lost")
        case Conflict():
            return error(409, said)
        case RequestError():
            return error(422, said)
        case HTTPException():
            page = PAGES.get(failure.status_code, str(failure.detail))
            return error(failure.status_code, page, failure.headers)
        case RequestValidationError():
            return error(422, parameter_sentence(failure.errors()[0]))
    LOG.error("a request failed", exc_info=failure)
    return error(500, "Internal error in the manager: see its log (manager.log).")
