"""Who may do what: every route with what it takes to use it, and what a request counts as. One that is not
here is not served.

Whoever adds a route adds its line. Where a job is named, `own` leaves it to `find_job` to find it only among
those that the caller may see.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.caller import Caller, Role
from trainmaster.api.login_page import CHALLENGE, login_page
from trainmaster.api.responses import PAGES, error, error_of
from trainmaster.daemon.request_errors import TooMany

API = "/api/v1"
SOCKETS = "/_nicegui_ws/"
"""Where pages hear what changes, by WebSockets."""
EVERY_PAGE = "/{path:path}"
PAGE = re.compile(r"/(?!api/|healthz$|metrics$|login$|logout$|_nicegui_ws/).*", re.DOTALL)
"""What is passed on to the process of the pages: all that is not the manager's own."""
RECHECK_S = 5.0
"""How often it is looked at again whether a caller may have something that lasts."""


class Need(StrEnum):
    """What it takes to use a route."""

    OPEN = "open"
    """Nothing: whoever reaches the manager."""
    VIEW = "view"
    """Any role; what is shown depends on it."""
    OWN = "own"
    """For the owner of the job, and operators."""
    PRIVATE = "private"
    """For the owner of the job, and admins: what may hold secrets."""
    OPERATE = "operate"
    ADMINISTER = "administer"
    MANAGER = "manager"
    """For the manager's own user over the Unix socket."""


class Kind(StrEnum):
    """The limit that a request counts against."""

    REQUESTS = "requests"
    SUBMISSIONS = "submissions"
    FOLLOWERS = "followers"
    """Lasts as long as the client likes: what happens is told as it comes."""
    FORWARDS = "forwards"
    """Lasts as long as the client likes: a connection to a job."""
    PAGES = "pages"
    """A page, or a file of it: a browser asks for dozens at once."""
    DASHBOARDS = "dashboards"
    """Lasts as long as a page is open: what changes on it is told as it comes."""

    @property
    def lasts(self) -> bool:
        return self in (Kind.FOLLOWERS, Kind.FORWARDS, Kind.DASHBOARDS)


@dataclass(frozen=True, slots=True)
class Access:
    """What it takes to use a route, and what a request to it counts as."""

    need: Need
    kind: Kind = Kind.REQUESTS
    only_with: str = ""
    """The parameter of the query without which it is an ordinary request; empty: it always is of its kind."""


def _under(root: str, lines: str) -> dict[tuple[str, str], Access]:
    """A table that people can read: what it takes, the method, the path, and what a request counts as where
    it is not an ordinary one; `followers?follow` with that parameter in its query."""
    rows = (line.split() for line in lines.strip().splitlines())
    return {(method, root + path): _access(need, *kind) for need, method, path, *kind in rows}


def _access(need: str, counted: str = "requests") -> Access:
    kind, _, only_with = counted.partition("?")
    return Access(Need(need), Kind(kind), only_with)


TABLE: dict[tuple[str, str], Access] = {
    **_under(
        API,
        """
        view       GET    /openapi.json
        view       GET    /schema/job
        own        POST   /jobs                        submissions
        view       GET    /jobs
        own        GET    /jobs/{job}
        own        PATCH  /jobs/{job}
        own        GET    /jobs/{job}/explain
        own        GET    /jobs/{job}/story
        own        GET    /jobs/{job}/progress
        own        GET    /jobs/{job}/curves
        own        GET    /jobs/{job}/attempts
        own        GET    /jobs/{job}/placement
        own        GET    /jobs/{job}/outputs
        own        GET    /jobs/{job}/outputs/archive
        private    GET    /jobs/{job}/environment
        own        GET    /jobs/{job}/logs             followers?follow
        own        GET    /jobs/{job}/stacks
        own        POST   /jobs/{job}/cancel
        own        POST   /jobs/{job}/suspend
        own        POST   /jobs/{job}/resume
        own        POST   /jobs/{job}/idle
        own        POST   /jobs/{job}/save
        own        POST   /jobs/{job}/move
        own        GET    /jobs/{job}/ports/{port}
        own        POST   /jobs/{job}/ports/{port}     forwards
        view       GET    /nodes
        view       GET    /nodes/{name}/curves
        operate    POST   /nodes/{name}/drain
        operate    POST   /nodes/{name}/undrain
        operate    POST   /nodes/{name}/forget
        operate    POST   /nodes/{name}/block
        operate    POST   /nodes/{name}/unblock
        operate    POST   /nodes/{name}/test
        view       GET    /reservations
        operate    POST   /reservations
        operate    DELETE /reservations/{number}
        view       GET    /queues
        operate    PUT    /queues/{name:path}
        operate    DELETE /queues/{name:path}
        view       GET    /user-limits
        administer PUT    /user-limits/{name}
        view       GET    /prices
        administer PUT    /prices
        view       GET    /inputs
        operate    DELETE /inputs/{path:path}
        view       GET    /policy
        operate    PUT    /policy
        view       GET    /policies
        view       GET    /status
        view       GET    /overview
        view       GET    /grid
        view       GET    /timeline
        view       GET    /changes                     followers
        view       GET    /failures
        view       GET    /calibration
        view       GET    /usage
        operate    GET    /record/trace
        operate    GET    /record/scenario
        own        GET    /lab
        own        POST   /lab
        own        GET    /lab/{id}
        own        GET    /lab/{id}/report
        own        DELETE /lab/{id}
        operate    GET    /whatif
        operate    POST   /whatif
        view       GET    /whatif/daily
        view       GET    /whatif/{id}
        operate    DELETE /whatif/{id}
        administer GET    /record/events
        administer GET    /audit
        administer GET    /tokens
        administer POST   /tokens
        administer DELETE /tokens/{id}
        administer GET    /users
        administer PUT    /users/{name}
        administer DELETE /users/{name}
        view       GET    /caller
        view       POST   /login-links
        """,
    ),
    **_under(
        "",
        """
        open       GET    /healthz
        open       GET    /login
        open       POST   /login
        view       POST   /logout
        view       GET    /metrics
        view       POST   /_nicegui/{path:path}        pages
        view       GET    /_nicegui_ws/{path:path}     dashboards
        view       GET    /{path:path}                 pages
        """,
    ),
}
"""`PUT /policy` takes names of the catalog from operators; code and files are for `manager` only."""

LEAST = {
    Need.VIEW: Role.VIEWER,
    Need.OWN: Role.USER,
    Need.PRIVATE: Role.USER,
    Need.OPERATE: Role.OPERATOR,
    Need.ADMINISTER: Role.ADMIN,
    Need.MANAGER: Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class _Rule:
    method: str
    pattern: re.Pattern[str]
    access: Access


RULES: tuple[_Rule, ...] = tuple(
    _Rule(method, PAGE if path == EVERY_PAGE else compile_path(path)[0], access)
    for (method, path), access in TABLE.items()
)


def kind_of(scope: Scope, rules: Sequence[_Rule] = RULES) -> Kind:
    """What a request counts as: the query is read as routes read it."""
    for rule in rules:
        if rule.method == scope["method"] and rule.pattern.match(scope["path"]):
            needed = rule.access.only_with
            is_one = not needed or needed in QueryParams(scope["query_string"])
            return rule.access.kind if is_one else Kind.REQUESTS
    return Kind.REQUESTS


def is_manager(caller: Caller) -> bool:
    """Whether it is the manager's own user, as the kernel says."""
    return caller.via == "socket" and caller.uid == os.geteuid()


def may(caller: Caller | None, need: Need) -> bool:
    """Whether a caller has what a route takes; the owner of a job is looked at where the job is found."""
    if need is Need.OPEN:
        return True
    if caller is None or not caller.role.is_at_least(LEAST[need]):
        return False
    return need is not Need.MANAGER or is_manager(caller)


class AccessControl:
    """Finds out who asks, and refuses what the table does not allow."""

    def __init__(
        self,
        app: ASGIApp,
        identify: Callable[[Scope], Awaitable[Caller | None]],
        rules: Sequence[_Rule] = RULES,
    ) -> None:
        self._app = app
        self._identify = identify
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        caller, failure = scope["state"]["caller"], scope["state"]["unidentified"]
        if failure is not None:
            refusal: Response | None = None if self._is_open(scope) else error_of(failure)
        else:
            refusal = self._refusal(scope, caller)
        if refusal is None and kind_of(scope, self._rules).lasts:
            await self._serve_while_allowed(scope, caller, receive, send)
        else:
            await (refusal or self._app)(scope, receive, send)

    async def _serve_while_allowed(
        self, scope: Scope, caller: Caller | None, receive: Receive, send: Send
    ) -> None:
        """What lasts ends when the caller may no longer, however much is sent and received: a token may be
        revoked meanwhile."""
        serving = asyncio.ensure_future(self._app(scope, receive, send))
        try:
            while not (await asyncio.wait({serving}, timeout=RECHECK_S))[0]:
                if not await self._is_still(scope, caller):
                    return
            serving.result()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _is_still(self, scope: Scope, caller: Caller | None) -> bool:
        try:
            return await self._identify(scope) == caller
        except TooMany:  # its token is not valid as far as is known
            return False
        except Exception:  # a store that is away revokes nothing
            return True

    def _is_open(self, scope: Scope) -> bool:
        return self._refusal(scope, None) is None

    def _refusal(self, scope: Scope, caller: Caller | None) -> Response | None:
        found = [rule for rule in self._rules if rule.pattern.match(scope["path"])]
        needs = [rule.access.need for rule in found if rule.method == scope["method"]]
        if caller is None and (not needs or any(need is not Need.OPEN for need in needs)):
            return _unknown(scope)
        if not needs and found:
            allowed = ", ".join(sorted({rule.method for rule in found}))
            return error(405, PAGES[405], {"Allow": allowed})
        if not needs:
            return error(404, PAGES[404])
        denied = next((need for need in needs if not may(caller, need)), None)
        return None if caller is None or denied is None else _denied(caller, denied)


def _denied(caller: Caller, need: Need) -> Response:
    if need is Need.MANAGER:
        return error(403, MANAGER_ONLY, code="not_allowed")
    least = LEAST[need]
    has = f"{caller.user} has the role {caller.role} here"
    said = f"{has}, and this needs {least}: ask an admin of this manager."
    return error(403, said, code="not_allowed")


MANAGER_ONLY = "Only the manager's own user may do this, on its machine over its Unix socket."
NEEDS_TOKEN = (
    "This needs a token: send `Authorization: Bearer TOKEN`. `trainmaster token new` makes one on the"
    " manager's machine."
)
WRONG_TOKEN = "This token is not valid: it is unknown, has expired or was revoked."


def _unknown(scope: Scope) -> Response:
    """The answer to a request that does not show who sent it."""
    has_shown = "authorization" in Request(scope).headers
    if scope["method"] == "GET" and PAGE.match(scope["path"]) and not has_shown:
        return login_page(scope)
    return error(401, WRONG_TOKEN if has_shown else NEEDS_TOKEN, CHALLENGE)
