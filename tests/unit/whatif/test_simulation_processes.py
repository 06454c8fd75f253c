"""Simulations in processes of their own: few at a time, bounded, with progress, and cancelled at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.daemon.service_api import NotFound, TooMany
from trainmaster.whatif.simulation_processes import (
    Bounds,
    RunState,
    SimulationProcesses,
    SimulationRun,
)

PROGRAMS = {
    "does": "teller.tell(0.5, 'Half.'); (folder / 'result.json').write_text('{}')",
    "refuses": "child_process.refuse('The trace is empty.')",
    "breaks": "raise KeyError('x')",
    "stays": "teller.tell(0.25, 'On.'); time.sleep(60)",
    "grows": "kept = bytearray(1 << 30)",
}
TEXT = """
import sys, time
from pathlib import Path
from trainmaster.whatif import child_process
child_process.bounded()
teller, folder = child_process.Teller(), Path(sys.argv[1])
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, body in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(TEXT + body)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


async def ended(run: SimulationRun) -> SimulationRun:
    async with asyncio.timeout(60):
        while not run.state.has_ended:
            await asyncio.sleep(0.02)
    return run


def run_with(folder: Path, bounds: Bounds, scene: Callable[[SimulationProcesses], object]) -> None:
    async def play() -> None:
        processes = SimulationProcesses(folder, bounds)
        try:
            await scene(processes)  # type: ignore[misc]
        finally:
            await processes.close()

    asyncio.run(play())


@pytest.mark.usefixtures("programs")
def test_each_ends_as_its_program_does(tmp_path: Path) -> None:
    async def scene(processes: SimulationProcesses) -> None:
        asked = {
            name: await processes.ask(name, name, name, {})
            for name in ("does", "refuses", "breaks", "grows")
        }
        runs = {name: await ended(run) for name, run in asked.items()}
        assert runs["does"].state is RunState.DONE
        assert runs["does"].result.exists()
        assert (runs["refuses"].state, runs["refuses"].says) == (
            RunState.FAILED,
            "The trace is empty.",
        )
        assert "manager's log" in runs["breaks"].says
        assert "of memory: simulate fewer jobs" in runs["grows"].says

    run_with(tmp_path / "runs", Bounds(running=4, memory=1 << 30), scene)


@pytest.mark.usefixtures("programs")
def test_few_run_at_once_and_a_cancelled_one_makes_room(tmp_path: Path) -> None:
    async def scene(processes: SimulationProcesses) -> None:
        first = await processes.ask("ada", "stays", "", {})
        second = await processes.ask("ada", "does", "", {})
        assert (first.state, second.state) == (RunState.RUNNING, RunState.WAITING)
        with pytest.raises(TooMany, match="that wait"):
            await processes.ask("ada", "does", "", {})
        with pytest.raises(NotFound):
            processes.get(first.id, "bob", "stays")
        async with asyncio.timeout(60):
            while first.progress != 0.25:
                await asyncio.sleep(0.02)
        assert first.process is not None
        await processes.cancel(first)
        assert first.process.returncode is not None
        assert (await ended(second)).state is RunState.DONE
        assert first.says == "It was cancelled."

    run_with(tmp_path / "runs", Bounds(waiting_per_user=1), scene)


@pytest.mark.usefixtures("programs")
def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def scene(processes: SimulationProcesses) -> None:
        run = await ended(await processes.ask("ada", "stays", "", {}))
        assert run.says == "It took more than 0.5 s: simulate fewer jobs."

    run_with(tmp_path / "runs", Bounds(time_ms=500), scene)
