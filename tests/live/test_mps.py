"""Runs that share a GPU by MPS, with a program that plays NVIDIA's control program."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, of_folder
from tests.live.daemons import until as until_true
from tests.live.stage import Stage, perform, until
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.gpu.fake_driver import make_folder
from trainmaster.gpu.mps import CONTROL, PID, MpsDaemons
from trainmaster.model.actions import Kill, Launch
from trainmaster.model.engine_reports import Ended, Lost, Started
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import GIB

pytestmark = pytest.mark.live
FAKE = Path(__file__).parents[1] / "fixtures" / "mps"
SOURCE = Path(__file__).parents[2] / "src"
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


def test_a_daemon_ends_with_its_last_run_also_without_a_manager(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("env | grep CUDA_; sleep 600")
        await stage.order(Launch(Run("1", 1), HALF, 0), recipe)
        await stage.heard(Run("1", 1), Started)
        await until(lambda: daemon_of(stage))
        await stage.engine.close()
        keeper = await until(lambda: alive_keepers(tmp_path))
        assert daemon_of(stage) is not None
        assert stage.engine.cancel_unwatched(Run("1", 1))
        await until(lambda: not alive_keepers(tmp_path))
        assert daemon_of(stage) is None
        assert len(keeper) == 1

    perform(tmp_path, act, partial(one_gpu))


def alive_keepers(folder: Path) -> list[int]:
    """Processes that look after the daemons of this folder."""
    words = f"mps_keeper\0{folder}\0".encode()
    return [
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if words in content_of(each)
    ]


def content_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


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


PROGRAM = """
import os, sys, time
from trainmaster.gpu import fake_driver
fake_driver.allocate(int(sys.argv[1]) << 30, mps="CUDA_MPS_PIPE_DIRECTORY" in os.environ)
while True:
    fake_driver.step(0.1)
"""


def test_jobs_share_a_gpu_through_the_manager_by_mps_or_by_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two halves by MPS, beside each other; two by time-slicing, of which one takes too much."""
    monkeypatch.setenv(
        "TRAINMASTER_FAKE_GPUS", str(make_folder(tmp_path / "gpus", 2, memory=16 * GIB))
    )
    (tmp_path / "train.py").write_text(PROGRAM)
    daemons = tmp_path / "data" / "mps"

    def half(gib: int, **more: object) -> str:
        command = [sys.executable, str(tmp_path / "train.py"), str(gib)]
        env = {"PYTHONPATH": str(SOURCE), "TRAINMASTER_FAKE_GPUS": str(tmp_path / "gpus")}
        return manager.submit(command=command, gpus=0.5, env=env, **more)

    with live(tmp_path / "data") as manager:
        clients = half(2), half(2)
        first, second = [manager.until_state(each, "running") for each in clients]
        assert first["devices"] == second["devices"]
        assert manager.job(clients[0])["memory_enforced"] == "8.0 GiB, enforced by MPS"
        assert manager.job(clients[0])["shared_by"] == "MPS"
        assert told(manager, clients[0], "sharing its GPU by MPS")
        assert len(list(daemons.glob("*/pid"))) == 1

        modest, greedy = half(2, sharing="time"), half(12, sharing="time")
        story = until_true(
            lambda: told(manager, greedy, "Stopped because"), "the greedy one to be stopped"
        )
        assert (
            "used 12.0 GiB of the 8.0 GiB it had booked on a GPU that it shares with job" in story
        )
        assert manager.job(modest)["memory_enforced"] == "8.0 GiB, enforced by watching"
        assert manager.job(modest)["shared_by"] == "time-slicing"
        assert told(manager, modest, "sharing its GPU by time-slicing")
        manager.until_state(greedy, "suspended")
        assert manager.job(modest)["state"] == "running"

        for job in (*clients, modest, greedy):
            manager.call("POST", f"/api/v1/jobs/{job}/cancel")
        until_true(lambda: not list(daemons.glob("*/pid")), "the MPS daemon to end")
        until_true(lambda: not runs_of(tmp_path), "all to end")
        assert manager.stop() == 0
        assert not of_folder(tmp_path / "data")


def told(manager: LiveDaemon, job: str, words: str) -> str:
    """The first sentence of its story with these words; empty if none has them."""
    entries = manager.call("GET", f"/api/v1/jobs/{job}/story")["story"]
    return next((each["sentence"] for each in entries if words in each["sentence"]), "")


def runs_of(folder: Path) -> list[int]:
    """Processes of the program."""
    return of_folder(folder / "train.py")
