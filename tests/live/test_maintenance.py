"""Maintenance and reservations as an operator plans them, on a manager with real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live
from tests.live.test_reasons import busy, reason_of, refused, waits

pytestmark = pytest.mark.live


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def node_of(daemon: LiveDaemon) -> str:
    return str(daemon.call("GET", "/api/v1/nodes")["nodes"][0]["name"])


def plan(daemon: LiveDaemon, in_s: float, **terms: object) -> dict[str, object]:
    body = {"begin_s": time.time() + in_s, "for": "4h", **terms}
    answer: dict[str, object] = daemon.call("POST", "/api/v1/reservations", body)
    return answer


def test_a_long_job_waits_for_the_end_and_a_restart_changes_nothing(folder: Path) -> None:
    with live(folder, "--slots", "2") as daemon:
        row = plan(daemon, 3600, places=["all"], reason="new driver")
        assert (row["nodes"], row["is_maintenance"]) == ([node_of(daemon)], True)
        id, reason = waits(daemon, max_runtime="2h")
        assert reason["code"] == "Maintenance"
        assert "(new driver), when it might still run" in reason["sentence"]
        busy(daemon, max_runtime="30m")
        said = daemon.call("GET", f"/api/v1/jobs/{id}/explain")["forecast"]
        assert abs(said["start_s"] - float(str(row["end_s"]))) < 60
    with live(folder, "--slots", "2") as daemon:
        assert reason_of(daemon, id)["code"] == "Maintenance"
        (kept,) = daemon.call("GET", "/api/v1/reservations")["reservations"]
        daemon.call("DELETE", f"/api/v1/reservations/{kept['number']}")
        daemon.until_state(id, "running")


def test_runs_are_suspended_when_it_begins_and_the_story_says_why(folder: Path) -> None:
    with live(folder, "--slots", "2") as daemon:
        free, rigid = busy(daemon), busy(daemon, preemptible=False)
        row = plan(daemon, -1, places=[node_of(daemon)])
        daemon.until_state(free, "suspended")
        assert "ran on a node that is in maintenance now" in str(
            daemon.call("GET", f"/api/v1/jobs/{free}/story")
        )
        (node,) = daemon.call("GET", "/api/v1/nodes")["nodes"]
        assert node["state"] == "maintenance"
        (kept,) = daemon.call("GET", "/api/v1/reservations")["reservations"]
        assert (kept["has_begun"], kept["left"]) == (True, [rigid])
        said = daemon.call("GET", f"/api/v1/jobs/{rigid}/explain")["remarks"]
        assert "it was left running" in str(said)
        daemon.call("DELETE", f"/api/v1/reservations/{row['number']}")
        daemon.until_state(free, "running")


def test_devices_are_kept_for_a_user_and_nonsense_is_refused(folder: Path) -> None:
    with live(folder, "--slots", "2") as daemon:
        row = plan(daemon, 3600, devices=1, user="nobody-here")
        assert len(row["devices"]) == 1  # type: ignore[arg-type]
        busy(daemon, max_runtime="9h")
        _, reason = waits(daemon, max_runtime="9h")
        assert reason["code"] == "Reservation"
        assert "reserved for nobody-here from" in reason["sentence"]
        nonsense: list[tuple[int, dict[str, object], str]] = [
            (409, {"devices": 2, "user": "eve"}, "can be reserved then is 1, not 2"),
            (409, {"places": row["devices"], "user": "eve"}, "kept free already then"),
            (404, {"places": ["n77"]}, "no node n77"),
            (422, {"devices": 1}, "Maintenance is of whole nodes"),
            (422, {"places": ["all"], "begin_s": 1.0}, "The time was over"),
            (422, {"places": ["all"], "for": "0s"}, "more than nothing"),
        ]
        for status, terms, words in nonsense:
            with refused(status) as said:
                plan(daemon, 3600, **terms)
            assert words in said[0]


def test_the_command_line_plans_lists_and_cancels(folder: Path) -> None:
    with live(folder, "--slots", "2") as daemon:

        def tm(*words: str) -> str:
            command = [sys.executable, "-m", "trainmaster", *words, "--data", str(daemon.folder)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        name = node_of(daemon)
        assert tm("node", "maintenance", name, "--in", "2h", "--for", "1h").startswith(
            f"Planned: number 1, maintenance of {name} from"
        )
        assert "planned" in tm("reservations")
        mistaken = [sys.executable, "-m", "trainmaster", "reserve", "--cancel", "1"]
        said = subprocess.run(
            [*mistaken, "--data", str(daemon.folder)], capture_output=True, text=True
        )
        assert said.returncode == 1
        assert "Not cancelled: number 1, maintenance of" in said.stderr
        assert "`trainmaster node maintenance --cancel 1` does it." in said.stderr
        assert "Cancelled: number 1" in tm("node", "maintenance", "--cancel", "1")
        assert tm("reserve") == "Nothing is reserved.\n"
        again = tm("reserve", "1", "--user", "root", "--in", "2h", "--for", "1h")
        assert "number 2," in again, "no number is given twice"


def test_a_reservation_for_nobody_is_refused_or_noted(folder: Path) -> None:
    with live(folder, "--slots", "2") as daemon:

        def tm(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "trainmaster", *words, "--data", str(daemon.folder)]
            return subprocess.run(command, capture_output=True, text=True)

        ahead = ("--in", "2h", "--for", "1h")
        free = tm("reserve", "1", "--queue", "visoin", *ahead)
        assert free.returncode == 0
        assert "Note: no queue is defined: jobs with `queue: visoin`" in free.stderr
        assert tm("queue", "set", "vision").returncode == 0
        refused = tm("reserve", "1", "--queue", "visoin", *ahead)
        assert refused.returncode == 1
        assert "did you mean vision?" in refused.stderr
        assert tm("reserve", "1", "--queue", "vision", *ahead).stderr == ""
        assert tm("reserve", "--cancel", "2").returncode == 0
        for words in (
            ("reserve", "1", "--user", "roto", *ahead),
            ("user", "set", "roto", "--max-gpus", "1"),
            ("token", "new", "--user", "roto"),
        ):
            said = tm(*words)
            assert said.returncode == 0
            assert "Note: this machine has no user roto; did you mean root?" in said.stderr, words
        assert "no user" not in tm("user", "set", "root", "--max-gpus", "2").stderr
        assert "no user" not in tm("user", "set", "*", "--max-gpus", "2").stderr
