"""Which runs are clients of MPS, what they find in their environment, and which daemons they need."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.local import mps_clients, runfile
from trainmaster.engines.local.launchers import DEEPSPEED
from trainmaster.engines.local.mps_clients import MpsClients
from trainmaster.engines.local.mps_keeper import gpus_in_use, take_charge, unwatched
from trainmaster.engines.local.runfile import CgroupPlan
from trainmaster.engines.local.worker_environment import Host, mps_gpu, run_file
from trainmaster.gpu.mps import MpsPlace
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import GIB

HOST = Host(parse_shorthand("1x2"), ("GPU-a", "GPU-b"), CgroupPlan())
SPEC = LaunchSpec(("true",), "/", "/")
DAEMON = MpsPlace("GPU-b", Path("/tmp/pipes"), Path("/state/mps/GPU-b"))
HALF = Placement((Slice(0, 1, 500, 8 * GIB),), 3, Sharing.MPS)
BOTH = Placement((Slice(0, 0, 500, GIB), Slice(0, 1, 500, GIB)), 2, Sharing.MPS)


@pytest.mark.parametrize(
    ("placement", "spec", "host", "gpu"),
    [
        (HALF, SPEC, HOST, "GPU-b"),
        (replace(HALF, sharing=Sharing.TIME), SPEC, HOST, None),
        (replace(HALF, sharing=Sharing.EXCLUSIVE), SPEC, HOST, None),
        (BOTH, SPEC, HOST, None),
        (HALF, replace(SPEC, prefix=("docker", "run")), HOST, None),
        (HALF, replace(SPEC, launcher=DEEPSPEED), HOST, None),
        (HALF, SPEC, replace(HOST, uuids=()), None),
    ],
    ids=["half", "time", "exclusive", "two GPUs", "container", "DeepSpeed", "CPU slots"],
)
def test_a_client_has_one_gpu_of_its_own_kind(
    placement: Placement, spec: LaunchSpec, host: Host, gpu: str | None
) -> None:
    assert mps_gpu(placement, spec, host) == gpu


def mps_variables(spec: LaunchSpec, daemon: MpsPlace | None) -> dict[str, str]:
    file = run_file(Run("1", 1), HALF, spec, HOST, "/tmp/x.sock", 0, daemon)
    assert file.sharing == ("mps" if daemon else "")
    env = file.env | file.ranks[0].env
    return {name: value for name, value in env.items() if name.startswith("CUDA_MPS_")}


def test_a_client_finds_its_daemon_and_its_limits_and_others_find_nothing() -> None:
    assert mps_variables(SPEC, None) == {}
    assert mps_variables(SPEC, DAEMON) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/pipes",
        "CUDA_MPS_LOG_DIRECTORY": "/state/mps/GPU-b",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }


def test_an_owner_may_state_other_threads_but_no_other_memory() -> None:
    stated = (
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=99G"),
    )
    found = mps_variables(replace(SPEC, env=stated), DAEMON)
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"


def test_the_files_of_live_runs_say_which_daemons_are_in_use(tmp_path: Path) -> None:
    for name, daemon in (("client", DAEMON), ("other", None)):
        (tmp_path / name).mkdir()
        file = run_file(Run("1", 1), HALF, SPEC, HOST, "/tmp/x.sock", 0, daemon)
        runfile.write(str(tmp_path / name), file)
    folders = [str(tmp_path / name) for name in ("client", "other", "gone")]
    assert gpus_in_use(folders) == ["GPU-b"]
    by_number = replace(SPEC, launcher=DEEPSPEED)
    file = run_file(
        Run("1", 1), HALF, by_number, replace(HOST, numbers=(0, 1)), "/tmp/x.sock", 0, DAEMON
    )
    runfile.write(folders[0], file)
    assert gpus_in_use(folders) == ["GPU-b"], "its daemon would be ended under it"
    assert runfile.newest(folders[0]) == runfile.read(folders[0])


def test_others_go_on_while_it_waits_for_a_keeper_that_is_just_looking(tmp_path: Path) -> None:
    async def act() -> None:
        keeper = take_charge(tmp_path)
        assert keeper is not None
        clients = MpsClients(tmp_path, list, has_gpus=True)
        opening = asyncio.create_task(clients.open(str(tmp_path)))
        await asyncio.sleep(0)
        assert not opening.done()
        os.close(keeper)
        await opening
        assert take_charge(tmp_path) is None, "the lock is held now"
        await clients.close()

    asyncio.run(act())


def test_a_keeper_that_lets_go_late_hands_over_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else both would look after the daemons, and the keeper would end one under a run that starts."""
    monkeypatch.setattr(mps_clients, "TRIES", 1)

    async def act() -> None:
        keeper = take_charge(tmp_path)
        assert keeper is not None
        clients = MpsClients(tmp_path, list, has_gpus=True)
        await clients.open(str(tmp_path))
        os.close(keeper)
        clients.look()
        async with asyncio.timeout(10):
            while (charge := take_charge(tmp_path)) is not None:
                os.close(charge)
                clients.look()
                await asyncio.sleep(0.05)
        await clients.close()
        free = take_charge(tmp_path)
        assert free is not None
        os.close(free)

    asyncio.run(act())


def test_without_a_folder_of_live_runs_none_is_alive(tmp_path: Path) -> None:
    assert unwatched(tmp_path) == []


def test_without_the_control_program_a_remark_says_how_gpus_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (remark,) = MpsClients(tmp_path, list, has_gpus=True).remarks
    assert "not installed: jobs on parts of a GPU share it by time-slicing" in remark
    assert MpsClients(tmp_path, list, has_gpus=False).remarks == ()
