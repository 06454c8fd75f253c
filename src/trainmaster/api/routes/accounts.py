"""Tokens, the roles of users, who the caller is, and links that open the page."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from trainmaster.api.access import WRONG_TOKEN
from trainmaster.api.audit_subject import note_subject
from trainmaster.api.caller import By, Caller, Role
from trainmaster.api.identity import CallerLookup, cookie_in, cookie_name
from trainmaster.api.login_page import NOT_LOGGED_IN, after_login, login_page
from trainmaster.api.request_body import content_type, object_of
from trainmaster.api.responses import (
    ApiError,
    JsonAnswer,
    NotAllowed,
    answer,
    answers,
    changes,
    takes,
)
from trainmaster.api.sessions import LINK_S, SESSION_S, Sessions
from trainmaster.api.tcp_peer import peer_uid
from trainmaster.config.job_file import Duration, Name
from trainmaster.config.validation import StrictModel, checked
from trainmaster.daemon import response_models as models
from trainmaster.daemon.accounts import now_ms
from trainmaster.daemon.admin_token import forget_admin_token
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.request_errors import TooMany
from trainmaster.model.units import DAY
from trainmaster.store.rows import TokenRow, UserRow

USUAL_LIFE = 90 * DAY
FORM_BYTES = 8192
FORM_S = 10.0
PAGE_ONLY_ONCE = "This link has been used, or has expired."
TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$", examples=["5f0c2e7b"])]
UserName = Annotated[
    str, Path(min_length=1, max_length=100, pattern=r"^[^/\x00-\x1f\x7f]+$", examples=["ada"])
]


class NewToken(StrictModel):
    """Whom a token is for."""

    user: Name = Field(description="Whose jobs are its own.")
    role: Role = Field(Role.USER, strict=False, description="What it may do.")
    expires: Duration | None = Field(
        USUAL_LIFE, description="For how long it is valid; null: until it is revoked."
    )
    label: str = Field("", max_length=200, description="What it is for.")


class UserRole(StrictModel):
    """The role of a Unix user of the manager's machine."""

    role: Role = Field(strict=False, description="What the user may do.")


BODIES: tuple[type[BaseModel], ...] = (NewToken, UserRole)


def routes(service: Daemon, sessions: Sessions, url: str) -> APIRouter:
    router = APIRouter(tags=["accounts"])
    _tokens(router, service)
    _users(router, service)
    _links(router, sessions, url)
    return router


def _tokens(router: APIRouter, service: Daemon) -> None:
    @router.get("/tokens", summary="Tokens, oldest first", **answers(models.TokenList, 503))
    async def tokens() -> Response:
        """Revoked and expired ones too. The tokens themselves are not stored and not shown."""
        return JsonAnswer(
            models.TokenList([_token(row) for row in await service.accounts.tokens()])
        )

    made = takes(NewToken, models.CreatedToken)
    made["responses"][201] = answer(
        models.CreatedToken, "Made: this is the only time that it is shown."
    )

    @router.post("/tokens", summary="Make a token", status_code=201, **made)
    async def create_token(request: Request) -> Response:
        wanted = checked(NewToken, await object_of(request))
        expires = None if wanted.expires is None else now_ms() + wanted.expires
        row, text = await service.accounts.create_token(
            wanted.user, wanted.role.value, expires, wanted.label
        )
        note_subject(request, f"token {row.id}")
        return JsonAnswer(models.CreatedToken(**vars(_token(row)), token=text), 201, NOT_STORED)

    @router.delete("/tokens/{id}", summary="Revoke a token", **changes(models.TokenInfo))
    async def revoke_token(id: TokenId) -> Response:
        """From now on it is refused, and so are sessions of the page that it began."""
        revoked = await service.accounts.revoke_token(id)
        await to_thread.run_sync(forget_admin_token, service.folder, revoked)
        return JsonAnswer(_token(revoked))


NOT_STORED = {"Cache-Control": "no-store"}


def _users(router: APIRouter, service: Daemon) -> None:
    @router.get(
        "/users", summary="Unix users with a role of their own", **answers(models.UserList, 503)
    )
    async def users() -> Response:
        """Others have the role user; the manager's own user and root are admins."""
        return JsonAnswer(models.UserList([_user(row) for row in await service.accounts.users()]))

    @router.put(
        "/users/{name}", summary="Set the role of a Unix user", **takes(UserRole, models.UserInfo)
    )
    async def set_role(name: UserName, request: Request) -> Response:
        """For the Unix socket; tokens have roles of their own."""
        wanted = checked(UserRole, await object_of(request))
        return JsonAnswer(_user(await service.accounts.set_role(name, wanted.role.value)))

    @router.delete(
        "/users/{name}", summary="Take back the role of a Unix user", **changes(models.UserInfo)
    )
    async def forget_role(name: UserName) -> Response:
        """The user has the role user again; the answer is the one that it had."""
        return JsonAnswer(_user(await service.accounts.forget_role(name)))

    @router.get("/caller", summary="Who you are to this manager", **answers(models.CallerInfo))
    async def caller(by: By) -> Response:
        return JsonAnswer(models.CallerInfo(by.user, by.role.value, by.via, by.uid, by.token))


def _links(router: APIRouter, sessions: Sessions, url: str) -> None:
    @router.post("/login-links", summary="A link that opens the page", **changes(models.LoginLink))
    async def login_link(request: Request, by: By) -> Response:
        """It works once, for ten minutes, as whoever asks for it, and leads where the manager was asked.

        Behind a proxy it leads to the proxy, and for the Unix socket to the manager's own address.
        """
        if by.via == "link":
            raise NotAllowed("A session of the page cannot begin another one.")
        is_direct = by.via == "token" and request.url.scheme == urlsplit(url).scheme
        at = f"{request.url.scheme}://{request.headers['host']}" if is_direct else url
        made = models.LoginLink(link_of(at, sessions.new_link(by)), time.time() + LINK_S)
        return JsonAnswer(made, headers=NOT_STORED)


def link_of(url: str, code: str) -> str:
    return f"{url}/login?code={quote(code)}"


def login_routes(sessions: Sessions, callers: CallerLookup, url: str) -> APIRouter:
    """Where sessions of the page begin and end."""
    router = APIRouter()

    @router.get("/login", include_in_schema=False)
    async def login(request: Request, code: Annotated[str, Query(max_length=200)] = "") -> Response:
        """The code is used up, and is not in the address that the browser then shows."""
        browser = peer_uid(request.scope)
        cookie = sessions.begin(code, browser)
        session = None if cookie is None else sessions.of(cookie, browser)
        if cookie is None or session is None:
            return login_page(request.scope, PAGE_ONLY_ONCE if code else NOT_LOGGED_IN, "/")
        return begun(request, session.origin, cookie, "/")

    @router.post("/login", include_in_schema=False)
    async def login_by_token(request: Request) -> Response:
        """The token comes in the body, and is in no address."""
        token, then = await _form(request)
        try:
            origin = await callers.of_token(token, request.scope)
        except TooMany as refusal:
            return login_page(request.scope, str(refusal), then, 429)
        if origin is None:
            return login_page(request.scope, WRONG_TOKEN, then)
        cookie = sessions.begin_as(origin, await to_thread.run_sync(peer_uid, request.scope))
        return begun(request, origin, cookie, then)

    @router.post("/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        cookie = cookie_in(request.headers, request.scope)
        if cookie is not None:
            sessions.end(cookie)
        answered = RedirectResponse("/login", 303, NOT_STORED)
        answered.delete_cookie(_cookie_name(request))
        return answered

    def begun(request: Request, origin: Caller, cookie: str, then: str) -> Response:
        request.state.caller = replace(origin, via="link", pid=None)
        note_subject(request, "session of the page")
        answered = RedirectResponse(then, 303, {**NOT_STORED, "Referrer-Policy": "no-referrer"})
        answered.set_cookie(
            _cookie_name(request),
            cookie,
            max_age=SESSION_S,
            secure=url.startswith("https:"),
            httponly=True,
            samesite="strict",
        )
        return answered

    return router


async def _form(request: Request) -> tuple[str, str]:
    """The token that was typed in, and where to go then."""
    if content_type(request) != "application/x-www-form-urlencoded":
        raise ApiError(415, "Send the token as a form.")
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_S):
            async for piece in request.stream():
                body += piece
                if len(body) > FORM_BYTES:
                    raise ApiError(413, "This form is too large.")
    except TimeoutError:
        raise ApiError(408, f"The form did not come within {FORM_S:g} s.") from None
    said = parse_qs(body.decode("ascii", "replace"))
    return said.get("token", [""])[0].strip(), after_login(said.get("then", [""])[0])


def _cookie_name(request: Request) -> str:
    server = request.scope.get("server") or ("", "")
    return cookie_name(server[1])


def _token(row: TokenRow) -> models.TokenInfo:
    return models.TokenInfo(
        id=row.id,
        user=row.user,
        role=row.role,
        label=row.label,
        created_s=row.created_ms / 1000,
        expires_s=_seconds(row.expires_ms),
        revoked_s=_seconds(row.revoked_ms),
        used_s=_seconds(row.used_ms),
    )


def _user(row: UserRow) -> models.UserInfo:
    return models.UserInfo(row.id, row.role, row.changed_ms / 1000)


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000
