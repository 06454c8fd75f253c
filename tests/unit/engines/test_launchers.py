"""What launchers are told: torchrun by variables, accelerate and deepspeed by flags before the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import cluster
from tests.live.stage import placed
from trainmaster.config.command_line import launcher_of
from trainmaster.engines.local import launchers
from trainmaster.engines.local.launchers import Meeting
from trainmaster.engines.local.rank_places import rank_places
from trainmaster.engines.local.runfile import CgroupPlan
from trainmaster.engines.local.worker_environment import Host, run_file
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, Ranks

ACCELERATE = "--num_processes 3 --num_machines 1 --main_process_port 4711"


def told(command: str | tuple[str, ...]) -> str:
    (place,) = rank_places(placed(3), Ranks.PER_NODE)
    words = ("/bin/sh", "-c", command) if isinstance(command, str) else command
    *_, last = found = launchers.with_flags(
        words, launcher_of(command), place, Meeting("127.0.0.1", "4711")
    )
    return last if isinstance(command, str) else " ".join(found)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("accelerate", "launch", "--mixed_precision", "bf16", "launch", "x"),
         f"accelerate launch {ACCELERATE} --mixed_precision bf16 launch x"),
        (("python", "-m", "accelerate.commands.launch", "t.py"),
         f"python -m accelerate.commands.launch {ACCELERATE} t.py"),
        ("cd code && accelerate launch t.py", f"cd code && accelerate launch {ACCELERATE} t.py"),
        ("A=1 x; exec /opt/bin/accelerate-launch t.py",
         f"A=1 x; exec /opt/bin/accelerate-launch {ACCELERATE} t.py"),
        ("pip install deepspeed; deepspeed t.py --deepspeed d.json",
         "pip install deepspeed; deepspeed --master_port 4711 t.py --deepspeed d.json"),
        (("/opt/bin/deepspeed", "--master_port", "9", "t.py"),
         "/opt/bin/deepspeed --master_port 4711 --master_port 9 t.py"),
        ("torchrun t.py", "torchrun t.py"),
        ("python t.py --launcher accelerate launch", "python t.py --launcher accelerate launch"),
    ],
)  # fmt: skip
def test_flags_come_before_those_of_the_user(command: str | tuple[str, ...], expected: str) -> None:
    assert told(command) == expected


def environment(
    tmp_path: Path,
    command: tuple[str, ...],
    ranks: Ranks,
    minors: tuple[int, ...] | None = None,
    nodes: str = "2x4",
    speeds: tuple[tuple[str, int], ...] = (),
) -> dict[str, str]:
    uuids = tuple(f"GPU-{number}" for number in range(8))
    host = Host(cluster(nodes), uuids, CgroupPlan(), tuple(range(10, 18)), minors=minors)
    launcher = launcher_of(command)
    spec = LaunchSpec(command, "/", "/", ranks=ranks, launcher=launcher, speeds=speeds)
    file = run_file(Run("1", 1), placed(2, first=2), spec, host, str(tmp_path / "s"), 0)
    return file.env | file.ranks[0].env


def test_deepspeed_gets_numbers_because_it_cannot_read_uuids(tmp_path: Path) -> None:
    found = environment(tmp_path, ("deepspeed", "t.py"), Ranks.PER_NODE)
    assert found["CUDA_VISIBLE_DEVICES"] == "12,13"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_where_a_run_may_open_its_own_gpus_alone_cuda_counts_no_others(tmp_path: Path) -> None:
    found = environment(tmp_path, ("deepspeed", "t.py"), Ranks.PER_NODE, tuple(range(8)))
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1"
    uuids = environment(tmp_path, ("python", "t.py"), Ranks.PER_NODE, tuple(range(8)))
    assert uuids["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-3"


def test_the_processes_of_a_launcher_share_its_cores(tmp_path: Path) -> None:
    alone = environment(tmp_path, ("python", "t.py"), Ranks.PER_NODE)
    launched = environment(tmp_path, ("torchrun", "t.py"), Ranks.PER_NODE)
    each = environment(tmp_path, ("python", "t.py"), Ranks.PER_GPU)
    assert launched["OMP_NUM_THREADS"] == each["OMP_NUM_THREADS"]
    assert int(alone["OMP_NUM_THREADS"]) == 2 * int(each["OMP_NUM_THREADS"])
    assert launched["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-3"
    assert launched["PET_MASTER_PORT"] == launched["MASTER_PORT"]
    assert not [name for name in each if name.startswith("PET_")]


@pytest.mark.parametrize(
    ("command", "ranks", "expected"),
    [
        (("python", "t.py"), Ranks.PER_GPU, "500000"),
        (("python", "t.py"), Ranks.PER_NODE, "1000000"),
        (("torchrun", "t.py"), Ranks.PER_NODE, "500000"),
    ],
)
def test_each_rank_knows_the_speed_of_its_devices(
    tmp_path: Path, command: tuple[str, ...], ranks: Ranks, expected: str
) -> None:
    """Of all together, or of one where a launcher starts a process for each."""
    found = environment(tmp_path, command, ranks, nodes="rack r1: n1[4slow] n2[4slow]")
    assert found["TRAINMASTER_SPEED"] == expected
    told = environment(tmp_path, command, ranks, speeds=(("n0", 500_000),))
    assert told["TRAINMASTER_SPEED"] == expected, (
        "as the manager says, where the node does not know"
    )
