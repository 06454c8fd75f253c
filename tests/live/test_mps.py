"""Runs that share a GPU by MPS, with a program that plays NVIDIA's control program."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.live.stage import Stage, perform, until
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.gpu.mps import CONTROL, PID, MpsDaemons
from trainmaster.model.actions import Kill, Launch
from trainmaster.model.engine_reports import Ended, Lost, Started
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import GIB

pytestmark = pytest.mark.live
FAKE = Path(__file__).parents[1] / "fixtures" / "mps"
GPU = "GPU-a"
HALF = Placement((Slice(0, 0, 500, 8 * GIB),), 3, Sharing.MPS)


def one_gpu(folder: Path) -> LocalEngine:
    return LocalEngine(folder, parse_shorthand("1x1"), (GPU,))


def daemon_of(stage: Stage) -> int | None:
    """Its process, once it is written down."""
    pipes = next(iter(env_of(stage, "CUDA_MPS_PIPE_DIRECTORY")), "/nowhere")
    found = MpsDaemons(stage.folder / "mps", Path(pipes).parent, CONTROL).pid(GPU)
    pid = stage.folder / "mps" / GPU / PID
    return found if pid.exists() and pid.read_text() == str(found) else None


def env_of(stage: Stage, name: str) -> list[str]:
    """What runs 1 and 2 printed of their environment."""
    lines = [line for job in "12" for line in stage.log(Run(job, 1)).decode().splitlines()]
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


@pytest.fixture(autouse=True)
def _control_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{FAKE}:{os.environ['PATH']}")


def test_a_daemon_lives_as_long_as_runs_share_its_gpu(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("env | grep CUDA_; sleep 600")
        for job in "12":
            await stage.order(Launch(Run(job, 1), HALF, 0), recipe)
            await stage.heard(Run(job, 1), Started)
        await until(lambda: len(env_of(stage, "CUDA_MPS_PIPE_DIRECTORY")) == 2)
        assert len(set(env_of(stage, "CUDA_MPS_PIPE_DIRECTORY"))) == 1
        assert env_of(stage, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") == ["0=8192M"] * 2
        assert env_of(stage, "CUDA_VISIBLE_DEVICES") == [GPU] * 2
        first = daemon_of(stage)
        assert first is not None

        os.kill(first, signal.SIGKILL)
        second = await until(lambda: daemon_of(stage) if daemon_of(stage) != first else None)

        await stage.order(Kill(Run("1", 1)), recipe)
        await stage.ended(Run("1", 1))
        await stage.engine.close()  # jobs go on, and so does their daemon
        assert daemon_of(stage) == second

        async with stage.another() as again:
            await again.engine.observe({Run("2", 1): 1})
            assert daemon_of(again) == second
            await again.order(Kill(Run("2", 1)), recipe)
            await again.ended(Run("2", 1))
            await until(lambda: not (tmp_path / "mps" / GPU / PID).exists())
            assert daemon_of(again) is None

    perform(tmp_path, act, partial(one_gpu))


def test_where_the_daemon_does_not_start_a_run_shares_by_time_slicing_and_it_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "mps" / GPU).mkdir(parents=True)
    (tmp_path / "mps" / GPU / "refuse").touch()

    async def act(stage: Stage) -> None:
        await stage.order(Launch(Run("1", 1), HALF, 0), stage.shell("env | grep CUDA_"))
        await stage.ended(Run("1", 1))
        assert env_of(stage, "CUDA_VISIBLE_DEVICES") == [GPU]
        assert not env_of(stage, "CUDA_MPS_PIPE_DIRECTORY")
        (trouble,) = stage.engine.troubles()
        assert "MPS is not supported on this system. Its jobs share it by time" in trouble

    perform(tmp_path, act, partial(one_gpu))


def test_a_neighbour_that_a_fault_takes_down_is_lost_and_not_blamed(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        fail, go = "echo 'CUDA error: unspecified launch failure'; exit 1", stage.workdir / "go"
        wait = f"while [ ! -e {go} ]; do sleep 0.05; done; {fail}"
        for job, script in (("1", fail), ("2", wait)):
            await stage.order(Launch(Run(job, 1), HALF, 0), stage.shell(script))
        first = await stage.heard(Run("1", 1), Ended)
        go.touch()
        second = await stage.heard(Run("2", 1), Lost)
        assert first.code == 1
        assert "A fault of job 1 ended it as well" in second.why

    perform(tmp_path, act, partial(one_gpu))
