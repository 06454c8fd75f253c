"""A manager that comes back with other devices, from outside: nothing is ended without a word."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, of_folder, until

pytestmark = pytest.mark.live

COUNTER = "trainmaster_lost_work_seconds_total "


def restart(daemon: LiveDaemon, *arguments: str) -> None:
    daemon.kill()
    daemon.arguments = arguments
    daemon.start()
    daemon.until_active()


def refused(daemon: LiveDaemon, *arguments: str) -> str:
    """What a start says that is bad usage."""
    before = len(said(daemon))
    daemon.arguments = arguments
    daemon.start()
    assert daemon.process is not None
    assert daemon.process.wait() == 2
    return said(daemon)[before:]


def said(daemon: LiveDaemon) -> str:
    output = daemon.folder / "out.txt"
    return output.read_text() if output.exists() else ""


def sleepers(daemon: LiveDaemon, count: int, **fields: object) -> dict[str, Any]:
    """Running jobs, and their processes."""
    ids = [daemon.submit(command="sleep 300", name="nap", **fields) for _ in range(count)]
    return {id: daemon.until_state(id, "running")["pids"] for id in ids}


def cancel(daemon: LiveDaemon, *ids: str) -> None:
    for id in ids:
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
    for id in ids:
        daemon.until_state(id, "cancelled")


def stored(folder: Path) -> dict[str, list[Any]]:
    """All that the database has, but for who led last."""
    with sqlite3.connect(folder / "trainmaster.db") as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: database.execute(f"SELECT * FROM {name}").fetchall()
            for (name,) in names
            if name != "ledger"
        }


def lost_work(daemon: LiveDaemon) -> float:
    with daemon.open("/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(COUNTER)).removeprefix(COUNTER))


def test_runs_move_to_the_slots_that_are_left_where_they_fit(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "4") as daemon:
        first, second, *last = jobs = sleepers(daemon, 4)
        cancel(daemon, first, second)
        restart(daemon, "--slots", "2")
        for id in last:
            row = daemon.job(id)
            assert (row["state"], row["pids"], row["restarts"]) == ("running", jobs[id], 0)
        devices = sorted(each for id in last for each in daemon.job(id)["devices"])
        assert [each.rpartition(":")[2] for each in devices] == ["0", "1"]
        daemon.kill()
        assert "Error: Job 4 (nap) is on a device" in refused(daemon, "--slots", "1")
        restart(daemon)
        assert "2 CPU slots, as at the last start" in said(daemon)
        assert [daemon.job(id)["pids"] for id in last] == [jobs[id] for id in last]


def test_a_start_that_would_end_jobs_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        jobs = sleepers(daemon, 2)
        time.sleep(1.5)
        daemon.kill()
        before = stored(tmp_path)
        sentence = refused(daemon, "--slots", "1")
        assert sentence.startswith(
            "Error: Job 2 (nap) is on a device that this start does not have:"
        )
        assert (
            " start with --slots 2 to keep it, or start with --force to end it and lose" in sentence
        )
        assert sentence.endswith(" s of unsaved work.\n")
        assert stored(tmp_path) == before
        assert all(os.path.exists(f"/proc/{pids[0]}") for pids in jobs.values())
        restart(daemon)
        assert {id: daemon.job(id)["pids"] for id in jobs} == jobs


def test_with_force_they_are_ended_by_name_and_their_lost_work_counts(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "fifo") as daemon:
        jobs = sleepers(daemon, 2)
        time.sleep(1.5)
        restart(daemon, "--slots", "1", "--force")
        assert "\nEnded: job 2 (nap). Its devices are gone, " in said(daemon)
        assert "does not need it any more" not in said(daemon)
        until(lambda: not os.path.exists(f"/proc/{jobs['2'][0]}"), "it to be ended")
        row = until(lambda: (found := daemon.job("2"))["lost_s"] and found, "its loss to be stored")
        assert (row["state"], row["pids"]) == ("pending", [])
        assert row["lost_s"] >= 1.4
        assert row["waiting_s"] + row["run_s"] <= time.time() - row["submit_s"] + 0.1
        assert lost_work(daemon) == pytest.approx(row["lost_s"], abs=0.2)
        time.sleep(1.2)
        assert daemon.job("2")["run_s"] == row["run_s"], "it waits"
        assert daemon.job("1")["pids"] == jobs["1"]


def test_a_frozen_run_is_at_stake_like_any_other(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        (gang,) = jobs = sleepers(daemon, 1, gpus=2)
        daemon.call("POST", f"/api/v1/jobs/{gang}/suspend")
        daemon.until_state(gang, "suspended")
        daemon.kill()
        assert "Job 1 (nap) is on a device that this start does not have" in refused(
            daemon, "--slots", "1"
        )
        restart(daemon, "--slots", "3")
        daemon.call("POST", f"/api/v1/jobs/{gang}/resume")
        assert daemon.until_state(gang, "running")["pids"] == jobs[gang]


def test_a_job_that_is_being_cancelled_is_cancelled_in_the_end(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "fifo") as daemon:
        sleepers(daemon, 1)
        stubborn = "trap '' TERM; echo ready; while true; do sleep 1; done"
        id = daemon.submit(command=stubborn, grace_period="2s")
        until(lambda: "ready" in daemon.log(id), "it to be stubborn")
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
        restart(daemon, "--slots", "1")
        daemon.until_state(id, "cancelled")


def test_a_job_that_ended_meanwhile_is_not_run_again(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "fifo") as daemon:
        sleepers(daemon, 1)
        id = daemon.submit(command="sleep 2", name="short")
        pids = daemon.until_state(id, "running")["pids"]
        daemon.kill()
        until(lambda: all(pid not in of_folder(tmp_path) for pid in pids), "it to end")
        assert f"Job {id} (short) is on a device" in refused(daemon, "--slots", "1")
        restart(daemon)
        assert daemon.until_state(id, "succeeded")["restarts"] == 0


def test_a_standby_has_the_leaders_devices_or_is_refused(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as leader:
        sentence = refused(LiveDaemon(tmp_path), "--slots", "3")
        assert sentence == (
            "Error: The leader has 2 slots, and this standby would have 3 slots: start with --slots 2.\n"
        )
        standby = LiveDaemon(tmp_path)
        standby.start()
        try:
            until(lambda: "a standby: another one leads" in said(leader), "it to stand by")
            leader.kill()
            standby.until_active()
            assert standby.call("GET", "/api/v1/status")["devices"] == 2
        finally:
            standby.kill()
