"""Nodes that do not see the manager's folder: files of jobs are sent there and brought back. Real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_engine_of_machines import BOTH, RUN, Cluster, switch_off
from tests.live.loopback import LoopbackLink
from tests.live.stage import is_last, nothing_left, placed, until
from trainmaster.engines.copied_files import is_as_copied
from trainmaster.engines.ray import staged_jobs
from trainmaster.daemon.code_snapshot import keep_code
from trainmaster.model.actions import Halt, Kill, Launch, Reshape
from trainmaster.model.engine_reports import (
    Ended,
    Lost,
    NodeCame,
    Reshaped,
    Saved,
    Started,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

pytestmark = pytest.mark.live
SECOND = Run(RUN.job, 2)


class Apart(Cluster):
    """Both nodes have disks of their own, and the job runs in a copy of its code."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.checkpoints = folder / "jobs" / RUN.job / "checkpoints"
        self.code = folder / "jobs" / RUN.job / "code"
        self.called: list[tuple[str, str]] = []
        for node in self.link.nodes.values():
            node.hidden = (str(folder),)
        self._watch(self.link)

    def another(self) -> Apart:
        return Apart(self.folder)

    def _watch(self, link: LoopbackLink) -> None:
        call = link.call

        async def noted(node: str, method: str, *words: object) -> object:
            self.called.append((node, method))
            return await call(node, method, *words)

        link.call = noted  # type: ignore[method-assign]

    def calls(self, node: str, method: str) -> int:
        return self.called.count((node, method))

    def copied(self, *command: str, **files: str) -> LaunchSpec:
        """A job that runs in a copy of these files."""
        for name, text in files.items():
            (self.workdir / name).write_text(text)
        if not self.code.exists():
            keep_code(self.workdir, self.code, links=False)
        spec = self.recipe(*command)
        return LaunchSpec(spec.command, str(self.code), str(self.checkpoints), grace_ms=spec.grace_ms)

    def job_folder(self, node: str) -> Path:
        return self.folder / "nodes" / node / "jobs" / RUN.job

    async def last(self, run: Run) -> Ended | Lost:
        return await until(lambda: next((r for r in self.of(run) if is_last(r)), None))  # type: ignore[return-value]


Act = Callable[[Apart], Awaitable[None]]


def perform(folder: Path, act: Act) -> None:
    async def playing() -> None:
        async with Apart(folder) as stage:
            await act(stage)

    with nothing_left(folder):
        asyncio.run(playing())


def test_code_is_sent_and_what_the_job_writes_is_brought_and_sent_on(tmp_path: Path) -> None:
    async def act(stage: Apart) -> None:
        tool = stage.workdir / "tool.sh"
        tool.write_text("echo made by $1\n")
        tool.chmod(0o755)
        (stage.workdir / "link").symlink_to("tool.sh")
        script = (
            "pwd -P; echo $TRAINMASTER_CHECKPOINT_DIR; cat result 2>/dev/null;"
            " ./link $TRAINMASTER_ATTEMPT > result; mkdir -p deep/er $TRAINMASTER_CHECKPOINT_DIR;"
            " echo 1 > deep/er/log; cat $TRAINMASTER_CHECKPOINT_DIR/model 2>/dev/null;"
            " echo $TRAINMASTER_ATTEMPT > $TRAINMASTER_CHECKPOINT_DIR/model; rm -f gone"
        )
        spec = stage.copied("sh", "-c", script, gone="x")
        await until(lambda: len(stage.nodes) == 2)
        assert {type(each) for each in stage.nodes} == {NodeCame}
        assert not stage.engine.abilities.shares_files
        await stage.order(Launch(RUN, placed(1), 0), spec)
        assert (await stage.ended(RUN)).code == 0
        there = stage.job_folder("n0")
        assert stage.log(RUN).decode().splitlines()[:2] == [
            f"{there}/code",
            f"{there}/checkpoints",
        ]
        assert (stage.code / "result").read_text() == "made by 1\n"
        assert (stage.code / "deep/er/log").read_text() == "1\n"
        assert not (stage.code / "gone").exists()
        assert is_as_copied(stage.code / "tool.sh")
        assert not is_as_copied(stage.code / "result")
        assert (stage.checkpoints / "model").read_text() == "1\n"
        await stage.order(Launch(SECOND, placed(1, first=4), 0), spec)
        assert (await stage.ended(SECOND)).code == 0
        assert stage.log(SECOND).decode().splitlines()[1:] == [
            f"{stage.job_folder('n1')}/checkpoints",
            *("made by 1", "1"),
        ]
        assert (stage.checkpoints / "model").read_text() == "2\n"
        assert (stage.job_folder("n1") / "code" / "link").readlink() == Path("tool.sh")
        assert os.access(stage.job_folder("n1") / "code" / "tool.sh", os.X_OK)

    perform(tmp_path, act)
