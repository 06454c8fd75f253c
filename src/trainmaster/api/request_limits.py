"""How many requests are answered at once, in all and for each user, and how often each may ask.

Those that follow something are counted apart. Operators have the limits of all together only, and a part of
these is kept for them and for users who have nothing there yet.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.access import Kind, kind_of
from trainmaster.api.caller import Caller
from trainmaster.api.limit_key import limit_key_of
from trainmaster.api.responses import LATER, error
from trainmaster.api.token_bucket import TokenBuckets
from trainmaster.config.limits import Limits

STATUS = {
    Kind.REQUESTS: 503,
    Kind.SUBMISSIONS: 503,
    Kind.FOLLOWERS: 429,
    Kind.FORWARDS: 429,
    Kind.PAGES: 503,
    Kind.DASHBOARDS: 429,
}
USER_LIMIT = {
    Kind.REQUESTS: "user_requests",
    Kind.SUBMISSIONS: "user_submissions",
    Kind.FOLLOWERS: "user_followers",
    Kind.FORWARDS: "user_followers",
    Kind.PAGES: "user_pages",
    Kind.DASHBOARDS: "user_dashboards",
}
"""The limit of one user for each kind."""
RESERVE = 8
"""One of so many places is kept for operators and those who have none."""
SOON = {"Retry-After": "1"}
OVER = "over_user_limit"
"""The code of answers that their own user's limit is the reason of: it helps to wait."""
HEALTH = "/healthz"


def now_us() -> int:
    return time.monotonic_ns() // 1000


class RequestLimits:
    """Refuses a request where as many of its kind are being answered as the limits allow."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        *,
        is_proxied: bool = False,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._app = app
        self._limits = limits
        self._is_proxied = is_proxied
        self._clock = clock
        self._running: Counter[Kind] = Counter()
        self._of_one: Counter[tuple[str, str]] = Counter()
        """By limit and user."""
        self._rates = TokenBuckets(limits.user_rate, limits.user_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH:
            await self._app(scope, receive, send)
            return
        kind = kind_of(scope)
        caller: Caller | None = scope.get("state", {}).get("caller")
        is_operator = caller is not None and caller.is_operator
        who = None if is_operator else limit_key_of(scope, is_proxied=self._is_proxied)
        refusal = (None if who is None else self._own_refusal(kind, who)) or self._refusal(
            kind, who, is_operator=is_operator
        )
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        own = (USER_LIMIT[kind], who or "")
        self._running[kind] += 1
        self._of_one[own] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running[kind] -= 1
            self._of_one[own] -= 1
            if not self._of_one[own]:
                del self._of_one[own]

    def _own_refusal(self, kind: Kind, who: str) -> Response | None:
        """Why one user may not ask this now."""
        name = USER_LIMIT[kind]
        most: int = getattr(self._limits, name)
        if self._of_one[name, who] >= most:
            said = f"{most:,} requests of {who} are being served already (the limit {name})"
            return error(429, f"{said}: try again when one of them is done.", SOON, OVER)
        is_page = kind in (Kind.PAGES, Kind.DASHBOARDS)
        wait_us = self._rates.take(f"pages of {who}" if is_page else who, self._clock())
        if not wait_us:
            return None
        wait_s = -(-wait_us // 1_000_000)
        said = (
            f"{who} asks more than {self._limits.user_rate:,} times a second (the limit user_rate)"
        )
        later = {"Retry-After": str(wait_s)}
        return error(429, f"{said}: try again in {wait_s} s.", later, OVER)

    def _refusal(self, kind: Kind, who: str | None, *, is_operator: bool) -> Response | None:
        """Why nobody, or nobody who has some already, may ask this now."""
        most: int = getattr(self._limits, kind)
        may_take_last = is_operator or (who is not None and not self._of_one[USER_LIMIT[kind], who])
        if self._running[kind] < (most if may_take_last else most - most // RESERVE):
            return None
        said = f"{self._running[kind]:,} {kind} are being served already (the limit {kind})"
        return error(STATUS[kind], f"{said}: try again later.", LATER)
