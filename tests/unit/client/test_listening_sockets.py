"""Who listens on a port of this machine: by the kernel's own answers, and by its tables."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import NoReturn

import pytest

from trainmaster.client import listening_sockets
from trainmaster.client.listening_sockets import Listener, listeners_at, sockets_of


@contextmanager
def listening(host: str, port: int = 0, family: int = socket.AF_INET) -> Iterator[tuple[int, int]]:
    """The port and the inode of a socket that listens."""
    with socket.socket(family) as made:
        made.bind((host, port))
        made.listen()
        yield made.getsockname()[1], os.fstat(made.fileno()).st_ino


@pytest.fixture(params=["asked", "tables"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> NoReturn:
        raise OSError

    if request.param == "tables":
        monkeypatch.setattr(listening_sockets, "_ask", silent)
    else:
        monkeypatch.setattr(listening_sockets, "_in_tables", silent)


def at(host: str, port: int) -> frozenset[Listener]:
    return listeners_at(ip_address(host), port)


@pytest.mark.usefixtures("_both_ways")
def test_the_socket_that_gets_what_is_sent_to_an_address() -> None:
    me = os.geteuid()
    with listening("127.0.0.1") as (port, inode):
        assert at("127.0.0.1", port) == {(me, inode)}
        assert at("127.0.0.2", port) == frozenset()
        assert inode in sockets_of(os.getpid())
        with listening("127.0.0.2", port) as (_, other):
            assert at("127.0.0.2", port) == {(me, other)}
            assert at("127.0.0.1", port) == {(me, inode)}
    assert at("127.0.0.1", port) == frozenset()


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize(
    ("host", "family"),
    [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6), ("::ffff:127.0.0.1", socket.AF_INET6)],
)
def test_one_that_listens_on_every_address(host: str, family: int) -> None:
    with listening(host, family=family) as (port, inode):
        assert at("127.0.0.1", port) == {(os.geteuid(), inode)}
