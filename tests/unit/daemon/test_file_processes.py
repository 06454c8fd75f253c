"""Processes for files of users: deadlines, a bounded number, one refusal in a sentence."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainmaster.daemon.file_processes import FileLimits, FileProcesses
from trainmaster.daemon.request_errors import RequestError, Unavailable
from trainmaster.model.launch_spec import Account


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """Git waits for ever for the other end of this pipe, as for a file server that is gone."""
    folder = tmp_path / "hangs"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    os.mkfifo(folder / ".gitignore")
    return folder


async def copied(files: FileProcesses, workdir: Path, into: Path, owner: str | None = None) -> Any:
    said = {"workdir": str(workdir), "into": str(into), "links": True, "most": [1 << 20, 100]}
    return await files.ask("copy", str(workdir), None, owner, **said)


def test_a_folder_that_does_not_answer_is_given_up(hanging: Path, tmp_path: Path) -> None:
    async def act() -> None:
        files = FileProcesses(FileLimits(at_once=1, seconds=1.0, waiting=2))
        into, good = tmp_path / "state/jobs/1/code", tmp_path / "good"
        good.mkdir()
        stuck = asyncio.create_task(copied(files, hanging, into))
        next_one = asyncio.create_task(copied(files, good, into))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="busy with files"):
            await copied(files, good, into)
        with pytest.raises(RequestError, match="hangs did not answer within 1 s"):
            await stuck
        await next_one
        assert into.is_dir()
        await files.close()
        with pytest.raises(Unavailable, match="ending"):
            await copied(files, good, into)

    asyncio.run(asyncio.wait_for(act(), 60))


def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async def act() -> None:
        files = FileProcesses(FileLimits(at_once=1, seconds=30.0))
        into = tmp_path / "state/jobs/1/code"
        (tmp_path / "a").mkdir()
        await copied(files, tmp_path / "a", into)
        ((_, process),) = files._idle
        process.kill()
        await process.wait()
        await copied(files, tmp_path / "a", into)
        with pytest.raises(RequestError, match=r"nowhere does not exist any more"):
            await copied(files, tmp_path / "nowhere", into)
        await files.close()

    asyncio.run(asyncio.wait_for(act(), 60))


def account_of(name: str) -> Account:
    entry = pwd.getpwnam(name)
    return Account(name, entry.pw_uid, entry.pw_gid, "/")


def test_each_user_has_a_process_that_the_user_cannot_look_into(tmp_path: Path) -> None:
    """It has root's code in memory, and root's pipes: only signals of its user reach it."""
    if os.geteuid() != 0:
        pytest.fail("This test becomes other users: run it as root.")
    secret = tmp_path / "secret"
    secret.touch()

    async def act() -> None:
        files = FileProcesses(FileLimits(at_once=1, seconds=30.0))
        for account in (account_of("nobody"), account_of("daemon"), None):
            said = await files.ask("stamp", str(secret), account, path=str(secret))
            assert (said == "cannot be read: Permission denied") is (account is not None)
            whose, process = files._idle[-1]
            assert whose == account
            status = Path(f"/proc/{process.pid}/status").read_text()
            uid = 0 if account is None else account.uid
            assert f"\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
            assert os.stat(f"/proc/{process.pid}/environ").st_uid == 0
        gone = Account("tm-nobody-of-that-name", 61_001, 61_001, "/")
        with pytest.raises(
            RequestError, match="files of tm-nobody-of-that-name cannot be looked at"
        ):
            await files.ask("stamp", str(secret), gone, path=str(secret))
        await files.close()

    asyncio.run(asyncio.wait_for(act(), 60))


def test_processes_that_one_user_has_stopped_hold_up_nobody_else(tmp_path: Path) -> None:
    """They run as that user, who may send them signals."""

    async def act() -> None:
        files = FileProcesses(FileLimits(at_once=4, seconds=600.0))
        folders = [tmp_path / str(number) for number in range(4)]
        for each in folders:
            subprocess.run(["git", "init", "-q", str(each)], check=True)
            os.mkfifo(each / ".gitignore")
        stuck = [asyncio.create_task(copied(files, each, each / "into", "ada")) for each in folders]
        await asyncio.sleep(0)
        good = tmp_path / "good"
        good.mkdir()
        for owner in ("bob", None):
            await copied(files, good, tmp_path / f"state/jobs/{owner}/code", owner)
        await files.close()
        await asyncio.wait(stuck)
        await files.close()  # and wait for the processes that were killed

    asyncio.run(asyncio.wait_for(act(), 60))


def test_requests_of_one_user_that_wait_leave_some_to_others(hanging: Path, tmp_path: Path) -> None:
    async def act() -> None:
        files = FileProcesses(FileLimits(at_once=2, seconds=600.0, waiting=4))
        into, good = tmp_path / "state/jobs/1/code", tmp_path / "good"
        good.mkdir()
        stuck = [asyncio.create_task(copied(files, hanging, into, "ada")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="busy with files"):
            await copied(files, good, into, "ada")
        await copied(files, good, into, "bob")
        await files.close()
        await asyncio.wait(stuck)
        await files.close()  # and wait for the processes that were killed

    asyncio.run(asyncio.wait_for(act(), 60))
