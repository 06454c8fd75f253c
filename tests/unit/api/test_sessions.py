"""Links and sessions of the page: how many there may be, and whose go where there are too many."""

from __future__ import annotations

from trainmaster.api.caller import Caller, Role
from trainmaster.api.sessions import MOST, Sessions


def caller(user: str) -> Caller:
    return Caller(user, Role.VIEWER, None, "token")


def begun(sessions: Sessions, user: str) -> str:
    cookie = sessions.begin(sessions.new_link(caller(user)), None)
    assert cookie is not None
    return cookie


def test_a_user_with_too_many_sessions_loses_its_own_oldest() -> None:
    sessions = Sessions()
    of_bob = [begun(sessions, "bob") for _ in range(2)]
    of_eve = [begun(sessions, "eve") for _ in range(2 * MOST)]
    assert all(sessions.of(cookie, None) for cookie in of_bob)
    assert [sessions.of(cookie, None) is None for cookie in of_eve].count(False) == MOST - 2
    assert sessions.of(of_eve[-1], None) is not None


def test_a_user_with_too_many_links_loses_its_own_oldest() -> None:
    sessions = Sessions()
    link = sessions.new_link(caller("bob"))
    links = [sessions.new_link(caller("eve")) for _ in range(2 * MOST)]
    assert sessions.begin(link, None) is not None
    assert sessions.begin(links[0], None) is None
    assert sessions.begin(links[-1], None) is not None
