"""The manager as a service: what a service manager hears of it, by a socket that plays one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.live.daemons import live, until
from tests.live.test_identity import is_running, pid_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize("is_abstract", [False, True])
def test_it_says_that_it_is_ready_that_it_works_and_that_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    name = f"@{tmp_path.name}-notify" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(f"\0{name[1:]}" if is_abstract else name)
        service.settimeout(60.0)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        monkeypatch.setenv("WATCHDOG_USEC", "300000")

        def until_said(line: str) -> dict[str, str]:
            """The next message with this line; others come before it."""
            while True:
                lines = service.recv(4096).decode().splitlines()
                if line in lines:
                    return dict(each.split("=", 1) for each in lines)

        with live(tmp_path / "data", "--slots", "1") as manager:
            assert manager.process is not None
            ready = until_said("READY=1")
            assert ready["MAINPID"] == str(manager.process.pid)
            until_said("WATCHDOG=1")
            job = manager.submit(command="env | sort; sleep 3600")
            pid = pid_of(manager, job)
            until(
                lambda: until_said("WATCHDOG=1")["STATUS"] == "1 job running, 0 waiting.",
                "its status",
            )
            until(lambda: "PATH=" in manager.log(job), "the job's environment")
            assert "NOTIFY_SOCKET" not in manager.log(job)
            assert "WATCHDOG_USEC" not in manager.log(job)
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"NOTIFY_SOCKET" not in variables

            assert manager.stop() == 0  # as `systemctl stop` with KillMode=process
            assert "jobs go on" in until_said("STOPPING=1")["STATUS"]
            assert is_running(pid)
