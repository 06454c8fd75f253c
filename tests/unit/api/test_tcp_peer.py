"""Whose process is at the other end of a TCP connection within this machine."""

from __future__ import annotations

import os
import socket

import pytest

from trainmaster.api import tcp_peer
from trainmaster.api.tcp_peer import NOBODY, kernel_uid, peer_uid


@pytest.mark.parametrize("can_ask", [True, False])
def test_a_connection_that_was_closed_at_once_is_nobodys_and_not_roots(
    can_ask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_ask:
        monkeypatch.setattr(tcp_peer, "NETLINK_SOCK_DIAG", 30)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            scope = {"client": client.getsockname(), "server": listener.getsockname()}
            assert peer_uid(scope) == os.getuid()
            asked = kernel_uid(scope["client"], scope["server"])
            assert asked == (os.getuid() if can_ask else None)
            client.close()
            assert accepted.recv(1) == b""  # the request may be read, and answered to nobody
            assert peer_uid(scope) == NOBODY
