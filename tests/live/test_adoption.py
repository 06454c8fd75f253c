"""`up --adopt` with real processes: what runs, is stopped in memory or was suspended by its user stays so."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, sweep, until
from tests.live.stage import state_of
from tests.live.test_identity import backup, pid_of, printed, put_back, restarted

pytestmark = pytest.mark.live
LAS = ("--slots", "1", "--policy", "las", "--set", "quantum_s=1")


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    sweep(tmp_path)


FLAKY = 'echo "ConnectionRefusedError: [Errno 111] Connection refused"; exit 3'
"""Fails for want of something that may be there later, so that it is tried again."""
BROKEN = "echo \"ModuleNotFoundError: No module named 'nothing'\" >&2; exit 1"
"""Fails in a way that comes back, so that it is not."""


def ticking(path: Path) -> str:
    """A program whose file grows while it goes on."""
    return f"while true; do echo x >> {path}; sleep 0.1; done"


def grows(path: Path) -> None:
    before = path.stat().st_size
    until(lambda: path.stat().st_size > before, f"{path.name} to go on")


def is_stopped(pid: int) -> bool:
    return state_of(pid) == "T"


def waits_for_another(manager: LiveDaemon, ids: list[str]) -> str | None:
    """The one that is suspended in memory for the other."""
    rows = {id: manager.job(id) for id in ids}
    suspended = [id for id, row in rows.items() if row["state"] == "suspended"]
    return suspended[0] if len(suspended) == 1 else None


@pytest.mark.parametrize("is_empty", [False, True], ids=["older", "empty"])
def test_a_frozen_run_goes_on_when_its_turn_comes(
    data: Path, tmp_path: Path, is_empty: bool
) -> None:
    with live(data, *LAS) as manager:
        first = manager.submit(command=ticking(tmp_path / "first"), name="first")
        pids = {first: pid_of(manager, first)}
        backup(data, tmp_path / "backup.db")  # has it as running
        second = manager.submit(command=ticking(tmp_path / "second"), name="second")
        pids[second] = pid_of(manager, second)
        until(lambda: waits_for_another(manager, [*pids]), "one to wait in memory")
        before = {id: manager.job(id) for id in pids}
        manager.kill()
        until(lambda: [pid for pid in pids.values() if is_stopped(pid)], "one to be stopped")
        put_back(None if is_empty else tmp_path / "backup.db", data)
        with restarted(manager, "--adopt", "--slots", "1"):
            for count in ("gpu_s", "preemptions") if is_empty else ():
                assert all(manager.job(id)[count] >= before[id][count] for id in pids)
            for id, pid in pids.items():
                grows(tmp_path / manager.job(id)["name"])
                assert manager.job(id)["attempt"] == 1
                assert Path(f"/proc/{pid}").exists()
            states = {id: manager.job(id) for id in pids}
            assert sorted(row["state"] for row in states.values()) == ["running", "suspended"]
            for id, pid in pids.items():
                manager.call("POST", f"/api/v1/jobs/{id}/cancel")
                manager.until_state(id, "cancelled")
                until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "its process to end")


@pytest.mark.parametrize("is_empty", [False, True], ids=["older", "empty"])
def test_a_suspension_by_its_user_survives(data: Path, tmp_path: Path, is_empty: bool) -> None:
    with live(data, "--slots", "3") as manager:
        in_memory = manager.submit(command=ticking(tmp_path / "memory"), name="memory")
        pid = pid_of(manager, in_memory)
        saved = manager.submit(
            command="trap 'exit 0' TERM; sleep 3600 & wait", name="saved", stays_in_memory=False
        )
        pid_of(manager, saved)
        backup(data, tmp_path / "backup.db")
        for id in (in_memory, saved):
            manager.call("POST", f"/api/v1/jobs/{id}/suspend?force=true", {"force": True})
            manager.until_state(id, "suspended")
        goes_on = manager.submit(command=ticking(tmp_path / "on"), name="on")
        other = pid_of(manager, goes_on)
        manager.kill()
        put_back(None if is_empty else tmp_path / "backup.db", data)
        with restarted(manager, "--adopt", "--slots", "3"):
            row = manager.job(goes_on)
            assert (row["state"], row["pids"]) == ("running", [other])
            for id in (in_memory, saved):
                assert manager.job(id)["state"] == "suspended", json.dumps(manager.job(id))
            time.sleep(1.0)
            assert is_stopped(pid)
            manager.call("POST", f"/api/v1/jobs/{in_memory}/resume")
            grows(tmp_path / "memory")
            assert manager.job(in_memory)["pids"] == [pid]
            manager.call("POST", f"/api/v1/jobs/{saved}/resume")
            assert manager.until_state(saved, "running")["attempt"] == 2


def test_what_was_cancelled_after_the_copy_is_not_started_again(data: Path, tmp_path: Path) -> None:
    with live(data, "--slots", "2") as manager:
        runs = manager.submit(command=f"echo x >> {tmp_path}/runs; sleep 3600")
        pid_of(manager, runs)
        waits = manager.submit(command=f"echo x >> {tmp_path}/waits; sleep 3600", held=True)
        backup(data, tmp_path / "backup.db")
        manager.call("POST", f"/api/v1/jobs/{waits}/resume")
        pid_of(manager, waits)
        for id in (runs, waits):
            manager.call("POST", f"/api/v1/jobs/{id}/cancel")
            manager.until_state(id, "cancelled")
        manager.kill()
        put_back(tmp_path / "backup.db", data)
        with restarted(manager, "--adopt", "--slots", "2"):
            for name, id in (("runs", runs), ("waits", waits)):
                manager.until_state(id, "cancelled")
                assert (tmp_path / name).read_text() == "x\n"


def test_what_was_cancelled_without_a_process_stays_so(data: Path, tmp_path: Path) -> None:
    """Between two attempts, saved and waiting, suspended by its user: no journal says that it ended."""
    saves = "echo x >> {}; trap 'exit 0' TERM; sleep 3600 & wait"
    with live(data, "--slots", "2", "--policy", "fifo", "--limit", "retry_delay=5m") as manager:
        broken = manager.submit(command=BROKEN, retries=5)
        manager.until_state(broken, "failed")
        ids = {
            "retry": manager.submit(command=f"echo x >> {tmp_path}/retry; exit 3", retries=5),
            "waits": manager.submit(
                command=saves.format(tmp_path / "waits"), stays_in_memory=False
            ),
            "held": manager.submit(command=saves.format(tmp_path / "held"), stays_in_memory=False),
        }
        for name in ("waits", "held"):
            pid_of(manager, ids[name])
        until(lambda: "Retry" in json.dumps(manager.job(ids["retry"])), "the first to have failed")
        backup(data, tmp_path / "backup.db")
        for name in ("waits", "held"):
            manager.call("POST", f"/api/v1/jobs/{ids[name]}/suspend?force=true", {"force": True})
            manager.until_state(ids[name], "suspended")
        fill = [manager.submit(command="sleep 3600") for _ in range(2)]
        pids = [pid_of(manager, id) for id in fill]
        manager.call("POST", f"/api/v1/jobs/{ids['waits']}/resume")
        for id in ids.values():
            manager.call("POST", f"/api/v1/jobs/{id}/cancel")
            manager.until_state(id, "cancelled")
        manager.kill()
        for copy in (None, tmp_path / "backup.db"):
            put_back(copy, data)
            with restarted(manager, "--adopt", "--policy", "fifo"):
                assert [pid_of(manager, id) for id in fill] == pids
                assert "not been started, if there were any, are not in the" in printed(data)
                for name, id in ids.items():
                    row = manager.until_state(id, "cancelled")
                    assert (row["attempt"], row["end_reason"]["code"]) == (1, "Cancelled")
                    assert (tmp_path / name).read_text() == "x\n"
                assert manager.until_state(broken, "failed")["attempt"] == 1


def test_what_ended_after_the_copy_keeps_no_later_start_from_starting(
    data: Path, tmp_path: Path
) -> None:
    with live(data, "--slots", "1", "--policy", "fifo") as manager:
        first = manager.submit(command="sleep 1000")
        manager.until_state(first, "running")
        waiting = manager.submit(command=f"echo ran >> {tmp_path / 'waiting'}")
        backup(data, tmp_path / "backup.db")  # has it as never started
        manager.call("POST", f"/api/v1/jobs/{first}/cancel")
        manager.until_state(waiting, "succeeded")
        last = manager.submit(command="sleep 1000")
        manager.until_state(last, "running")
        manager.kill()
        put_back(tmp_path / "backup.db", data)
        with restarted(manager, "--adopt", "--slots", "1"):
            assert manager.job(last)["state"] == "running"
        with restarted(manager, "--slots", "1"):
            manager.call("POST", f"/api/v1/jobs/{last}/cancel")
            manager.until_state(waiting, "succeeded")
            assert (tmp_path / "waiting").read_text() == "ran\n"


def test_a_kill_is_a_cancellation_only_where_the_journal_says_so(
    data: Path, tmp_path: Path
) -> None:
    """A run that a smaller cluster ended goes on as a new one, and a job that ran too long has ended."""
    with live(data, "--slots", "2", "--policy", "fifo") as manager:
        late = manager.submit(command="sleep 3600", max_runtime="1s")
        manager.until_state(late, "timed_out")
        stays, waits = (manager.submit(command="sleep 3600") for _ in range(2))
        pid_of(manager, stays)
        pid = pid_of(manager, waits)
        manager.kill()
        manager.arguments = ("--slots", "1", "--force")
        manager.start()
        manager.until_active()
        until(lambda: not Path(f"/proc/{pid}").exists(), "it to be ended")
        manager.kill()
        put_back(None, data)
        with restarted(manager, "--adopt", "--slots", "2"):
            assert manager.until_state(waits, "running")["attempt"] == 2
            assert manager.job(late)["state"] == "timed_out"


def test_what_runs_keeps_its_slot_though_an_older_store_would_give_it_to_another_job(
    data: Path, tmp_path: Path
) -> None:
    """The copy has the first job running and the second next; by now the third runs on the only slot."""
    with live(data, "--slots", "1") as manager:
        first = manager.submit(command=f"until test -e {tmp_path}/end; do sleep 0.1; done")
        pid_of(manager, first)
        second = manager.submit(command="sleep 3600", name="second")
        third = manager.submit(command=ticking(tmp_path / "third"), name="third")
        backup(data, tmp_path / "backup.db")
        manager.call("POST", f"/api/v1/jobs/{second}/suspend")  # it has no run that could say so
        (tmp_path / "end").touch()
        pid = pid_of(manager, third)
        manager.kill()
        put_back(tmp_path / "backup.db", data)
        with restarted(manager, "--adopt", "--slots", "1"):
            assert manager.until_state(first, "succeeded")["attempt"] == 1
            row = manager.job(third)
            assert (row["state"], row["pids"], row["attempt"]) == ("running", [pid], 1)
            assert manager.job(second)["state"] == "pending"
            grows(tmp_path / "third")
            manager.call("POST", f"/api/v1/jobs/{third}/cancel")
            manager.until_state(third, "cancelled")
            assert not Path(f"/proc/{pid}").exists()
            pid_of(manager, second)


def test_fewer_slots_stop_what_has_none_and_lose_nothing(data: Path, tmp_path: Path) -> None:
    with live(data, "--slots", "3") as manager:
        ids = [manager.submit(command=ticking(tmp_path / str(n))) for n in range(3)]
        pids = [pid_of(manager, id) for id in ids]
        manager.kill()
        put_back(None, data)
        with restarted(manager, "--adopt", "--slots", "2"):
            until(lambda: sum(map(is_stopped, pids)) == 1, "one to be stopped in memory")
            states = [manager.job(id)["state"] for id in ids]
            assert sorted(states) == ["running", "running", "suspended"]
            (waits,) = [n for n, state in enumerate(states) if state == "suspended"]
            manager.call("POST", f"/api/v1/jobs/{ids[(waits + 1) % 3]}/cancel")
            manager.until_state(ids[waits], "running")
            grows(tmp_path / str(waits))
            assert manager.job(ids[waits])["pids"] == [pids[waits]]


def test_a_job_whose_newest_record_cannot_be_read_is_not_dropped(
    data: Path, tmp_path: Path
) -> None:
    with live(data, "--slots", "2") as manager:
        command = f"test -e {tmp_path}/go || {{ {FLAKY}; }}"
        waits = manager.submit(command=command, name="waits", retries=5)
        until(lambda: manager.job(waits)["attempt"] >= 2, "a second attempt")
        lives = manager.submit(command="sleep 3600", name="lives")
        pid = pid_of(manager, lives)
        manager.kill()
        newest = max((data / "runs" / waits).iterdir(), key=lambda each: int(each.name))
        (newest / "run.json").write_bytes(b"\0" * 100)
        (data / "runs" / lives / "1" / "run.json").write_text("{}")
        put_back(None, data)
        (tmp_path / "go").touch()
        with restarted(manager, "--adopt", "--slots", "2"):
            said = " ".join(printed(data).split())
            assert f"{lives}.1" in said
            assert "Left alone: 1 run without a readable record" in said
            assert os.path.exists(f"/proc/{pid}")
            assert manager.until_state(waits, "succeeded")["attempt"] == int(newest.name) + 1


def test_two_hundred_jobs_are_taken_in_before_anything_is_decided(
    data: Path, tmp_path: Path
) -> None:
    """One that failed waits to be tried again: it must not get the slot of one that is taken in later."""
    with live(data, "--slots", "200") as manager:
        command = f"test -e {tmp_path}/go || {{ {FLAKY}; }}; sleep 3600"
        failing = manager.submit(command=command, name="failing", retries=50)
        until(lambda: manager.job(failing)["attempt"] >= 1, "the first attempt")
        array = {"command": "exec sleep 3600", "array": "0-199", "snapshot": False}
        (first, *_) = manager.call("POST", "/api/v1/jobs", array)["jobs"]

        def running() -> dict[str, list[int]]:
            rows = manager.call("GET", "/api/v1/jobs?limit=500&state=running")["jobs"]
            ours = [row["id"] for row in rows if row["id"] != failing]
            return {id: manager.job(id)["pids"] for id in ours}

        until(lambda: len(running()) == 200, f"all of {first['id']} to run", 240)
        before = running()
        manager.stop()
        (tmp_path / "go").touch()
        put_back(None, data)
        with restarted(manager, "--adopt", "--slots", "200"):
            assert "200 running" in printed(data)
            until(lambda: all(running().values()), "all journals to be read")
            assert running() == before
            assert {manager.job(id)["attempt"] for id in before} == {1}
            assert manager.job(failing)["state"] == "pending"
