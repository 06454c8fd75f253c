"""Finds out who asks: by the kernel over the Unix socket, else by a token or the cookie of a session."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.cookies import CookieError, SimpleCookie

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.caller import Caller, Role
from trainmaster.api.headers import SESSION_HEADER
from trainmaster.api.limit_key import tcp_origin
from trainmaster.api.peer import ROOT, SCOPE, Peer, ourselves
from trainmaster.api.request_limits import now_us
from trainmaster.api.session_socket import is_only_session
from trainmaster.api.sessions import Session, Sessions
from trainmaster.api.tcp_peer import NOWHERE, peer_uid
from trainmaster.api.token_bucket import TokenBuckets
from trainmaster.config.limits import Limits
from trainmaster.daemon.accounts import Accounts
from trainmaster.daemon.request_errors import TooMany
from trainmaster.daemon.unix_users import own_name, user_name
from trainmaster.store.rows import TokenRow

BEARER = "bearer "


class Authentication:
    """Notes who asks with the request, or why that cannot be told now."""

    def __init__(self, app: ASGIApp, identify: Callable[[Scope], Awaitable[Caller | None]]) -> None:
        self._app = app
        self._identify = identify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        state["caller"] = state["unidentified"] = None
        if scope["type"] == "http":
            try:
                state["caller"] = await self._identify(scope)
            except Exception as failure:  # such as a store that is away
                state["unidentified"] = failure
        await self._app(scope, receive, send)


class CallerLookup:
    """Who asks, for every request of one manager.

    To look up a token costs a question to the store. Where more wrong ones come from a user of this machine,
    or from an address, than `user_rate` and `user_burst` allow, only those that were right before are looked
    up, for a while.
    """

    def __init__(
        self,
        accounts: Accounts,
        sessions: Sessions,
        limits: Limits,
        *,
        is_proxied: bool = False,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._wrong = TokenBuckets(limits.user_rate, limits.user_burst)
        self._is_proxied = is_proxied
        self._clock = clock

    async def of(self, scope: Scope) -> Caller | None:
        """None for a request that does not show who sent it."""
        headers = Headers(scope=scope)
        if is_only_session(scope):
            return await self._of_session(self._sessions.named(headers.get(SESSION_HEADER, "")))
        peer: Peer | None = scope.get(SCOPE)
        if peer is not None:
            return await self.of_peer(peer)
        shown = headers.get("authorization")
        if shown is not None:
            return await self._of_token(shown, scope)
        cookie = cookie_in(headers, scope)
        if cookie is None:
            return None
        browser = await to_thread.run_sync(peer_uid, scope)
        return await self._of_session(self._sessions.of(cookie, browser))

    async def of_peer(self, peer: Peer) -> Caller:
        """Who asks over the Unix socket: the manager's own user and root may do everything."""
        name = await to_thread.run_sync(user_name, peer.uid)
        role = Role.ADMIN
        if peer.uid not in (ourselves().uid, ROOT):
            role = _role(await self._accounts.role_of(name), Role.USER)
        return Caller(name, role, peer.uid, "socket", peer.pid)

    async def _of_token(self, shown: str, scope: Scope) -> Caller | None:
        if not shown.lower().startswith(BEARER):
            return None
        return await self.of_token(shown[len(BEARER) :].strip(), scope)

    async def of_token(self, text: str, scope: Scope) -> Caller | None:
        """Whose token it is; TooMany where more wrong ones than allowed come from there."""
        origin = None if self._accounts.was_valid(text) else self._origin(scope)
        if origin is not None and self._wrong.wait(origin, self._clock()):
            raise TooMany(f"Too many wrong tokens come from {origin}: try again later.")
        row = await self._accounts.token_of(text)
        if row is None and origin is not None:
            self._wrong.take(origin, self._clock())
        return None if row is None else _bearer(row)

    def _origin(self, scope: Scope) -> str | None:
        ends = (scope.get(end) or NOWHERE for end in ("client", "server"))
        return tcp_origin(*ends, is_proxied=self._is_proxied)

    async def _of_session(self, session: Session | None) -> Caller | None:
        """As whoever began it is now: a token may be revoked, a role changed."""
        if session is None:
            return None
        origin = session.origin
        if origin.token is not None:
            is_valid = await self._accounts.is_valid(origin.token)
            return replace(origin, via="link") if is_valid else None
        peer = Peer(origin.pid or 0, ROOT if origin.uid is None else origin.uid, 0)
        return replace(await self.of_peer(peer), via="link", pid=None)


def _bearer(row: TokenRow) -> Caller:
    return Caller(row.user, _role(row.role, Role.VIEWER), None, "token", token=row.id)


def _role(stored: str | None, otherwise: Role) -> Role:
    """A role that a newer version stored gives no rights that this one does not know."""
    return Role(stored) if stored in list(Role) else otherwise


def cookie_name(port: object) -> str:
    """By port: browsers send the cookies of a host to all of its ports."""
    return f"trainmaster_{port}"


def cookie_in(headers: Headers, scope: Scope) -> str | None:
    """The session's cookie of a request."""
    server = scope.get("server") or ("", "")
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(server[1]))
    except CookieError:
        return None
    return None if found is None else found.value


def manager_itself() -> Caller:
    """The manager's own user, for the link that `up` prints."""
    return Caller(own_name(), Role.ADMIN, os.geteuid(), "socket", os.getpid())
