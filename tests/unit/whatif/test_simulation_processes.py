"""Simulations in processes of their own: few at a time, bounded, with progress, and cancelled at once."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.daemon.service_api import NotFound, TooMany
from trainmaster.whatif import simulation_processes
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
from typing import Any
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


def folders(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.usefixtures("programs")
def test_what_is_cancelled_while_it_waits_leaves_nothing(tmp_path: Path) -> None:
    async def scene(processes: SimulationProcesses) -> None:
        first = await processes.ask("ada", "stays", "", {})
        for _ in range(5):
            await processes.cancel(await processes.ask("ada", "does", "", {}))
        assert folders(tmp_path / "runs") == [first.id]
        assert len(processes.of("ada", "does")) == 2

    run_with(tmp_path / "runs", Bounds(kept_per_user=2), scene)


@pytest.mark.usefixtures("programs")
def test_only_results_are_kept_and_not_more_than_the_bound_of_bytes(tmp_path: Path) -> None:
    place = tmp_path / "runs"

    async def scene(processes: SimulationProcesses) -> None:
        runs = []
        for user in ("ada", "bob", "eve"):
            runs.append(await ended(await processes.ask(user, "does", "", {"trace": "x" * 1000})))
            await gone(runs[-1].folder / "request.json")
        assert [each.bytes for each in runs] == [2, 2, 2]
        await gone(runs[0].folder)
        assert folders(place) == sorted(each.id for each in runs[1:])
        assert processes.of(None, "does") == runs[:0:-1]
        failed = await ended(await processes.ask("ada", "breaks", "", {}))
        await gone(failed.folder)
        await processes.close()
        assert folders(place) == []

    run_with(place, Bounds(kept_bytes=5), scene)


async def gone(path: Path) -> None:
    async with asyncio.timeout(60):
        while path.exists():
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("programs")
def test_one_that_is_cancelled_while_its_process_begins_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = asyncio.create_subprocess_exec
    begun: list[asyncio.subprocess.Process] = []

    async def scene(processes: SimulationProcesses) -> None:
        async def slow(*words: Any, **options: Any) -> asyncio.subprocess.Process:
            begun.append(await create(*words, **options))
            await processes.cancel(run)
            return begun[0]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
        run = await processes.ask("ada", "stays", "", {})
        await ended(run)
        async with asyncio.timeout(10):
            await begun[0].wait()

    run_with(tmp_path / "runs", Bounds(), scene)


@pytest.mark.usefixtures("programs")
def test_none_begins_before_its_request_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, may_write = simulation_processes._write_request, threading.Event()

    async def scene(processes: SimulationProcesses) -> None:
        first = await processes.ask("ada", "stays", "", {})

        def slow(run: SimulationRun, request: object) -> None:
            may_write.wait(60)
            write(run, request)

        monkeypatch.setattr(simulation_processes, "_write_request", slow)
        asking = asyncio.create_task(processes.ask("ada", "does", "", {}))
        await asyncio.sleep(0)
        with pytest.raises(TooMany, match="that wait"):  # it counts already
            await processes.ask("ada", "does", "", {})
        await processes.cancel(first)
        assert processes.of("ada", "does") == []
        may_write.set()
        assert (await ended(await asking)).state is RunState.DONE

    run_with(tmp_path / "runs", Bounds(waiting_per_user=1), scene)


@pytest.mark.usefixtures("programs")
def test_two_first_questions_lose_nothing_to_the_removal_of_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, remove = tmp_path / "runs", simulation_processes._remove
    (place / "left").mkdir(parents=True)

    def slow(folder: Path) -> None:
        if folder == place:
            time.sleep(0.2)
        remove(folder)

    monkeypatch.setattr(simulation_processes, "_remove", slow)

    async def scene(processes: SimulationProcesses) -> None:
        asked = [processes.ask(user, "stays", "", {}) for user in ("ada", "bob")]
        runs = await asyncio.gather(*asked)
        assert folders(place) == sorted(each.id for each in runs)

    run_with(place, Bounds(), scene)


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    said = {"trace": "Größe \ud800"}
    run = SimulationRun("1", "ada", "does", "", tmp_path / "1", 0)
    simulation_processes._write_request(run, said)
    assert simulation_processes.request_in(run.folder) == said
    assert "ö" in (run.folder / "request.json").read_text("utf-8", "surrogatepass")
