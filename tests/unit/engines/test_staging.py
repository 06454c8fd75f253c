"""What the manager makes of files on nodes that share nothing, where something comes between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trainmaster.engines.ray import staging
from trainmaster.engines.ray.node_session import NodeIsGone
from trainmaster.engines.ray.staged_jobs import StagedJobs
from trainmaster.engines.ray.staging import Staging
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

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
