"""Arrays as users meet them: by name, in lists, as dependencies, and ended all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_live_daemon import Line, nothing_left, tm
from tests.live.daemons import until

pytestmark = pytest.mark.live

__all__ = ["nothing_left", "tm"]

SLEEPS = ("--", "sh", "-c", "sleep 600")
ONE_FAILS = ("--", "sh", "-c", 'test "$TRAINMASTER_ARRAY_INDEX" != 1 || { echo broken; exit 3; }')


def states(tm: Line, array: str) -> set[str]:
    rows = json.loads(tm.ok("ps", "-a", "--array", array, "--json"))["jobs"]
    return {row["state"] for row in rows}


def test_an_array_that_waits_and_what_waits_for_it(tm: Line) -> None:
    array = tm.ok("run", "-d", "-n", "sweep", "--array", "0-5%1", *SLEEPS).strip()
    tm.daemon.until_state(f"{array}_0", "running")
    after = tm.ok("run", "-d", "-n", "then", "--after", "sweep", *SLEEPS).strip()
    assert f"It starts after array {array} (sweep: 6 jobs, 6 left) has succeeded." in (
        tm.ok("explain", "then")
    )
    listed = tm.ok("ps")
    assert "pending (dependency)" in listed
    assert "5 pending, 1 running" in listed
    assert f"Its array runs at most 1 job at once, and job {array}_0 is before it." in listed
    shown = tm.ok("show", "sweep")
    assert f"array        {array}  sweep" in shown
    assert "jobs         6 jobs: 5 pending, 1 running." in shown
    assert "exit code" not in shown
    explained = tm.ok("explain", "sweep")
    assert f"Of array {array}, job {array}_1 is the first that waits:" in explained
    assert "(ArrayLimit)" in explained
    assert f"Job {array}_0\n" in tm.ok("story", "sweep")
    tm.daemon.call("POST", "/api/v1/jobs/sweep/cancel")
    until(lambda: states(tm, array) == {"cancelled"}, "all of the array to end")
    ended = tm.daemon.until_state(after, "cancelled")
    assert ended["end_reason"]["code"] == "Dependency"
    assert "which was cancelled" in tm.ok("ps", "-a")


def test_which_elements_failed_is_said(tm: Line) -> None:
    array = tm.ok("run", "-d", "-n", "sweep", "--array", "0-2", *ONE_FAILS).strip()
    until(lambda: states(tm, array) == {"succeeded", "failed"}, "the array to end")
    assert f"{array}_[1] failed." in tm.ok("ps", "-a")
    shown = tm.ok("show", array)
    assert f"3 jobs: 2 succeeded, 1 failed ({array}_[1])." in shown
    assert f"3 jobs: 2 succeeded, 1 failed ({array}_[1])." in tm.ok("explain", array)
    assert tm.ok("logs", "sweep") == f"[{array}_1] broken\n"


def test_a_job_that_has_not_started_has_no_output_and_says_why(tm: Line) -> None:
    first = tm.ok("run", "-d", "-n", "all", "--gpus", "2", "--no-preflight", *SLEEPS).strip()
    tm.daemon.until_state(first, "running")
    waiting = tm.ok("run", "-d", "-n", "next", *SLEEPS).strip()
    said = tm.run("logs", "next")
    assert (said.returncode, said.stdout) == (0, "")
    assert (
        f"job next ({waiting}) has not started yet: It needs 1 GPU and none are free" in said.stderr
    )


def test_every_element_that_runs_is_asked_to_save(tm: Line, tmp_path: Path) -> None:
    hears = f"trap 'touch {tmp_path}/$TRAINMASTER_ARRAY_INDEX' USR1;"
    program = f'if [ "$TRAINMASTER_ARRAY_INDEX" = 1 ]; then {hears} fi; while :; do sleep 0.2; done'
    array = tm.ok("run", "-d", "-n", "sweep", "--array", "0-2%2", "--", "sh", "-c", program).strip()
    for element in (0, 1):
        tm.daemon.until_state(f"{array}_{element}", "running")
    said = tm.run("save", "sweep")
    assert said.returncode == 1
    assert said.stderr.startswith(f"Error: Job {array}_0 does not hear it: its program neither")
    until((tmp_path / "1").exists, "the second to hear it")


def test_errors_name_a_job_as_its_user_did(tm: Line) -> None:
    first = tm.ok("run", "-d", "-n", "d2", "--", "true").strip()
    tm.daemon.until_state(first, "succeeded")
    said = tm.run("suspend", "d2")
    assert said.returncode == 1
    assert f"job d2 ({first}) has ended" in said.stderr.lower()
