"""One Unix user floods the manager for everybody; another one is answered all the while."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tests.live.daemons import until
from tests.live.unix_users import AsUser, asked, shared_folder, system_manager, unix_user
from trainmaster.api.local_socket import SYSTEM
from trainmaster.model.launch_spec import Account

pytestmark = pytest.mark.live

LIMITS = {
    "connections": "60",
    "user_connections": "30",
    "user_rate": "1",
    "user_burst": "20",
    "user_followers": "3",
    "header_deadline": "10m",
}


@dataclass(frozen=True)
class Two:
    ada: Account
    bob: Account
    url: str


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    stated = [word for each in LIMITS.items() for word in ("--limit", "=".join(each))]
    with (
        shared_folder() as base,
        unix_user(base) as ada,
        unix_user(base) as bob,
        system_manager(base / "state", "--slots", "1", *stated) as daemon,
    ):
        yield Two(ada, bob, daemon.url or "")


def opened(stack: ExitStack, account: Account | None) -> AsUser:
    line = stack.enter_context(closing(AsUser(SYSTEM, account)))
    line.connect()
    return line


def test_connections_of_one_user_leave_some_for_another_and_for_root(two: Two) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            opened(stack, two.ada)
        for _ in range(10):
            line = opened(stack, two.ada)
            line.sock.settimeout(60)
            said = line.sock.recv(4096).decode()
            assert said.startswith("HTTP/1.1 429 ")
            assert "retry-after: 1" in said
            assert "(the limit user_connections)" in said
        for account in (two.bob, None):
            assert asked(SYSTEM, account, "GET", "/api/v1/jobs")[0] == 200
        assert asked(SYSTEM, two.bob, "GET", "/healthz")[0] == 200


def over_tcp(stack: ExitStack, url: str, account: Account) -> socket.socket:
    """A connection that this user makes; its socket is the user's from its creation on."""
    place = urlsplit(url)
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        made = socket.create_connection((place.hostname or "", place.port or 0), 60)
    finally:
        os.seteuid(0)
        os.setegid(0)
    return stack.enter_context(made)


def test_tcp_connections_of_one_user_here_leave_some_for_another(two: Two) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    until(lambda: asked(SYSTEM, two.ada, "GET", "/healthz")[0] == 200, "room for ada again")
    with ExitStack() as stack:
        lines = [over_tcp(stack, two.url, two.ada) for _ in range(30)]
        last = over_tcp(stack, two.url, two.ada)
        assert last.recv(4096).startswith(b"HTTP/1.1 429 ")
        others = over_tcp(stack, two.url, two.bob)
        others.sendall(request)
        assert others.recv(4096).startswith(b"HTTP/1.1 200 ")
        lines[0].sendall(request)
        assert lines[0].recv(4096).startswith(b"HTTP/1.1 200 "), "hers are answered too"


def test_followers_of_one_user_leave_some_for_another(two: Two) -> None:
    until(lambda: asked(SYSTEM, two.ada, "GET", "/healthz")[0] == 200, "room for ada again")
    with ExitStack() as stack:
        statuses = []
        for _ in range(4):
            line = opened(stack, two.ada)
            line.request("GET", "/api/v1/changes")
            statuses.append(line.getresponse().status)
        assert statuses == [200, 200, 200, 429]
        line = opened(stack, two.bob)
        line.request("GET", "/api/v1/changes")
        assert line.getresponse().status == 200


def test_who_asks_too_often_waits_and_others_do_not(two: Two) -> None:
    answers = (asked(SYSTEM, two.ada, "GET", "/api/v1/caller") for _ in range(10_000))
    refused = next(said for status, said in answers if status == 429)
    assert "(the limit user_rate)" in refused["error"]["sentence"]
    assert asked(SYSTEM, two.bob, "GET", "/api/v1/caller")[0] == 200
    assert asked(SYSTEM, None, "GET", "/api/v1/caller")[0] == 200
