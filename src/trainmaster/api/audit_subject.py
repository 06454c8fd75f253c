"""What a request changes, for its line in the audit log: paths do not say which role, token or job."""

from __future__ import annotations

from fastapi import Request
from starlette.types import Scope

SUBJECT = "audit_subject"
LONGEST = 200


def note_subject(request: Request, said: str) -> None:
    """Put this before what was noted; a request with a subject is in the log, whatever its method."""
    before = subject_of(request.scope)
    text = said if before is None else f"{said} {before}"
    request.scope.setdefault("state", {})[SUBJECT] = text[:LONGEST]


def subject_of(scope: Scope) -> str | None:
    found: str | None = scope.get("state", {}).get(SUBJECT)
    return found
