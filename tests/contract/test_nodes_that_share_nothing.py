"""Nodes that do not see the manager's folder: files are sent there and brought back. Real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_engine_of_machines import BOTH, RUN, Cluster, switch_off
from tests.live.loopback import LoopbackLink
from tests.live.stage import is_last, nothing_left, placed, until
from trainmaster.daemon.code_snapshot import keep_code
from trainmaster.engines.copied_files import is_as_copied
from trainmaster.engines.ray import engine, staged_jobs, staging
from trainmaster.engines.ray.node_link import Unreachable
from trainmaster.model.actions import Halt, Kill, Launch, Reshape
from trainmaster.model.engine_reports import (
    Ended,
    FilesKept,
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
        self.refused: set[tuple[str, str]] = set()
        """Calls that do not arrive, ..."""
        self.broken: list[tuple[str, str]] = []
        """... and whose answer is lost, once."""
        for node in self.link.nodes.values():
            node.hidden = (str(folder),)
        self._watch(self.link)

    def another(self) -> Apart:
        return Apart(self.folder)

    def _watch(self, link: LoopbackLink) -> None:
        call = link.call

        async def noted(node: str, method: str, *words: object) -> object:
            self.called.append((node, method))
            if (node, method) in self.refused:
                raise Unreachable(node)
            answer = await call(node, method, *words)
            if (node, method) in self.broken:
                self.broken.remove((node, method))
                raise Unreachable(node)
            return answer

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
        return LaunchSpec(
            spec.command, str(self.code), str(self.checkpoints), grace_ms=spec.grace_ms
        )

    def job_folder(self, node: str) -> Path:
        return self.folder / "nodes" / node / "jobs" / RUN.job

    async def last(self, run: Run) -> Ended | Lost:
        return await until(lambda: next((r for r in self.of(run) if is_last(r)), None))  # type: ignore[return-value]


def remarks(stage: Apart) -> tuple[tuple[str, str], ...]:
    return stage.engine.abilities.node_remarks


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
        assert stage.calls("n0", "settle") == 1  # before: it may be sent its next files now
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


SAVER = """
import os, sys, time, trainmaster_sdk
with trainmaster_sdk.run() as tm:
    found = tm.load()
    print("from", found.step if found else 0, flush=True)
    for step in range(found.step + 1 if found else 1, 100):
        while not os.path.exists(f"{sys.argv[1]}/{step}"):
            if tm.should_stop():
                sys.exit(0)
            time.sleep(0.02)
        tm.save({"step": step}, step)
"""


def a_saver(stage: Apart) -> LaunchSpec:
    """It saves a step as soon as a file of its number is there."""
    (stage.folder / "steps").mkdir()
    words = (sys.executable, "saver.py", str(stage.folder / "steps"))
    return stage.copied(*words, **{"saver.py": SAVER})


def test_a_job_goes_on_from_the_last_checkpoint_that_was_brought_from_a_dead_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, replacing = [OSError(28, "No space left on device")], staging._replace

    def replace_later(*words: Any) -> None:
        if refusals:
            raise refusals.pop()
        replacing(*words)

    monkeypatch.setattr(staging, "_replace", replace_later)
    monkeypatch.setattr(engine, "RETRY_S", 0.05)

    async def act(stage: Apart) -> None:
        spec = a_saver(stage)
        await stage.order(Launch(RUN, placed(1, first=4), 0), spec)
        (stage.folder / "steps" / "1").touch()
        assert (await stage.heard(RUN, Saved)).step == 1
        assert refusals == []
        assert (stage.checkpoints / "latest").read_text() == "step-1\n"
        stage.refused.add(("n1", "read"))
        (stage.folder / "steps" / "2").touch()
        await until((stage.job_folder("n1") / "checkpoints" / "step-2" / "whole.json").exists)
        await until(lambda: stage.calls("n1", "read") > 2)
        assert len([each for each in stage.of(RUN) if isinstance(each, Saved)]) == 1
        assert not (stage.checkpoints / "step-2").exists()
        await stage.link.die("n1", switch_off)
        last = await stage.last(RUN)
        assert isinstance(last, Lost)
        assert last.why == (
            "The node n1 is dead. It goes on from the last checkpoint that was brought from there,"
            " of step 1."
        )
        await stage.order(Launch(SECOND, placed(1), 0), spec)
        await until(lambda: stage.log(SECOND) == b"from 1\n")
        (stage.folder / "steps" / "3").touch()
        await stage.heard(SECOND, Saved)
        await stage.order(Halt(SECOND), spec)
        await stage.ended(SECOND)

    perform(tmp_path, act)


def test_a_manager_that_comes_back_brings_what_was_written_meanwhile(tmp_path: Path) -> None:
    async def act(stage: Apart) -> None:
        script = "until [ -e go ]; do sleep 0.02; done; echo done > result"
        spec = stage.copied("sh", "-c", script)
        await stage.order(Launch(RUN, placed(1), 0), spec)
        await stage.heard(RUN, Started)
        seen = stage.reports[-1][1]
        await stage.engine.close()
        (stage.job_folder("n0") / "code" / "go").touch()
        await until((stage.job_folder("n0") / "code" / "result").exists)
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            assert (await again.ended(RUN)).code == 0
            assert (stage.code / "result").read_text() == "done\n"
            kept = await again.heard(RUN, FilesKept)
            assert kept.nodes == ("n0",)

    perform(tmp_path, act)


def test_what_several_nodes_write_is_brought_together_and_sent_to_all(tmp_path: Path) -> None:
    async def act(stage: Apart) -> None:
        script = (
            "mkdir -p $TRAINMASTER_CHECKPOINT_DIR; cat $TRAINMASTER_CHECKPOINT_DIR/model;"
            " trap 'echo saved by $RANK > $TRAINMASTER_CHECKPOINT_DIR/model; exit 0' TERM;"
            " echo $RANK > log; echo same > both; echo $RANK > only-$RANK; touch up-$RANK;"
            " while :; do sleep 0.02; done"
        )
        spec = stage.copied("sh", "-c", script)
        await stage.order(Launch(RUN, placed(2, first=3), 0), spec)
        for rank, node in enumerate(("n0", "n1")):
            await until((stage.job_folder(node) / "code" / f"up-{rank}").exists)
        await stage.engine.bring(RUN)
        assert (stage.code / "log").read_text() == "0\n"
        assert (stage.code / "log.n1").read_text() == "1\n"
        assert not (stage.code / "both.n1").exists()
        assert [(stage.code / f"only-{rank}").read_text() for rank in (0, 1)] == ["0\n", "1\n"]
        (stage.job_folder("n1") / "code" / "only-1").unlink()
        await stage.order(Reshape(RUN, placed(1, first=4)), spec)
        await stage.heard(RUN, Reshaped)
        assert not (stage.code / "only-1").exists()
        await until(lambda: b"saved by" in stage.log(RUN))
        assert stage.log(RUN).endswith(b"saved by 0\n")
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(tmp_path, act)


def test_a_broken_transfer_is_tried_again_and_what_a_node_has_is_not_sent_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 1000)

    async def act(stage: Apart) -> None:
        spec = stage.copied("cmp", "large", "again", large="x" * 4500, again="x" * 4500)
        stage.broken.append(("n0", "put"))
        await stage.order(Launch(RUN, placed(1), 0), spec)
        assert (await stage.ended(RUN)).code == 0
        sent = stage.calls("n0", "put")
        assert sent == 6  # five pieces of one content, one of them twice
        other = Run("13", 1)
        place = stage.folder / "jobs" / "13"
        shutil.copytree(stage.code, place / "code")
        twin = replace(spec, workdir=str(place / "code"), checkpoint_dir=str(place / "checkpoints"))
        await stage.order(Launch(other, placed(1), 0), twin)
        assert (await stage.ended(other)).code == 0
        assert stage.calls("n0", "put") == sent

    perform(tmp_path, act)


def test_a_run_ends_though_what_it_wrote_cannot_be_brought_which_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def act(stage: Apart) -> None:
        spec = stage.copied("sh", "-c", "echo 1 > result")
        with monkeypatch.context() as patch:
            patch.setattr(staging, "_apply", refuse)
            patch.setattr(staging, "RETRY_S", 0.01)
            patch.setattr(staging, "TRIES", 2)
            await stage.order(Launch(RUN, placed(1), 0), spec)
            assert (await stage.ended(RUN)).code == 0
            kept = await stage.heard(RUN, FilesKept)
            assert (kept.nodes, "No space left" in kept.missing) == ((), True)
            assert stage.calls("n0", "settle") == 0
        await until((stage.code / "result").exists)
        await until(lambda: stage.calls("n0", "settle"))

    perform(tmp_path, act)


def test_a_node_with_a_full_disk_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Apart) -> None:
        spec = stage.copied("true", large="x" * 4500)
        monkeypatch.setattr(
            staged_jobs, "free_bytes", lambda folder: 500 if "n1" in folder.parts else 10**9
        )
        await stage.order(Launch(RUN, BOTH, 0), spec)
        last = await stage.last(RUN)
        assert isinstance(last, Lost)
        assert last.unfit == ("n1",)
        assert last.why.startswith("The files of the job cannot be sent to n1: its disk is full")
        assert not last.why.endswith("..")
        await stage.order(Launch(SECOND, placed(1), 0), spec)
        assert (await stage.ended(SECOND)).code == 0

    perform(tmp_path, act)


def test_a_job_in_its_own_folder_only_goes_where_that_is_seen(tmp_path: Path) -> None:
    async def act(stage: Apart) -> None:
        stage.link.nodes["n0"].hidden = ()
        await stage.link.restart_launcher("n0")
        await until(
            lambda: [name for name, why in remarks(stage) if "does not see" in why] == ["n1"]
        )
        spec = replace(stage.shell("pwd -P"), checkpoint_dir=str(stage.checkpoints))
        await stage.order(Launch(RUN, placed(1, first=4), 0), spec)
        last = await stage.last(RUN)
        assert isinstance(last, Lost)
        assert last.unfit == ("n1",)
        assert last.why == (
            f"The node n1 does not see {stage.workdir}: put that on storage that all nodes share. Or"
            " submit it with --snapshot: then its code is copied to its nodes."
        )
        await stage.order(Launch(SECOND, placed(1), 0), spec)
        await stage.ended(SECOND)
        assert stage.log(SECOND).decode() == f"{stage.workdir}\n"
        assert stage.calls("n0", "stage") == 0

    perform(tmp_path, act)
