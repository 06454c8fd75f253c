"""What the manager makes of files on nodes that share nothing, where something comes between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainmaster.daemon.code_snapshot import remove_incomplete
from trainmaster.engines.ray import staged_jobs, staging
from trainmaster.engines.ray.file_tree import Entry, Tree
from trainmaster.engines.ray.folder_below import finish
from trainmaster.engines.ray.node_session import NodeIsGone
from trainmaster.engines.ray.staged_jobs import StagedJobs
from trainmaster.engines.ray.staging import NotBrought, Staging
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Account, LaunchSpec

RUN = Run("12", 1)


class Machines:
    """A manager's data folder, and nodes in this process."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("n0",)) -> None:
        self.folder, self.nodes = folder, tuple(nodes)
        self.data = folder / "data"
        (self.data / "runs/12/1").mkdir(parents=True)
        self.code.mkdir(parents=True)
        self.saved.mkdir()
        self.there = {node: StagedJobs(folder / node) for node in nodes}
        for node in nodes:
            (folder / node).mkdir()
        self.gone: set[str] = set()
        self.staging = Staging(self.data, self._ask)

    @property
    def code(self) -> Path:
        return self.data / "jobs/12/code"

    @property
    def saved(self) -> Path:
        return self.data / "jobs/12/checkpoints"

    def at(self, node: str, path: str) -> Path:
        return self.folder / node / "jobs/12" / path

    def write(self, node: str, path: str, text: str = "x") -> None:
        place = self.at(node, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    async def send(self) -> None:
        spec = LaunchSpec(("true",), str(self.code), str(self.saved))
        await self.staging.send(RUN, spec, self.nodes)

    async def _ask(self, node: str, method: str, *words: object) -> object:
        await asyncio.sleep(0)
        if node in self.gone:
            raise NodeIsGone(node)
        return getattr(self.there[node], method)(*words)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path, ("n0", "n1"))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def slow(work: Callable[..., None], begun: asyncio.Event) -> Callable[..., None]:
    loop = asyncio.get_running_loop()

    def slowly(*words: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.02)
        work(*words)

    return slowly


def test_who_stops_waiting_for_files_loses_none(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel_it() -> None:
        begun = asyncio.Event()
        await machines.send()
        for step in range(3):
            machines.write("n0", f"checkpoints/step-{step}")
        monkeypatch.setattr(staging, "_replace", slow(staging._replace, begun))
        bringing = asyncio.create_task(machines.staging.bring(RUN))
        await begun.wait()
        bringing.cancel()
        await asyncio.sleep(0)
        bringing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bringing

    asyncio.run(cancel_it())
    assert names(machines.saved) == ["step-0", "step-1", "step-2"]
    assert sorted(os.listdir(machines.saved.parent)) == ["checkpoints", "code"]


def test_what_is_there_as_it_was_settled_stays_here(machines: Machines) -> None:
    async def settle_it_for_another() -> None:
        await machines.send()
        machines.write("n0", "code/result")
        await machines.staging.bring(RUN)
        node = machines.there["n0"]
        node.settle(RUN, machines.staging.brought_from(RUN, "n0"))
        await machines.staging.bring(RUN)

    asyncio.run(settle_it_for_another())
    assert names(machines.code) == ["result"]


def test_a_file_that_nobody_can_be_given_keeps_nothing_else_back(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = staged_jobs.open_below

    def refuse(root: int, path: str, account: Account | None = None) -> object:
        if path == "closed":
            raise PermissionError(13, "Permission denied", path)
        return opening(root, path, account)

    async def bring() -> None:
        await machines.send()
        machines.write("n0", "code/closed")
        machines.write("n0", "code/open")
        await machines.staging.bring(RUN)
        assert names(machines.code) == ["open"]
        assert machines.staging.left_out(RUN) == {"closed"}

    monkeypatch.setattr(staged_jobs, "open_below", refuse)
    asyncio.run(bring())


def test_a_folder_where_the_first_ranks_have_a_file_is_kept_beside_it(machines: Machines) -> None:
    async def bring() -> None:
        await machines.send()
        machines.write("n0", "code/x", "file")
        machines.write("n1", "code/x/deep/y")
        for _ in range(2):
            await machines.staging.bring(RUN)
            assert names(machines.code) == ["x", "x.n1/deep/y"]

    asyncio.run(bring())


def test_a_name_that_is_as_long_as_names_can_be_is_shortened(machines: Machines) -> None:
    async def bring() -> None:
        await machines.send()
        machines.write("n0", f"code/{'x' * 255}", "a")
        machines.write("n1", f"code/{'x' * 255}", "another")
        await machines.staging.bring(RUN)

    asyncio.run(bring())
    assert [len(name) for name in names(machines.code)] == [255, 255]


def test_a_run_ends_though_its_files_cannot_be_brought(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def bring() -> None:
        await machines.send()
        machines.write("n0", "code/x")
        with monkeypatch.context() as patch:
            patch.setattr(staging, "_apply", refuse)
            for is_killed in (False, True):
                with pytest.raises(NotBrought, match="No space left"):
                    await machines.staging.bring_all(RUN, lambda is_killed=is_killed: is_killed)
            assert "No space left" in machines.staging.troubles[RUN]
        await machines.staging.bring_all(RUN)
        assert names(machines.code) == ["x"]
        assert machines.staging.troubles == {}

    monkeypatch.setattr(staging, "RETRY_S", 0)
    asyncio.run(bring())


def test_who_has_a_file_is_written_down_though_nothing_is_fetched(machines: Machines) -> None:
    async def bring() -> None:
        (machines.code / "own").write_text("x")
        await machines.send()
        machines.write("n0", "code/result")
        await machines.staging.bring(RUN)
        (machines.code / "result").unlink()
        machines.at("n0", "code/result").unlink()
        await machines.staging.bring(RUN)
        assert machines.staging.brought_from(RUN, "n0") == {"code": (), "checkpoints": ()}

    asyncio.run(bring())


def test_checkpoints_that_were_being_replaced_are_put_back_over_an_empty_folder(
    tmp_path: Path,
) -> None:
    folder, former = tmp_path / "checkpoints", tmp_path / "checkpoints.former"
    folder.mkdir()
    former.mkdir()
    (former / "step-1").write_text("x")
    staging.restore(folder)
    assert names(tmp_path) == ["checkpoints/step-1"]


def test_tasks_that_are_sent_their_code_at_once_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = staged_jobs._make_own

    def make(folder: Path, account: Account | None) -> None:
        time.sleep(0.01)
        making(folder, account)

    monkeypatch.setattr(staged_jobs, "_make_own", make)
    source, node = tmp_path / "code", StagedJobs(tmp_path / "node")
    (tmp_path / "node").mkdir()
    source.mkdir()
    tree = Tree(
        "code", str(source), "12/code", tuple(Entry(f"f{i}", is_folder=True) for i in range(9))
    )
    spec = LaunchSpec(("true",), str(source), "")
    with ThreadPoolExecutor(8) as threads:
        sent = [
            threads.submit(node.stage, Run(str(job), 1), spec, (tree,)) for job in range(12, 20)
        ]
        assert [each.result() for each in sent] == [()] * 8


def test_no_rights_but_those_of_files_are_given(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("x")
    finish(ready, 0o4755, 1, None)
    assert ready.stat().st_mode & 0o7777 == 0o755


def test_what_a_killed_manager_was_bringing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "12/brought.0.new/code").mkdir(parents=True)
    assert remove_incomplete(tmp_path) == 1
    assert [*tmp_path.iterdir()] == []
