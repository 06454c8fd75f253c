"""Whatever cannot be loaded, the manager starts, watches over the jobs that run, and says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from tests.live.postgres import Unavailable, server
from trainmaster.model import codec
from trainmaster.model.events import QueueDefined
from trainmaster.model.queue import Queue
from trainmaster.store.open import open_store
from trainmaster.store.rows import Batch, StepRow

pytestmark = pytest.mark.live

POLICY = """
from pathlib import Path
from trainmaster.policies.fifo import Fifo

{first_line}

class Mine(Fifo):
    name = "mine"
"""


def policy_file(folder: Path, first_line: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "mine.py"
    path.write_text(POLICY.format(first_line=first_line))
    return path


def restart(daemon: LiveDaemon, *arguments: str) -> None:
    daemon.kill()
    daemon.arguments = arguments
    daemon.start()
    daemon.until_active()


def tm(daemon: LiveDaemon, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainmaster", *words],
        cwd=cwd,
        env=os.environ | {"TRAINMASTER_DATA": str(daemon.folder), "COLUMNS": "200"},
        text=True,
        capture_output=True,
        timeout=120,
    )


def sleeper(daemon: LiveDaemon) -> tuple[str, dict[str, Any]]:
    id = daemon.submit(command="sleep 300")
    return id, daemon.until_state(id, "running")


def cancelled(daemon: LiveDaemon, id: str) -> None:
    daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
    daemon.until_state(id, "cancelled")


def test_a_policy_file_is_stored_by_its_content(tmp_path: Path) -> None:
    path = policy_file(tmp_path / "project")
    with live(tmp_path / "state", "--slots", "2", "--policy", str(path)) as daemon:
        id, before = sleeper(daemon)
        path.unlink()
        restart(daemon, "--slots", "2")
        assert daemon.call("GET", "/api/v1/policy")["name"] == "mine.py"
        assert daemon.health()["notes"] == []
        assert daemon.job(id)["pids"] == before["pids"]


def test_a_file_that_an_option_names_is_stored_by_its_content(tmp_path: Path) -> None:
    samples = tmp_path / "samples.txt"
    samples.write_text("10\n20\n30\n")
    setting = f"service_samples={samples}"
    with live(
        tmp_path / "state", "--slots", "2", "--policy", "gittins", "--set", setting
    ) as daemon:
        samples.unlink()
        restart(daemon, "--slots", "2")
        found = daemon.call("GET", "/api/v1/policy")
        assert (found["name"], found["trouble"]) == ("gittins", None)


def test_a_policy_that_raises_at_load_leaves_a_manager_that_watches(tmp_path: Path) -> None:
    """Killed, so that what was decided since the last snapshot is replayed without the policy."""
    flag = tmp_path / "flag"
    flag.touch()
    path = policy_file(tmp_path, f"assert Path({str(flag)!r}).exists(), 'no flag'")
    with live(tmp_path / "state", "--slots", "2", "--policy", str(path)) as daemon:
        ids = [daemon.submit(command="sleep 300"), daemon.submit(command="sleep 300")]
        before = [daemon.until_state(id, "running") for id in ids]
        short = daemon.submit(command="true")
        flag.unlink()
        restart(daemon, "--slots", "2")
        (note,) = daemon.health()["notes"]
        assert "mine.py:5 cannot be loaded: AssertionError: no flag" in note
        assert "fifo decides meanwhile" in note
        assert note in daemon.call("GET", "/api/v1/policy")["trouble"]
        assert note in (daemon.folder / "out.txt").read_text()
        assert "no flag" in (daemon.folder / "manager.log").read_text()
        assert f"Note: {note}" in tm(daemon, "ps", cwd=tmp_path).stderr
        now = [daemon.job(id) for id in ids]
        assert [row["pids"] for row in now] == [row["pids"] for row in before]
        assert [row["restarts"] for row in now] == [0, 0]
        cancelled(daemon, ids[0])
        daemon.until_state(short, "succeeded")  # fifo starts what waits
        daemon.call("PUT", "/api/v1/policy", {"name": "las"})
        assert daemon.health()["notes"] == []
        assert daemon.job(ids[1])["pids"] == before[1]["pids"]


def test_the_policy_flag_wins_over_the_stored_policy(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "las") as daemon:
        restart(daemon, "--slots", "2")
        assert daemon.call("GET", "/api/v1/policy")["name"] == "las"
        restart(daemon, "--slots", "2", "--policy", "fifo")
        until(lambda: daemon.call("GET", "/api/v1/policy")["name"] == "fifo", "the other policy")
        assert "Policy fifo from now on; it was las." in (tmp_path / "out.txt").read_text()


def test_policy_set_takes_a_file_of_ones_own_from_any_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    policy_file(project)
    with live(tmp_path / "state", "--slots", "2") as daemon:
        said = tm(daemon, "policy", "set", "./mine.py", cwd=project)
        assert (said.returncode, said.stderr) == (0, "")
        assert "mine.py" in said.stdout
        policy_file(project, "1 / 0")
        said = tm(daemon, "policy", "set", "./mine.py", cwd=project)
        assert said.returncode == 2
        assert "mine.py:5 cannot be loaded: ZeroDivisionError" in said.stderr
        assert daemon.call("GET", "/api/v1/policy")["name"] == "mine.py"
        said = tm(daemon, "policy", "set", "gittins", "service_samples=gone.txt", cwd=project)
        assert said.returncode == 2
        assert said.stderr.startswith("Error: gone.txt cannot be read")


def test_a_manager_whose_database_is_away_waits_for_it(tmp_path: Path) -> None:
    try:
        with server() as database:
            wait_for_database(tmp_path, database)
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")


def wait_for_database(folder: Path, database: Any) -> None:
    url = database.url_by_password("postgres")
    with live(folder, "--slots", "2", "--database", url) as daemon:
        id, before = sleeper(daemon)
        other, _ = sleeper(daemon)
        daemon.kill()
        database.stop()
        daemon.start()
        until(lambda: daemon.url, "it to answer without its database")
        health = daemon.health()
        assert health["role"] == "standby"
        assert "does not answer" in health["trouble"]
        assert f"Jobs go on meanwhile ({id}, {other})" in health["notes"][0]
        said = tm(daemon, "ps", cwd=folder)
        assert said.returncode == 1
        assert "does not answer" in said.stderr
        assert "waiting for its database" in (folder / "out.txt").read_text()
        assert tm(daemon, "cancel", other, cwd=folder).returncode == 0
        until(lambda: other not in daemon.health()["notes"][0], "the other job to end")
        database.start()
        daemon.until_active()
        row = daemon.job(id)
        assert (row["pids"], row["restarts"]) == (before["pids"], 0)
        daemon.until_state(other, "cancelled")
        cancelled(daemon, id)


def test_a_queue_that_cannot_be_does_not_keep_the_manager_from_starting(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "fair") as daemon:
        id, before = sleeper(daemon)
        daemon.kill()
        put_into_the_log(
            tmp_path,
            QueueDefined(Queue("lost", parent="nowhere")),
            QueueDefined(Queue("hen", parent="egg")),
            QueueDefined(Queue("egg", parent="hen")),
        )
        daemon.start()
        daemon.until_active()
        (note,) = daemon.health()["notes"]
        assert "Queue lost is in nowhere, which is not defined" in note
        assert daemon.job(id)["pids"] == before["pids"]
        for queue in ("lost", "hen", "egg"):
            daemon.until_state(daemon.submit(command="true", queue=queue), "succeeded")
        cancelled(daemon, id)
        assert tm(daemon, "queue", "rm", "lost", "hen", "egg", cwd=tmp_path).returncode == 0
        assert daemon.health()["notes"] == []


def put_into_the_log(folder: Path, *events: QueueDefined) -> None:
    """As an earlier version might have: the checks of today would refuse them."""
    store = open_store(str(folder / "trainmaster.db"))
    assert store.acquire_leadership()
    (*_, last) = store.steps()
    step = StepRow(last.seq + 1, last.now_ms, codec.dumps(events), codec.dumps(()))
    store.append([Batch(step)])
    store.close()
