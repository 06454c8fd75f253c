"""Who asked for what: a line of JSON for each request that changes something, is refused or shows secrets.

`audit.log` in the data folder, which only the manager's user can read; rotated, the newest last.
"""

from __future__ import annotations

import asyncio
import json
import time
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
CHANGES = 1000
"""The same of requests that did something; of operators all are noted."""
PART_BYTES = 512
"""So much of a line counts as one; most are half as long."""
LATER_US = 1_000_000
"""After which it is looked again whether there is room for what was left out."""
LATE_S = 60.0
"""A line is written so much after its time at most: lines are nearly in their order."""
FAILED = 400
NO_ROOM = (
    "The disk of the data folder is full, and the audit log must not miss a request: nothing was done. Free"
    " some space, then try again."
)


Line = dict[str, Any]


class LineQuota:
    """Lines of one user or address: so many at once, then one a second, and a longer one more rarely.

    The others are counted.
    """

    def __init__(self, at_once: int) -> None:
        self._buckets = TokenBuckets(1, at_once)
        self._left_out: dict[str, tuple[int, Line]] = {}
        """How many since the last line, and the newest of them."""

    def taken(self, who: str, line: Line, at_us: int) -> tuple[Line | None, int]:
        """The line as it is to be written; or None where it is left out, and when there is room for it."""
        wait_us = self._buckets.take(who, at_us, _parts(line))
        if wait_us:
            self.leave_out(who, line)
            return None, wait_us
        return {**line, "left_out": self._left_out.pop(who, (0, line))[0]}, 0

    def leave_out(self, who: str, line: Line) -> None:
        count, _ = self._left_out.get(who, (0, line))
        if count or len(self._left_out) < MOST:
            self._left_out[who] = (count + 1, line)

    def newest_left_out(self, who: str, at_us: int) -> Line | None:
        """To be written in its turn, where no later one has come."""
        count, line = self._left_out.get(who, (0, {}))
        if not count or self._buckets.take(who, at_us, _parts(line)):
            return None
        del self._left_out[who]
        return {**line, "left_out": count - 1}

    def all_left_out(self) -> list[Line]:
        """The newest of everybody, whether or not there is room for it."""
        found = [{**line, "left_out": count - 1} for count, line in self._left_out.values()]
        self._left_out.clear()
        return found


def _parts(line: Line) -> int:
    return -(-len(json.dumps(line)) // PART_BYTES)


class AuditFile:
    """Where the lines go; None: nowhere."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._failures, self._changes = LineQuota(FAILURES), LineQuota(CHANGES)

    @cached_property
    def _lines(self) -> AuditLines | None:
        return None if self._place is None else AuditLines(self._place)

    @property
    def has_room(self) -> bool:
        """Whether a request may be taken that needs a line."""
        return self._lines is None or self._lines.has_room

    @property
    def _is_crowded(self) -> bool:
        return self._lines is not None and self._lines.is_crowded

    def write_failure(self, who: str, line: Line, at_us: int) -> int:
        """One of many that may come from one user. 0; or the microseconds until `write_left_out`, where it is
        left out."""
        if self._is_crowded:
            self._failures.leave_out(who, line)
            return LATER_US
        return self._write_if(*self._failures.taken(who, line, at_us))

    def write_change(self, who: str, line: Line, at_us: int) -> int:
        """The same of what was done."""
        return self._write_if(*self._changes.taken(who, line, at_us))

    def write_left_out(self, who: str, at_us: int) -> None:
        """Say what was left out last, and how many before, where nothing was written since."""
        if self._is_crowded:  # the next line says it
            return
        for quota in (self._failures, self._changes):
            self._write_if(quota.newest_left_out(who, at_us))

    def end(self) -> None:
        """Say what was left out, as nobody will ask any more."""
        for quota in (self._failures, self._changes):
            for line in quota.all_left_out():
                self.write(line)

    def write(self, line: Line) -> None:
        if self._lines is not None:
            self._lines.write(json.dumps(line, ensure_ascii=True))

    def _write_if(self, line: Line | None, wait_us: int = 0) -> int:
        if line is not None:
            self.write(line)
        return wait_us


def last_lines(
    place: Path | None, most: int, user: str | None, since_s: float | None
) -> list[dict[str, Any]]:
    """The newest lines, the newest last: of this user, and since then, where that is asked."""
    found: list[dict[str, Any]] = []
    names = (
        [] if place is None else [place, *(Path(f"{place}.{n}") for n in range(1, MOST_FILES + 1))]
    )
    since, before_all = ("", "") if since_s is None else (_stamp(since_s), _stamp(since_s - LATE_S))
    for name in names:
        try:
            lines = name.read_bytes().splitlines()
        except FileNotFoundError:
            break
        for line in reversed(lines):
            said = _read(line)
            if said is None:
                continue
            if len(found) == most or said["at"] < before_all:
                return found[::-1]
            if said["at"] >= since and user in (None, said["user"]):
                found.append(said)
    return found[::-1]


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


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
                caller: Caller | None = state.get("caller")
                self._write(scope, caller, _said(scope, caller, known, status))
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

    def _write(self, scope: Scope, caller: Caller | None, line: Line) -> None:
        is_change = 0 < line["status"] < FAILED
        if is_change and caller is not None and caller.is_operator:
            self._file.write(line)
            return
        write = self._file.write_change if is_change else self._file.write_failure
        who = limit_key_of(scope, is_proxied=False) or ""
        wait_us = write(who, line, now_us())
        if wait_us:
            loop, soon_s = asyncio.get_running_loop(), wait_us / 1_000_000 + 0.01
            loop.call_later(soon_s, lambda: self._file.write_left_out(who, now_us()))


def _said(scope: Scope, caller: Caller | None, uid: int | None, status: int) -> Line:
    host, port = scope.get("client") or ("", 0)
    return {
        "at": _stamp(time.time()),
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
