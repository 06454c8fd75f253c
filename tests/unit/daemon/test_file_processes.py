"""Processes for files of users: deadlines, a bounded number, one refusal in a sentence."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainmaster.daemon.file_processes import FileLimits, FileProcesses
from trainmaster.daemon.request_errors import RequestError, Unavailable


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """Git waits for ever for the other end of this pipe, as for a file server that is gone."""
    folder = tmp_path / "hangs"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    os.mkfifo(folder / ".gitignore")
    return folder


async def copied(files: FileProcesses, workdir: Path, into: Path) -> Any:
    return await files.ask(
        "copy", str(workdir), workdir=str(workdir), into=str(into), links=True, most=[1 << 20, 100]
    )


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
