"""Programs and orders have sockets of their own: what a job is handed does not let it end another one."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.live.daemons import live, until
from trainmaster.engines.local.socket_paths import for_orders, takes_orders

pytestmark = pytest.mark.live


def test_an_order_by_a_programs_socket_is_not_carried_out(tmp_path: Path) -> None:
    said = tmp_path / "socket"
    with live(tmp_path / "data", "--slots", "1") as daemon:
        job = daemon.submit(command=f"echo $TRAINMASTER_SOCKET > {said}; sleep 1000")
        path = until(lambda: said.exists() and said.read_text().strip(), "the path of its socket")
        for order in ({"order": "kill"}, {"say": "follow", "after": 0}):
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(30)
                line.connect(path)
                line.sendall(json.dumps(order).encode() + b"\n")
                assert line.recv(1 << 16) == b""  # it is closed, and tells nothing
        assert daemon.job(job)["state"] == "running"
        assert takes_orders(path) == for_orders(path) != path
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(for_orders(path))
            line.sendall(b'{"order": "kill"}\n')
            until(
                lambda: daemon.job(job)["state"] != "running" or daemon.job(job)["attempt"] > 1,
                "its end",
            )
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
        daemon.until_state(job, "cancelled")
        until(lambda: not Path(path).exists(), "its sockets to be gone")
        assert not Path(for_orders(path)).exists()
