"""The daemon from outside: what it does with jobs, and on its own bad days."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.live.daemons import LiveDaemon, live, of_folder, until

pytestmark = pytest.mark.live


def sleeping(seconds: float) -> list[str]:
    return [sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with live(folder, "--slots", "2x2", "--policy", "fifo") as started:
        yield started


def submit(daemon: LiveDaemon, **fields: object) -> str:
    return daemon.submit(**({"command": sleeping(0.05), "workdir": str(daemon.folder)} | fields))


def whats(daemon: LiveDaemon, id: str) -> list[str]:
    return [each["what"] for each in daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]]


# -- jobs --------------------------------------------------------------------------------------------------


def test_a_job_runs_once_what_it_depends_on_has_succeeded(daemon: LiveDaemon) -> None:
    first = submit(daemon, command=sleeping(0.3))
    then = submit(daemon, depends_on=[first])
    waiting = daemon.job(then)
    assert (waiting["state"], waiting["reason"]["code"]) == ("pending", "Dependency")
    assert waiting["reason"]["held_by"] == [first]
    daemon.until_state(then, "succeeded")
    assert daemon.job(then)["start_s"] >= daemon.job(first)["finish_s"]


def test_a_job_is_withdrawn_when_what_it_depends_on_fails(daemon: LiveDaemon) -> None:
    first = submit(daemon, command="sleep 0.3; exit 4", retries=0)
    then = submit(daemon, depends_on=[first])
    ended = daemon.until_state(then, "cancelled")
    assert ended["end_reason"]["code"] == "Dependency"
    assert (ended["end_reason"]["job"], ended["end_reason"]["job_state"]) == (first, "failed")
    assert daemon.job(first)["end_reason"]["exit_code"] == 4
    told = daemon.call("GET", f"/api/v1/jobs/{then}/story")["story"]
    assert f"after job {first}" in str(told)


def test_an_array_keeps_to_its_limit(daemon: LiveDaemon) -> None:
    answer = daemon.call(
        "POST",
        "/api/v1/jobs",
        {
            "command": sleeping(0.2),
            "workdir": str(daemon.folder),
            "snapshot": False,
            "array": "0-5%2",
        },
    )
    array = answer["jobs"][0]["id"]
    most = 0

    def ended() -> bool:
        nonlocal most
        rows = daemon.call("GET", f"/api/v1/jobs?array={array}")["jobs"]
        most = max(most, sum(row["state"] == "running" for row in rows))
        return all(row["state"] == "succeeded" for row in rows)

    until(ended, "the array to end")
    assert most <= 2
    assert daemon.job(array)["state"] == "succeeded"


def test_elements_of_an_array_know_their_index(daemon: LiveDaemon) -> None:
    id = submit(
        daemon,
        command="echo index $TRAINMASTER_ARRAY_INDEX of $TRAINMASTER_ARRAY_SIZE",
        array=[3, 5],
    )
    daemon.until_state(f"{id}_5", "succeeded")
    assert daemon.log(f"{id}_5") == "index 5 of 2\n"


def test_a_job_may_not_run_longer_than_it_said(daemon: LiveDaemon) -> None:
    id = submit(daemon, command=sleeping(60), max_runtime="1s")
    found = daemon.until_state(id, "timed_out")
    assert found["run_s"] >= 1
    assert found["end_reason"]["code"] == "TimeLimit"
    assert found["end_reason"]["limit_s"] == 1
    assert [row["id"] for row in daemon.call("GET", "/api/v1/jobs?state=timed_out")["jobs"]] == [id]
    assert "time limit of 1 s" in str(daemon.call("GET", f"/api/v1/jobs/{id}/story"))


def test_a_job_is_suspended_in_memory_and_resumed_by_hand(daemon: LiveDaemon) -> None:
    id = submit(daemon, command=sleeping(1.0))
    daemon.until_state(id, "running")
    pids = daemon.job(id)["pids"]
    with pytest.raises(HTTPError) as refused:
        daemon.call("POST", f"/api/v1/jobs/{id}/resume")
    assert f"Job {id} runs: there is nothing to resume." in refused.value.read().decode()
    daemon.call("POST", f"/api/v1/jobs/{id}/suspend")
    daemon.until_state(id, "suspended")
    assert all(state_of(pid) == "T" for pid in pids)
    explained = daemon.call("GET", f"/api/v1/jobs/{id}/explain")
    assert (explained["code"], explained["suspended_by"]) == ("SuspendedByUser", "user")
    daemon.call("POST", f"/api/v1/jobs/{id}/resume")
    daemon.until_state(id, "succeeded")
    assert [what for what in whats(daemon, id) if what in {"suspended", "resumed"}] == [
        "suspended",
        "resumed",
    ]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]


def test_a_job_that_must_leave_is_moved_by_a_restart(daemon: LiveDaemon) -> None:
    id = submit(daemon, command=sleeping(1.5), gpus=2)
    (node,) = daemon.until_state(id, "running")["nodes"]
    other = next(
        each["name"]
        for each in daemon.call("GET", "/api/v1/nodes")["nodes"]
        if each["name"] != node
    )
    daemon.call("POST", f"/api/v1/jobs/{id}/move", {"node": other, "force": True})
    until(lambda: daemon.job(id)["nodes"] == [other], "the job to have moved")
    daemon.until_state(id, "succeeded")
    assert daemon.job(id)["restarts"] == 1


def test_a_priority_changes_who_goes_next(daemon: LiveDaemon) -> None:
    blocker = submit(daemon, command=sleeping(0.8), gpus=4)
    first, second = (submit(daemon, gpus=4) for _ in range(2))
    daemon.call("PATCH", f"/api/v1/jobs/{second}", {"priority": 7})
    for id in (blocker, first, second):
        daemon.until_state(id, "succeeded")
    assert daemon.job(second)["start_s"] < daemon.job(first)["start_s"]


def test_what_can_never_run_is_refused_with_what_to_do(daemon: LiveDaemon) -> None:
    with pytest.raises(HTTPError) as refused:
        submit(daemon, gpus=64)
    assert refused.value.code in {400, 422}
    assert b"asks for 64 GPUs" in refused.value.read()


def test_the_same_key_submits_once(daemon: LiveDaemon) -> None:
    body = {"command": ["true"], "workdir": str(daemon.folder), "snapshot": False}
    answers = [
        daemon.call("POST", "/api/v1/jobs", body, **{"Idempotency-Key": "once"}) for _ in range(3)
    ]
    assert (
        answers[0]["jobs"][0]["ids"] == answers[1]["jobs"][0]["ids"] == answers[2]["jobs"][0]["ids"]
    )


def test_editing_the_code_while_a_job_waits_changes_nothing(
    daemon: LiveDaemon, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('as submitted')")
    blocker = submit(daemon, command=sleeping(0.8), gpus=4)
    id = submit(daemon, command=[sys.executable, "train.py"], workdir=str(tmp_path), snapshot=True)
    (tmp_path / "train.py").write_text("print('as edited')")
    for each in (blocker, id):
        daemon.until_state(each, "succeeded")
    assert daemon.log(id) == "as submitted\n"


def test_an_expected_start_comes_from_simulating_the_queue(daemon: LiveDaemon) -> None:
    blocker = submit(daemon, command=sleeping(1.5), gpus=4)
    id = submit(daemon, gpus=4)
    explained = daemon.call("GET", f"/api/v1/jobs/{id}/explain")
    assert explained["forecast"]["start_s"] > daemon.job(blocker)["submit_s"]
    for each in (blocker, id):
        daemon.until_state(each, "succeeded")


# -- bad days ------------------------------------------------------------------------------------------------


def test_training_runs_on_while_the_daemon_is_away_and_is_found_again(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        id = submit(daemon, command=sleeping(6))
        pids = daemon.until_state(id, "running")["pids"]
        assert daemon.stop() == 0
        assert state_of(pids[0]) in {"S", "R"}
        daemon.start()
        daemon.until_active()
        assert daemon.job(id)["pids"] == pids
        daemon.until_state(id, "succeeded")
        assert daemon.job(id)["restarts"] == 0
        assert daemon.job(id)["run_s"] >= 5.9, "time went on counting while the daemon was away"


def test_a_job_that_ended_while_the_daemon_was_away_has_ended(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        id = submit(daemon, command="sleep 0.5; exit 3", retries=0)
        daemon.until_state(id, "running")
        daemon.kill()
        until(lambda: len(of_folder(tmp_path)) == 0, "the job to end by itself")
        daemon.start()
        daemon.until_active()
        assert daemon.until_state(id, "failed")["exit_code"] == 3


def test_a_second_daemon_stands_by_and_takes_over(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as first:
        id = submit(first, command=sleeping(3))
        first.until_state(id, "running")
        second = LiveDaemon(tmp_path, "--slots", "2")
        second.start()
        try:
            until(
                lambda: (tmp_path / "out.txt").read_text().count("Trainmaster at") == 2,
                "it to start",
            )
            until(lambda: role_of(second) == "standby", "it to answer")
            first.kill()
            second.until_active()
            second.until_state(id, "succeeded")
            assert second.job(id)["restarts"] == 0
        finally:
            second.kill()


def test_a_locked_database_stops_decisions_but_loses_nothing(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        id = submit(daemon, command=sleeping(0.5))
        daemon.until_state(id, "running")
        other = sqlite3.connect(tmp_path / "trainmaster.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        trouble = until(lambda: health(daemon)["trouble"], "the trouble to be told")
        assert "database" in trouble
        with pytest.raises(HTTPError) as refused:
            submit(daemon)
        assert refused.value.code == 503
        with pytest.raises(HTTPError):
            daemon.call("POST", f"/api/v1/jobs/{id}/suspend")
        other.rollback()
        other.close()
        until(lambda: health(daemon)["trouble"] is None, "the trouble to be over")
        daemon.until_state(id, "succeeded")
        daemon.until_state(submit(daemon), "succeeded")


def test_a_report_that_makes_no_sense_harms_nobody(tmp_path: Path) -> None:
    said = json.dumps({"say": "progress", "step": 10**19, "loss": 1e305}) + "\n"
    said += json.dumps({"say": "progress", "step": 3, "loss": 1e305}) + "\n"
    program = (
        "import os, socket, time\ns = socket.socket(socket.AF_UNIX)\n"
        f"s.connect(os.environ['TRAINMASTER_SOCKET'])\ns.sendall({said.encode()!r})\ntime.sleep(1)"
    )
    with live(tmp_path, "--slots", "2") as daemon:
        id = submit(daemon, command=[sys.executable, "-S", "-c", program])
        daemon.until_state(id, "succeeded")
        daemon.until_state(submit(daemon), "succeeded")


def test_another_data_folder_may_not_take_a_store_over(tmp_path: Path, postgres_url: str) -> None:
    with live(tmp_path / "one", "--slots", "2", "--database", postgres_url) as first:
        submit(first, command=sleeping(5))
        first.kill()
        other = LiveDaemon(tmp_path / "two", "--slots", "2", "--database", postgres_url)
        other.start()
        assert other.process is not None
        assert other.process.wait(60) == 1
        assert "belongs to another data folder" in (tmp_path / "two" / "out.txt").read_text()


def test_progress_alone_is_shown(tmp_path: Path) -> None:
    """Nothing else happens while it trains."""
    program = (
        "import trainmaster_sdk, time\n"
        "with trainmaster_sdk.run() as tm:\n"
        "    for step in range(1, 1000):\n"
        "        tm.progress(step=step, loss=1 / step); time.sleep(0.02)\n"
        "        if tm.should_stop(): break\n"
    )
    with live(tmp_path, "--slots", "2", "--policy", "fifo") as daemon:
        id = submit(daemon, command=[sys.executable, "-c", program])
        until(
            lambda: (daemon.job(id)["progress"] or {}).get("step", 0) > 30,
            "progress to be shown",
            19,
        )
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
        daemon.until_state(id, "cancelled")


def test_a_full_disk_stops_decisions_but_loses_nothing(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        id = submit(daemon, command=sleeping(0.5))
        daemon.until_state(id, "running")
        assert daemon.process is not None
        pid = daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, before[1]))
        assert until(lambda: health(daemon)["trouble"], "the trouble to be told")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        until(lambda: health(daemon)["trouble"] is None, "the trouble to be over")
        daemon.until_state(id, "succeeded")
        daemon.until_state(submit(daemon), "succeeded")


def role_of(waiting: LiveDaemon) -> str:
    """What a daemon says of itself that the address file does not name."""
    url = (waiting.folder / "out.txt").read_text().split("Trainmaster at ")[-1].split(",")[0]
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
            return str(json.loads(answer.read())["role"])
    except HTTPError:
        raise
    except OSError:
        return "not there yet"


def health(daemon: LiveDaemon) -> dict[str, Any]:
    try:
        found: dict[str, Any] = daemon.call("GET", "/healthz")
    except HTTPError as error:
        found = json.loads(error.read())
    return found


def test_a_job_that_ignores_sigterm_ends_after_its_grace_period(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        stubborn = "trap '' TERM; echo ready; while true; do sleep 0.1; done"
        id = submit(daemon, command=stubborn, grace_period="1s")
        until(lambda: "ready" in daemon.log(id), "it to be ready")
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
        daemon.until_state(id, "cancelled")
        assert not [pid for pid in of_folder(tmp_path) if pid not in own(daemon)]


def own(daemon: LiveDaemon) -> set[int]:
    """The daemon and its own children, which no job is part of."""
    assert daemon.process is not None
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text()
    return {daemon.process.pid, os.getpid(), *map(int, children.split())}


# -- ends get through ------------------------------------------------------------------------------------


def locked_out(daemon: LiveDaemon) -> sqlite3.Connection:
    """Another program that keeps the manager from writing."""
    other = sqlite3.connect(daemon.folder / "trainmaster.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    return other


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "is killed meanwhile"])
def test_a_run_is_cancelled_while_the_store_cannot_be_written(tmp_path: Path, dies: bool) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        id = submit(daemon, command=sleeping(3600))
        (pid,) = until(lambda: daemon.job(id)["pids"], "the job to run")
        other = locked_out(daemon)
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")  # the first caller does not hang
        until(lambda: is_gone(pid), "the run to end")
        until(lambda: health(daemon)["trouble"], "the trouble to be told")
        if dies:
            daemon.kill()
        other.rollback()
        other.close()
        if dies:
            daemon.start()
            daemon.until_active()
        ended = daemon.until_state(id, "cancelled")
        assert ended["end_reason"]["code"] == "Cancelled"
        assert ended["attempt"] == 1


def test_on_a_full_disk_the_job_that_fills_it_is_cancelled(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, live(disk / "data", "--slots", "2") as daemon:
        fills = f"dd if=/dev/zero of={disk}/junk bs=64k; dd if=/dev/zero of={disk}/more bs=512; sleep 3600"
        id = submit(daemon, command=fills, workdir=str(disk))
        pid, *_ = until(lambda: daemon.job(id)["pids"], "the job to run")
        until(lambda: os.statvfs(disk).f_bavail == 0, "the disk to be full")
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
        until(lambda: is_gone(pid), "the run to end")
        (disk / "junk").unlink()
        daemon.until_state(id, "cancelled")
        said = (daemon.folder / "out.txt").read_text()
        assert "Logging error" not in said
        assert "Traceback" not in said


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 24 MB; skipped where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_submission_whose_store_is_locked_is_made_once_however_often_it_is_asked_for(
    tmp_path: Path,
) -> None:
    with live(tmp_path, "--slots", "2") as daemon:
        job = {"command": sleeping(0.05), "workdir": str(tmp_path)}
        other = locked_out(daemon)
        asking = [threading.Thread(target=ask_until_answered, args=(daemon, job)) for _ in range(3)]
        for each in asking:
            each.start()
        until(lambda: health(daemon)["trouble"], "the trouble to be told")
        with pytest.raises(HTTPError):
            daemon.call("POST", "/api/v1/jobs", job, **{"Idempotency-Key": "one"})
        other.rollback()
        other.close()
        for each in asking:
            each.join()
        assert len(daemon.call("GET", "/api/v1/jobs")["jobs"]) == 1


def ask_until_answered(daemon: LiveDaemon, job: dict[str, object]) -> None:
    """As the command line does: again after every 503, by the same key."""
    while True:
        with suppress(HTTPError):
            daemon.call("POST", "/api/v1/jobs", job, **{"Idempotency-Key": "one"})
            return
