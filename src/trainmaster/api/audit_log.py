"""Who asked for what: a line of JSON for each request that changes something, is refused or shows secrets.

`audit.log` in the data folder, which only the manager's user can read; rotated, the newest last.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.api.audit_file import MOST_FILES, AuditLines
from trainmaster.api.audit_subject import subject_of
from trainmaster.api.caller import Caller
from trainmaster.api.host_check import SAFE_METHODS
from trainmaster.api.limit_key import limit_key_of
from trainmaster.api.peer import SCOPE
from trainmaster.api.request_limits import now_us
from trainmaster.api.responses import LATER, error
from trainmaster.api.tcp_peer import peer_uid
from trainmaster.api.token_bucket import MOST, TokenBuckets
from trainmaster.daemon.response_models import AuditRow

FILE = "audit.log"
REFUSED = frozenset({401, 403})
PRIVATE = "/environment"
"""The end of paths that show secrets."""
LONGEST = 200
FAILURES = 60
"""Failed requests of one user or address that are noted at once; then one in a second."""
FAILED = 400
NO_ROOM = (
    "The disk of the data folder is full, and the audit log must not miss a request: nothing was done. Free"
    " some space, then try again."
)


class AuditFile:
    """Where the lines go; None: nowhere."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._failures = TokenBuckets(1, FAILURES)
        self._left_out: Counter[str] = Counter()

    @cached_property
    def _lines(self) -> AuditLines | None:
        return None if self._place is None else AuditLines(self._place)

    @property
    def has_room(self) -> bool:
        """Whether a request may be taken that needs a line."""
        return self._lines is None or self._lines.has_room

    def write_failure(self, who: str, line: dict[str, Any], at_us: int) -> None:
        """One of many that may come from one user: what is too often is counted, not written."""
        is_crowded = self._lines is not None and self._lines.is_crowded
        if is_crowded or self._failures.take(who, at_us):
            if who in self._left_out or len(self._left_out) < MOST:
                self._left_out[who] += 1
        else:
            self.write({**line, "left_out": self._left_out.pop(who, 0)})

    def write(self, line: dict[str, Any]) -> None:
        if self._lines is not None:
            self._lines.write(json.dumps(line, ensure_ascii=True))


def last_lines(
    place: Path | None, most: int, user: str | None, since_s: float | None
) -> list[dict[str, Any]]:
    """The newest lines, the newest last: of this user, and since then, where that is asked."""
    found: list[dict[str, Any]] = []
    names = (
        [] if place is None else [place, *(Path(f"{place}.{n}") for n in range(1, MOST_FILES + 1))]
    )
    since = (
        ""
        if since_s is None
        else datetime.fromtimestamp(since_s, UTC).isoformat(timespec="milliseconds")
    )
    for name in names:
        try:
            lines = name.read_bytes().splitlines()
        except FileNotFoundError:
            break
        for line in reversed(lines):
            said = _read(line)
            if said is None:
                continue
            if len(found) == most or said["at"] < since:
                return found[::-1]
            if user is None or said["user"] == user:
                found.append(said)
    return found[::-1]


def _read(line: bytes) -> dict[str, Any] | None:
    """A line of the log; None for one that a crash has cut off."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("at"), str):
        return None
    return {each.name: said.get(each.name) for each in fields(AuditRow)}


class AuditLog:
    """Writes the line before the answer goes out: what a client was told is in the log."""

    def __init__(self, app: ASGIApp, file: AuditFile) -> None:
        self._app = app
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state, is_written = scope.setdefault("state", {}), False
        is_noted = scope["method"] not in SAFE_METHODS or scope["path"].endswith(PRIVATE)
        uid = _uid(scope) if is_noted else None  # now: it may be gone when it is answered

        def write(status: int) -> None:
            nonlocal is_written
            is_due = is_noted or status in REFUSED or subject_of(scope) is not None
            if is_due and not is_written:
                known = _uid(scope) if uid is None else uid
                line = _said(scope, state.get("caller"), known, status)
                if 0 < status < FAILED:
                    self._file.write(line)
                else:
                    who = limit_key_of(scope, is_proxied=False) or ""
                    self._file.write_failure(who, line, now_us())
            is_written = True

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                write(message["status"])
            await send(message)

        try:
            if is_noted and not self._file.has_room:
                await error(503, NO_ROOM, LATER)(scope, receive, sent)
            else:
                await self._app(scope, receive, sent)
        finally:
            write(0)  # it was not answered


def _said(scope: Scope, caller: Caller | None, uid: int | None, status: int) -> dict[str, Any]:
    host, port = scope.get("client") or ("", 0)
    return {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "user": None if caller is None else caller.user,
        "role": None if caller is None else caller.role.value,
        "via": None if caller is None else caller.via,
        "uid": uid,
        "pid": None if caller is None else caller.pid,
        "token": None if caller is None else caller.token,
        "peer": f"{host}:{port}" if host else None,
        "verb": scope["method"],
        "path": scope["path"][:LONGEST],
        "subject": subject_of(scope),
        "status": status,
    }


def _uid(scope: Scope) -> int | None:
    """The Unix user at the other end, as the kernel says, over the Unix socket or TCP."""
    peer = scope.get(SCOPE)
    return peer_uid(scope) if peer is None else peer.uid
