"""Sessions of the page: begun by a link that works once or a token, kept by a cookie, ended with the manager.

Where there are too many, whoever has the most loses the oldest: one user, who may ask for links again and
again, logs nobody else out.

They are not stored. After a crash any user of the machine may listen on the manager's port, and a browser
would show it the cookie: no manager accepts it any more. While the manager runs, a cookie counts only from
the Unix user whose browser opened the link, where the kernel knows who that is.

A cookie is the name of its session and a secret. The page process is told the name, by which it asks on its
own socket, and never the secret: it cannot be a browser.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from trainmaster.api.caller import Caller
from trainmaster.daemon.places import first_out

LINK_S = 10 * 60
SESSION_S = 12 * 3600
MOST = 1000
"""Links of all users together, and sessions."""
RANDOM_BYTES = 32
BETWEEN = "."


@dataclass(frozen=True, slots=True)
class Session:
    """What a link or a cookie stands for."""

    origin: Caller
    """Who asked for the link."""
    expires_s: float
    """By the clock that never goes backwards."""
    browser_uid: int | None = None
    """Whose browser it is, where it is on this machine."""
    secret: str = ""
    """The second half of a cookie."""


class Sessions:
    """The links and cookies of one manager."""

    def __init__(self) -> None:
        self._links: dict[str, Session] = {}
        self._sessions: dict[str, Session] = {}

    def new_link(self, origin: Caller) -> str:
        """A code that begins a session of this caller, once and soon."""
        return _kept(self._links, Session(origin, time.monotonic() + LINK_S))

    def begin(self, code: str, browser_uid: int | None) -> str | None:
        """Use a code up; the cookie of its session, or None for one that is used, expired or unknown."""
        link = _valid(self._links, code)
        if link is None:
            return None
        del self._links[code]
        return self.begin_as(link.origin, browser_uid)

    def begin_as(self, origin: Caller, browser_uid: int | None) -> str:
        """The cookie of a new session of this caller."""
        secret = secrets.token_urlsafe(RANDOM_BYTES)
        expires_s = time.monotonic() + SESSION_S
        name = _kept(self._sessions, Session(origin, expires_s, browser_uid, secret))
        return f"{name}{BETWEEN}{secret}"

    def of(self, cookie: str, browser_uid: int | None) -> Session | None:
        """The session of a cookie that comes from the browser that it was given to."""
        name, _, secret = cookie.partition(BETWEEN)
        found = self.named(name)
        if found is None or found.browser_uid != browser_uid:
            return None
        return found if secrets.compare_digest(found.secret.encode(), secret.encode()) else None

    def named(self, name: str) -> Session | None:
        """The session that the page process asks for."""
        return _valid(self._sessions, name)

    def end(self, cookie: str) -> None:
        self._sessions.pop(name_in(cookie), None)


def name_in(cookie: str) -> str:
    """The name of the session of a cookie."""
    return cookie.partition(BETWEEN)[0]


def _kept(where: dict[str, Session], session: Session) -> str:
    name = secrets.token_urlsafe(RANDOM_BYTES)
    if len(where) >= MOST:
        owners = [each.origin.user for each in where.values()]
        del where[list(where)[first_out(owners)]]
    where[name] = session
    return name


def _valid(where: dict[str, Session], name: str) -> Session | None:
    """Looked up by 256 random bits, so that what the lookup takes tells nothing."""
    found = where.get(name)
    if found is not None and found.expires_s <= time.monotonic():
        del where[name]
        return None
    return found
