"""A manager that was killed goes on with every run, whatever it would decide today, and on any devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live

pytestmark = pytest.mark.live


def restart(daemon: LiveDaemon, *arguments: str, is_killed: bool = True) -> None:
    if is_killed:
        daemon.kill()
    else:
        daemon.stop()
    daemon.arguments = arguments
    daemon.start()
    daemon.until_active()


def sleeper(daemon: LiveDaemon) -> tuple[str, object]:
    id = daemon.submit(command="sleep 300")
    return id, daemon.until_state(id, "running")["pids"]


def ended(daemon: LiveDaemon, *ids: str) -> None:
    for id in ids:
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
    for id in ids:
        daemon.until_state(id, "cancelled")


def is_as_it_was(daemon: LiveDaemon, id: str, pids: object) -> bool:
    row = daemon.job(id)
    return (row["state"], row["pids"], row["restarts"]) == ("running", pids, 0)


IDLE = """
from pathlib import Path
from trainmaster.model.plan import Plan
from trainmaster.policies.fifo import Fifo

assert Path({flag!r}).exists(), "it is being edited"

class Idle(Fifo):
    name = "idle"

    def plan(self, view, memo, now):
        return Plan((), memo)
"""


def test_what_a_stand_in_started_goes_on_when_the_policy_is_repaired(tmp_path: Path) -> None:
    flag, path = tmp_path / "flag", tmp_path / "idle.py"
    flag.touch()
    path.write_text(IDLE.format(flag=str(flag)))
    with live(tmp_path / "state", "--slots", "2", "--policy", str(path)) as daemon:
        id = daemon.submit(command="sleep 300")
        flag.unlink()
        restart(daemon, "--slots", "2")
        policy = daemon.call("GET", "/api/v1/policy")
        assert (policy["name"], policy["options"]) == ("idle.py", {}), (
            "and not those of the stand-in"
        )
        pids = daemon.until_state(id, "running")["pids"]
        flag.touch()
        restart(daemon, "--slots", "2")
        assert daemon.call("GET", "/api/v1/policy")["trouble"] is None
        assert is_as_it_was(daemon, id, pids)
        waits = daemon.submit(command="true")
        restart(daemon, "--slots", "2")
        assert is_as_it_was(daemon, id, pids)
        assert daemon.job(waits)["state"] == "pending"
        ended(daemon, id, waits)


RAISING = """
from trainmaster.policies.fifo import Fifo

class Raising(Fifo):
    name = "raising"

    def plan(self, view, memo, now):
        raise LookupError("no such thing")
"""


def test_a_policy_that_raises_is_named_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "raising.py"
    path.write_text(RAISING)
    with live(tmp_path / "state", "--slots", "2", "--policy", str(path)) as daemon:
        waits = daemon.submit(command="true")
        since = daemon.call("GET", "/api/v1/policy")["since_s"]
        restart(daemon, "--slots", "2", is_killed=False)
        assert daemon.call("GET", "/api/v1/policy")["since_s"] == since
        (note,) = daemon.call("GET", "/api/v1/status")["notes"]
        assert "raised an error (LookupError: no such thing" in note
        assert f"Warning: {note}" in (daemon.folder / "out.txt").read_text()
        why = daemon.call("GET", f"/api/v1/jobs/{waits}/explain")
        assert "LookupError" in str(why)
        assert "sixty days" not in str(why)
        ended(daemon, waits)


def test_a_run_that_began_on_other_devices_than_the_last_snapshot_goes_on(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2x2") as daemon:
        daemon.until_state(daemon.submit(command="true"), "succeeded")
        restart(daemon, "--slots", "2", is_killed=False)
        id, pids = sleeper(daemon)
        restart(daemon, "--slots", "2")
        assert is_as_it_was(daemon, id, pids)
        assert "lost" not in (tmp_path / "out.txt").read_text()
        ended(daemon, id)


def test_runs_go_on_with_fewer_devices_where_theirs_are_left(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        daemon.until_state(daemon.submit(command="true"), "succeeded")
        restart(daemon, "--slots", "3", is_killed=False)
        runs = dict(sleeper(daemon) for _ in range(3))
        restart(daemon, "--slots", "2", "--force")
        (lost,) = [id for id in runs if not is_as_it_was(daemon, id, runs[id])]
        assert (
            f"Ended: job {lost} (sleep). Its devices are gone" in (tmp_path / "out.txt").read_text()
        )
        daemon.until_state(lost, "pending", "suspended")
        ended(daemon, *runs)
        restart(daemon, "--slots", "2")
