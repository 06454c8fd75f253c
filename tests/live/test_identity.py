"""Store and data folder belong together: another, older or empty store ends nothing and makes nothing up."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, sweep, until
from trainmaster.daemon.daemon import Daemon, RetentionSettings
from trainmaster.daemon.data_folder import ColdStart
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model.topology import parse_shorthand
from trainmaster.store.open import open_store

pytestmark = pytest.mark.live
WEIGHTS = (
    "mkdir -p $TRAINMASTER_CHECKPOINT_DIR; echo alice > $TRAINMASTER_CHECKPOINT_DIR/model; exit 7"
)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    sweep(tmp_path)


def backup(folder: Path, to: Path) -> None:
    """A copy as a nightly job makes it."""
    source, copy = sqlite3.connect(folder / "trainmaster.db"), sqlite3.connect(to)
    source.backup(copy)
    source.close()
    copy.close()


def put_back(copy: Path | None, folder: Path) -> None:
    """Exchange the store for that copy; None: it was moved away."""
    for path in folder.glob("trainmaster.db*"):
        path.unlink()
    if copy is not None:
        shutil.copy(copy, folder / "trainmaster.db")


def refusal(folder: Path, *arguments: str) -> str:
    """What a manager says that does not start."""
    (folder / "out.txt").unlink(missing_ok=True)
    refused = LiveDaemon(folder, "--slots", "4", *arguments)
    refused.start()
    assert refused.process is not None
    assert refused.process.wait(60) == 1
    said = (folder / "out.txt").read_text()
    assert "Traceback" not in said
    return " ".join(said.split())


def printed(folder: Path) -> str:
    return (folder / "out.txt").read_text()


def told_apart(manager: LiveDaemon, tmp_path: Path) -> tuple[str, int]:
    """A store that knows one job; then jobs that fail with a checkpoint, succeed, and go on for long."""
    manager.until_state(manager.submit(command="echo one", name="one"), "succeeded")
    backup(manager.folder, tmp_path / "backup.db")
    manager.until_state(manager.submit(command=WEIGHTS, name="alice", retries=0), "failed")
    manager.until_state(manager.submit(command="echo two", name="two"), "succeeded")
    carol = manager.submit(command="sleep 3600", name="carol")
    pid = pid_of(manager, carol)
    assert manager.stop() == 0
    return carol, pid


@contextmanager
def restarted(manager: LiveDaemon, *arguments: str) -> Iterator[None]:
    """Once more on the same folder, with these arguments besides; stopped at the end."""
    manager.arguments = ("--slots", "4", *arguments)
    manager.start()
    manager.until_active()
    yield
    assert manager.stop() == 0


def pid_of(manager: LiveDaemon, id: str) -> int:
    (pid,) = until(lambda: manager.job(id)["pids"], f"job {id} to run")
    return int(pid)


def copied_while_running(manager: LiveDaemon, tmp_path: Path, **fields: object) -> str:
    """A job that runs; the manager is stopped, and its store copied."""
    job = manager.submit(**fields)
    pid_of(manager, job)
    assert manager.stop() == 0
    backup(manager.folder, tmp_path / "backup.db")
    return job


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("is_empty", [False, True], ids=["older", "empty"])
def test_a_store_that_does_not_know_the_runs_is_refused_and_adopts_them_when_told(
    data: Path, tmp_path: Path, is_empty: bool
) -> None:
    with live(data, "--slots", "4") as manager:
        carol, pid = told_apart(manager, tmp_path)
        put_back(None if is_empty else tmp_path / "backup.db", data)
        said = refusal(data)
        assert ("is not there" if is_empty else "is older") in said
        assert (data / "trainmaster.db").exists() is not is_empty
        assert "--adopt" in said
        assert "--start-fresh" in said
        assert is_running(pid)
        with restarted(manager, "--adopt"):
            assert "Adopted from the data folder: 1 running (4)" in printed(data)
            assert pid_of(manager, carol) == pid
            assert manager.job("2")["state"] == "failed"
            assert (manager.job("2")["exit_code"], manager.job("3")["state"]) == (7, "succeeded")
            bob = manager.submit(command=f"touch {tmp_path}/bob; cat $TRAINMASTER_CHECKPOINT_DIR/*")
            assert int(bob) > int(carol)
            assert manager.until_state(bob, "succeeded", "failed")["state"] == "failed"
            assert (tmp_path / "bob").exists()
            assert "alice" not in manager.log(bob)
            manager.call("POST", f"/api/v1/jobs/{carol}/cancel")
            manager.until_state(carol, "cancelled")
        with restarted(manager):  # it is known from now on
            assert manager.job(carol)["state"] == "cancelled"


def test_a_copied_folder_leaves_the_runs_of_the_original_alone(data: Path, tmp_path: Path) -> None:
    with live(data, "--slots", "4") as manager:
        job = manager.submit(command="sleep 3600", retries=2)
        pid = pid_of(manager, job)
        assert manager.stop() == 0
        shutil.copytree(data, tmp_path / "copy", symlinks=True)
        with live(tmp_path / "copy", "--slots", "4") as other:
            story = f"/api/v1/jobs/{job}/story"
            until(lambda: "is a copy of" in str(other.call("GET", story)), "it to be lost here")
            assert pid_of(other, job) != pid
            other.call("POST", f"/api/v1/jobs/{job}/cancel")
            other.until_state(job, "cancelled")
        assert is_running(pid)
        with restarted(manager):
            assert manager.job(job)["pids"] == [pid]


def test_a_folder_that_was_moved_has_its_runs(data: Path, tmp_path: Path) -> None:
    """Its supervisors stay with it, also after they have looked for files that were removed."""
    with live(data, "--slots", "4") as manager:
        job = manager.submit(command="sleep 3600")
        pid = pid_of(manager, job)
        assert manager.stop() == 0
        socket = Path(json.loads((data / "runs" / job / "1" / "run.json").read_text())["socket"])
        data.rename(tmp_path / "moved")
        socket.unlink()
        until(socket.exists, "the supervisor to make its socket again")
        with live(tmp_path / "moved", "--slots", "4") as other:
            assert pid_of(other, job) == pid
            other.call("POST", f"/api/v1/jobs/{job}/cancel")
            other.until_state(job, "cancelled")
        assert not is_running(pid)
        assert not data.exists()


def interrupted_adoption(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that ends as soon as it begins to adopt."""

    async def interrupted(*_: object) -> None:
        raise InterruptedError

    async def begin() -> None:
        store = open_store(f"sqlite:///{data}/trainmaster.db")
        engine = LocalEngine(data / "runs", parse_shorthand("1x4"))
        manager = Daemon(store, engine, data, cold_start=ColdStart.ADOPT)
        with pytest.raises(InterruptedError):
            await manager.run()
        await engine.close()
        store.close()

    monkeypatch.setattr("trainmaster.daemon.daemon.adopt", interrupted)
    asyncio.run(asyncio.wait_for(begin(), 60))


@pytest.mark.parametrize("is_empty", [False, True], ids=["older", "empty"])
def test_an_interrupted_adoption_leaves_nothing_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    with live(data, "--slots", "4") as manager:
        carol, pid = told_apart(manager, tmp_path)
        put_back(None if is_empty else tmp_path / "backup.db", data)
        interrupted_adoption(data, monkeypatch)
        assert "that it does not know" in refusal(data)
        with restarted(manager, "--adopt"):
            assert pid_of(manager, carol) == pid


def test_an_older_store_is_refused_where_its_own_runs_were_changed_since(
    data: Path, tmp_path: Path
) -> None:
    with live(data, "--slots", "4") as manager:
        job = copied_while_running(manager, tmp_path, command="sleep 3600")
        with restarted(manager):
            manager.call("POST", f"/api/v1/jobs/{job}/suspend")
            manager.until_state(job, "suspended")
            manager.kill()
            put_back(tmp_path / "backup.db", data)
            said = refusal(data)
            assert "is older" in said
            assert f"run {job}.1 that it does not know" in said
            manager.arguments = ("--slots", "4", "--adopt")
            manager.start()
            manager.until_active()
            assert manager.job(job)["state"] == "suspended"


def test_what_an_older_store_has_as_running_stays_cancelled(data: Path, tmp_path: Path) -> None:
    with live(data, "--slots", "4") as manager:
        runs = f"echo x >> {tmp_path}/runs; sleep 3600"
        job = copied_while_running(manager, tmp_path, command=runs, retries=2)
        with restarted(manager):
            manager.call("POST", f"/api/v1/jobs/{job}/cancel")
            manager.until_state(job, "cancelled")
            manager.kill()
            put_back(tmp_path / "backup.db", data)
            manager.start()
            manager.until_active()
            manager.until_state(job, "cancelled")
        assert (tmp_path / "runs").read_text() == "x\n"


def test_a_fresh_start_leaves_what_runs_alone_and_numbers_above_it(
    data: Path, tmp_path: Path
) -> None:
    with live(data, "--slots", "4") as manager:
        carol, pid = told_apart(manager, tmp_path)
        put_back(None, data)
        with restarted(manager, "--start-fresh"):
            assert f"Left alone: run {carol}.1" in printed(data)
        (data / "store.json").unlink()
        with restarted(manager):  # the folder is this store's now, mark or not
            assert is_running(pid)
            bob = manager.submit(command=f"touch {tmp_path}/bob", name="bob")
            assert int(bob) > int(carol)
            manager.until_state(bob, "succeeded")
            assert (tmp_path / "bob").exists()
        with restarted(manager, "--adopt"):  # it may still be taken over
            assert pid_of(manager, carol) == pid
            assert manager.job("3")["state"] == "succeeded"


def test_a_second_manager_with_another_database_is_refused_at_once(
    data: Path, tmp_path: Path
) -> None:
    with live(data, "--slots", "4") as manager:
        job = manager.submit(command="sleep 3600")
        pid = pid_of(manager, job)
        address = (data / "address").read_text()
        said = refusal(data, "--database", f"sqlite:///{tmp_path}/other.db")
        assert manager.process is not None
        assert f"process {manager.process.pid}" in said
        assert f"{data}/trainmaster.db" in said
        assert (data / "address").read_text() == address
        assert manager.job(job)["pids"] == [pid]
        assert manager.job(job)["attempt"] == 1
        manager.stop()
        said = refusal(data, "--database", f"sqlite:///{tmp_path}/other.db")
        assert "is not there" in said
        assert f"run {job}.1" in said
        assert not (tmp_path / "other.db").exists()
        assert is_running(pid)


def test_a_standby_that_could_not_lead_says_so_before_it_is_needed(tmp_path: Path) -> None:
    database = ("--database", f"sqlite:///{tmp_path}/shared.db")
    with live(tmp_path / "first", "--slots", "1", *database):
        (tmp_path / "second").mkdir()
        said = refusal(tmp_path / "second", *database)
        assert "belongs to another data folder" in said


def test_every_run_says_which_job_it_is_of(data: Path, tmp_path: Path) -> None:
    with live(data, "--slots", "4") as manager:
        ids = [manager.submit(command="true") for _ in range(2)]
        for id in ids:
            manager.until_state(id, "succeeded")
        uuids = []
        for id in ids:
            run = data / "runs" / id / "1"
            first = json.loads((run / "journal.jsonl").read_text().splitlines()[0])
            stated = json.loads((run / "run.json").read_text())["uuid"]
            assert stated == first["uuid"] == (data / "jobs" / id / "uuid").read_text()
            uuids.append(stated)
        assert len(set(uuids)) == 2
        assert all(uuids)


def test_a_run_whose_job_has_ended_is_ended_by_name(data: Path) -> None:
    with live(data, "--slots", "4") as manager:
        job = manager.submit(command="sleep 3600")
        pid = pid_of(manager, job)
        manager.kill()
        with sqlite3.connect(data / "trainmaster.db") as store:
            store.execute("UPDATE jobs SET state = 'cancelled' WHERE id = ?", (job,))
            (body,) = store.execute("SELECT body_json FROM snapshots").fetchone()
            store.execute("DELETE FROM steps")
            store.execute("UPDATE ledger SET last_seq = 0")
            assert json.loads(body)["controller"]["jobs"] == []
        store.close()
        with restarted(manager):
            until(lambda: f"Ended run {job}.1" in printed(data), "the line that names it")
            until(lambda: not is_running(pid), "the run to end")


def test_damage_is_noticed_while_it_runs_and_mended_by_adopting(data: Path, tmp_path: Path) -> None:
    with live(data, "--slots", "4") as manager:
        for _ in range(60):  # more than the first pages
            manager.submit(command="true", held=True)
        manager.stop()
        with restarted(manager):
            until(lambda: list((data / "backups").glob("*.db")), "a copy of the database")
            long = manager.submit(command="sleep 3600", name="later than the copy")
            pid = pid_of(manager, long)
        damaged(data / "trainmaster.db")
        said = refusal(data)
        assert "is damaged" in said
        assert is_running(pid)
        with restarted(manager, "--adopt"):
            said = " ".join(printed(data).split())
            assert "was damaged: it is set aside as trainmaster.db.damaged-1" in said
            assert pid_of(manager, long) == pid
            assert len(manager.call("GET", "/api/v1/jobs?limit=500")["jobs"]) == 61
        assert (data / "trainmaster.db.damaged-1").exists()


def test_a_missing_database_is_replaced_by_its_copy_after_a_refusal(data: Path) -> None:
    with live(data, "--slots", "4", "--policy", "las", "--set", "quantum_s=1") as manager:
        waits = manager.submit(command="true", held=True, name="only in the copy")
        manager.call("PUT", "/api/v1/queues/a", {})
        manager.stop()
        shutil.rmtree(data / "backups", ignore_errors=True)  # made before the submission
        with restarted(manager):
            until(lambda: list((data / "backups").glob("*.db")), "a copy of the database")
        put_back(None, data)
        assert "is not there" in refusal(data)
        with restarted(manager, "--adopt"):
            assert manager.job(waits)["name"] == "only in the copy"
            said = " ".join(printed(data).split())
            assert (
                "policy las (quantum_s=1), queues: a, drained nodes: none. What was changed" in said
            )


def damaged(path: Path) -> None:
    """Overwrite everything behind the first page, as a failing disk does."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (size - 4096))


def test_health_and_log_say_that_the_check_failed(tmp_path: Path) -> None:
    said: list[str] = []

    async def watch() -> None:
        store = open_store(f"sqlite:///{tmp_path}/trainmaster.db")
        engine = LocalEngine(tmp_path, parse_shorthand("1x1"))
        often = RetentionSettings(check_ms=50)
        manager = Daemon(store, engine, tmp_path, settings=often, say=said.append)
        running = asyncio.create_task(manager.run())
        await manager.is_active.wait()
        while not list((tmp_path / "backups").glob("*.db")):
            await asyncio.sleep(0.01)
        assert manager.health().trouble == ""
        damaged(tmp_path / "trainmaster.db")
        while "is damaged" not in manager.health().trouble:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        store.close()

    asyncio.run(asyncio.wait_for(watch(), 60))
    assert len([line for line in said if "is damaged" in line]) == 1


def test_a_fresh_start_keeps_the_code_of_what_it_leaves_alone(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "wait.sh").write_text("sleep 3600")
    with live(data, "--slots", "4") as manager:
        job = {"command": "sh wait.sh", "workdir": str(source), "snapshot": True, "array": "0-1"}
        array = manager.call("POST", "/api/v1/jobs", job)["jobs"][0]["id"]
        pid_of(manager, f"{array}_1")
        manager.stop()
        put_back(None, data)
        with restarted(manager, "--start-fresh"):
            assert (data / "jobs" / array / "code" / "wait.sh").exists()


def test_a_fresh_start_keeps_the_code_and_the_number_of_a_job_that_waits(
    data: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.sh").write_text("true")
    with live(data, "--slots", "4") as manager:
        job = {"command": "sh train.sh", "workdir": str(source), "snapshot": True, "held": True}
        waits = manager.submit(**job)
        code = data / "jobs" / waits / "code" / "train.sh"
        assert code.exists()
        manager.stop()
        put_back(None, data)
        with restarted(manager, "--start-fresh"):
            assert code.exists()
        (data / "store.json").unlink()
        with restarted(manager):  # nothing was submitted, and the folder is this store's now
            assert code.exists()
            assert int(manager.submit(command="true")) > int(waits)


def test_marks_that_a_power_failure_emptied_do_not_keep_the_manager_from_starting(
    data: Path,
) -> None:
    with live(data, "--slots", "4") as manager:
        job = manager.submit(command="sleep 3600")
        pid = pid_of(manager, job)
        manager.stop()
        home, mark = (data / "home").read_text(), json.loads((data / "store.json").read_text())
        (data / "home").write_text("")
        (data / "store.json").write_bytes(b"\0" * 100)
        with restarted(manager):
            assert pid_of(manager, job) == pid
        assert (data / "home").read_text() == home
        assert json.loads((data / "store.json").read_text())["store"] == mark["store"]
        assert "was lost" in (data / "manager.log").read_text()
