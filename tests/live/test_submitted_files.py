"""Folders of users may hang, never end or be large: the manager answers others meanwhile."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("files") / "state", "--slots", "2") as started:
        yield started


def refusal(daemon: LiveDaemon, **fields: object) -> str:
    with pytest.raises(urllib.error.HTTPError) as refused:
        daemon.submit(**fields)
    return str(json.loads(refused.value.read())["error"]["sentence"])


def hanging(folder: Path) -> Path:
    """Git waits for ever for the other end of this pipe, as for a file server that is gone."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "train.py").touch()
    os.mkfifo(folder / ".gitignore")
    return folder


def test_what_is_not_there_is_refused(daemon: LiveDaemon, tmp_path: Path) -> None:
    said = refusal(daemon, command="true", workdir="/nowhere/at/all")
    assert said.startswith("workdir /nowhere/at/all does not exist: name a folder")
    (tmp_path / "file").touch()
    assert "is a file" in refusal(daemon, command="true", workdir=str(tmp_path / "file"))
    said = refusal(daemon, command="true", workdir=str(tmp_path), data=["nothing.bin"])
    assert "nothing.bin does not exist on the manager's machine" in said


def test_hanging_folders_hold_up_nobody_else(tmp_path: Path) -> None:
    """Six at once were enough to take every thread of the manager."""
    folder = hanging(tmp_path / "hangs")
    with live(tmp_path / "state", "--slots", "2") as daemon, ThreadPoolExecutor(12) as clients:
        for _ in range(6):
            clients.submit(refusal, daemon, command="true", workdir=str(folder), snapshot=True)
        until(lambda: git_processes(folder), "Git to wait for the pipe")
        job = daemon.submit(command="true", workdir=str(tmp_path))
        daemon.until_state(job, "succeeded")
        assert daemon.call("GET", "/healthz")["role"] == "active"
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        until(lambda: not git_processes(folder), "Git to be gone")


def git_processes(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"git"] and os.fsencode(folder) in words:
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize("kind", ["pipe", "device", "stars"])
def test_ignore_files_of_all_kinds_are_answered(
    daemon: LiveDaemon, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / ".trainmasterignore"
    fields = {"command": "true", "workdir": str(tmp_path), "snapshot": True}
    if kind == "stars":
        place.write_text("*a*a*a*a*a*a*a*a*a*a*b\n")
        (tmp_path / ("a" * 120)).touch()
        assert daemon.until_state(daemon.submit(**fields), "succeeded")
        return
    if kind == "pipe":
        os.mkfifo(place)
    else:
        os.symlink("/dev/zero", place)
    assert "cannot be read: it is not an ordinary file" in refusal(daemon, **fields)


def test_a_policy_that_names_a_pipe_is_refused(daemon: LiveDaemon, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "samples")
    body = {"name": "gittins", "options": {"service_samples": str(tmp_path / "samples")}}
    with pytest.raises(urllib.error.HTTPError) as refused:
        daemon.call("PUT", "/api/v1/policy", body)
    assert "is a path" in json.loads(refused.value.read())["error"]["sentence"]


def test_others_are_answered_while_code_is_copied(daemon: LiveDaemon, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"part-{number}").write_bytes(os.urandom(1 << 20))
    fields = {"command": "true", "workdir": str(tmp_path), "snapshot": True, "held": True}
    with ThreadPoolExecutor(8) as clients:
        copies = [clients.submit(daemon.submit, **fields) for _ in range(8)]
        asked = 0
        while not all(each.done() for each in copies):
            daemon.call("GET", "/api/v1/jobs")
            asked += 1
        ids = [each.result() for each in copies]
    assert asked > 3
    assert len({daemon.job(id)["ran_in"] for id in ids}) == 8


def test_refused_submissions_leave_nothing_behind(daemon: LiveDaemon, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
        (folder / "train.py").touch()
    os.mkfifo(bad / ".trainmasterignore")
    before = sorted(path.name for path in (daemon.folder / "jobs").glob("*"))
    jobs = [
        {"command": "true", "workdir": str(folder), "snapshot": True}
        for folder in (good, good, bad)
    ]
    with pytest.raises(urllib.error.HTTPError):
        daemon.call("POST", "/api/v1/jobs", {"jobs": jobs})
    assert sorted(path.name for path in (daemon.folder / "jobs").glob("*")) == before


def test_what_a_crash_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").touch()
    fields = {"command": "sleep 600", "workdir": str(tmp_path / "code"), "snapshot": True}
    with live(tmp_path / "state", "--slots", "1") as daemon:
        first = daemon.submit(**fields)
        daemon.until_state(first, "running")
        daemon.kill()
        jobs = tmp_path / "state/jobs"
        kept = jobs / first / "code"
        for left in (jobs / first / "code.12ab.new", jobs / "99" / "code.34cd.new"):
            left.mkdir(parents=True)
        subprocess.run(["cp", "-a", str(kept), str(jobs / "98-")], check=True)
        (jobs / "98").mkdir()
        (jobs / "98-").rename(jobs / "98" / "code")
        daemon.start()
        daemon.until_active()
        assert sorted(path.name for path in jobs.iterdir()) == [first]
        assert not [*(jobs / first).glob("code.*")]
        assert (kept / "train.py").exists()
        again = [daemon.submit(**fields, held=True) for _ in range(2)]
        assert len({daemon.job(each)["ran_in"] for each in again}) == 2


def is_well(daemon: LiveDaemon) -> bool:
    try:
        return not daemon.call("GET", "/healthz")["trouble"]
    except urllib.error.HTTPError:
        return False


def test_nothing_is_copied_while_nothing_can_be_stored(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").touch()
    fields = {"command": "true", "workdir": str(tmp_path / "code"), "snapshot": True}
    with live(tmp_path / "state", "--slots", "1") as daemon:
        with sqlite3.connect(tmp_path / "state/trainmaster.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with ThreadPoolExecutor(1) as first:
                first.submit(refusal, daemon, command="true")
                until(lambda: not is_well(daemon), "the trouble")
                refusal(daemon, **fields)
                assert not [*(tmp_path / "state/jobs").glob("*")]
                other.execute("ROLLBACK")
        other.close()
        until(lambda: is_well(daemon), "the end of the trouble")
        daemon.until_state(daemon.submit(**fields), "succeeded")
