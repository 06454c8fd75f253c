"""Where the manager listens."""

from __future__ import annotations

import socket

import pytest

from trainmaster.api.front import url_of
from trainmaster.api.server import listening, listening_near


def test_the_next_free_port_is_taken_where_the_usual_one_is_not_free() -> None:
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with listening_near("127.0.0.1", port) as second:
            assert port < second.getsockname()[1] < port + 20
            assert url_of(second).startswith("http://127.0.0.1:")
        with pytest.raises(OSError, match="in use"):
            listening("127.0.0.1", port)


def test_it_can_be_reached_as_soon_as_it_listens() -> None:
    with (
        listening("127.0.0.1", 0) as sock,
        socket.create_connection(sock.getsockname()[:2], timeout=10) as client,
    ):
        assert client.getpeername() == sock.getsockname()
