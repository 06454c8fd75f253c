"""What the local engine limits and hands over, and how it fares where the machine has no more to give."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.stage import (
    Stage,
    is_last,
    perform,
    placed,
    supervisors,
    until,
)
from trainmaster.engines.local import processes, runfile
from trainmaster.engines.local.cgroups import cgroup_name
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.worker_environment import rank_places, run_file
from trainmaster.model.actions import Kill, Launch
from trainmaster.model.engine_reports import Ended, Started
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, Ranks
from trainmaster.model.topology import parse_shorthand
from trainmaster_sdk.process_tree import descendants_by_scan

pytestmark = pytest.mark.live
RUN = Run("12", 1)


def python(stage: Stage, code: str, grace_ms: int = 20_000) -> LaunchSpec:
    return stage.recipe(sys.executable, "-S", "-c", code, grace_ms=grace_ms)


# -- limits ------------------------------------------------------------------------------------------------


def test_a_program_that_uses_more_memory_than_it_may_is_told_so(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        if not stage.engine.abilities.limits_memory:
            pytest.skip("this machine lets us limit no memory")
        recipe = replace(python(stage, "x = b'x' * (400 << 20); print('made it')"), memory=64 << 20)
        await stage.launch(RUN, recipe)
        over = await stage.ended(RUN)
        assert over.code != 0
        assert over.rank == 0
        assert "used more host memory than the 64 MiB" in over.why

    perform(tmp_path, act)


CHILDREN = """
import subprocess, sys, time
child = "import time; x = b'x' * (80 << 20); time.sleep(1)"
for process in [subprocess.Popen([sys.executable, "-S", "-c", child]) for _ in range(3)]:
    process.wait()
"""


def test_what_all_processes_of_a_program_have_is_counted_on_slots(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        if not stage.engine.abilities.limits_memory:
            pytest.skip("this machine lets us count no memory")
        await stage.launch(RUN, python(stage, CHILDREN))
        said = await stage.ended(RUN)
        assert said.code == 0
        assert said.peak_memory is not None
        assert said.peak_memory < 160 << 20
        assert said.rank_memory is not None
        assert 240 << 20 <= said.rank_memory < 320 << 20

    perform(tmp_path, act)


def test_a_program_gets_no_more_of_the_processors_than_it_may(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        if not stage.engine.abilities.limits_cpus:
            pytest.skip("this machine lets us limit no processors")
        script = "for f in $(cut -d: -f2,3 /proc/self/cgroup); do echo $f; done; sleep 600"
        recipe = replace(stage.shell(script), cpus=500)
        await stage.up(RUN, recipe)
        await until(lambda: b"/rank-0" in stage.log(RUN))
        assert isinstance(stage.engine, LocalEngine)
        plan = stage.engine.probed.plan
        name = "cpu.max" if plan.version == 2 else "cpu.cfs_quota_us"
        (quota,) = Path(plan.cpus_in).glob(f"trainmaster-*/rank-0/{name}")
        assert quota.read_text().split()[0] == "50000"
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)
        assert not quota.exists()

    perform(tmp_path, act)


MANY = "for i in $(seq 60); do sleep 600 & done; echo all; wait"


def test_a_run_has_no_more_processes_than_it_may(tmp_path: Path) -> None:
    """All its ranks together; and what it has started is found by that group from its first moment on."""

    def make(folder: Path) -> LocalEngine:
        return LocalEngine(folder, parse_shorthand("2x4"), most_pids=40)

    async def act(stage: Stage) -> None:
        assert isinstance(stage.engine, LocalEngine)
        base = stage.engine.probed.plan.pids_in
        if not base:
            pytest.skip("this machine lets us limit no processes")
        await stage.launch(RUN, replace(stage.shell(MANY), ranks=Ranks.PER_GPU), ranks=2)
        over = await stage.ended(RUN)
        assert over.code != 0
        said = stage.log(RUN, 0) + stage.log(RUN, 1)
        assert b"fork" in said
        assert b"all" not in said
        assert not stage.alive(RUN)
        name = cgroup_name(runfile.read(str(stage.engine.folder_of(RUN))).socket)
        assert not Path(base, name).exists()

    perform(tmp_path, act, make)


# -- what is handed over -------------------------------------------------------------------------------------


def test_one_rank_per_node_sees_all_devices_of_its_node() -> None:
    found = rank_places(placed(6), Ranks.PER_NODE)
    assert [(seat.rank, seat.world, seat.local_world, seat.node_rank) for seat in found] == [
        (0, 2, 1, 0),
        (1, 2, 1, 1),
    ]
    assert [seat.devices for seat in found] == [(0, 1, 2, 3), (4, 5)]


def test_gpus_are_named_by_uuid_and_not_frozen_by_stopping(tmp_path: Path) -> None:
    uuids = [f"GPU-{number}" for number in range(8)]
    engine = LocalEngine(tmp_path, parse_shorthand("2x4"), uuids)
    assert not engine.abilities.can_freeze
    assert any("suspended in memory" in remark for remark in engine.abilities.remarks)
    recipe = LaunchSpec(("true",), "/", "/")
    file = run_file(RUN, placed(3, first=2), recipe, engine.host, str(tmp_path / "s.sock"), 0)
    seen = [rank.env["CUDA_VISIBLE_DEVICES"] for rank in file.ranks]
    assert seen == ["GPU-2,GPU-3", "GPU-2,GPU-3", "GPU-4"]


def test_an_array_element_knows_its_index_and_when_it_must_end(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = replace(
            stage.shell("echo $TRAINMASTER_ARRAY_INDEX/$TRAINMASTER_ARRAY_SIZE; echo $MINE $RANK"),
            array_index=3,
            array_size=8,
            max_runtime_ms=3_600_000,
            env=(("MINE", "x"), ("RANK", "99")),
        )
        await stage.order(Launch(RUN, placed(1), 0), recipe)
        await stage.ended(RUN)
        assert stage.log(RUN) == b"3/8\nx 0\n"
        place, env = stage.engine.environment(RUN)
        assert (place, env["MINE"]) == (stage.workdir, "x")
        assert 3_000 < int(env["TRAINMASTER_END_TIME"]) - time.time() <= 3_600

    perform(tmp_path, act)


def test_nothing_but_the_last_report_is_an_end(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        runs = [Run(str(number), 1) for number in range(20)]
        for number, run in enumerate(runs):
            await stage.launch(run, stage.shell(f"exit {number % 3}"))
        for number, run in enumerate(runs):
            assert (await stage.ended(run)).code == number % 3
        for run in runs:
            assert [is_last(report) for report in stage.of(run)] == [False, True]
            assert isinstance(stage.of(run)[1], Ended)

    perform(tmp_path, act)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a disk of its own")
def test_a_full_disk_does_not_end_the_training_and_its_end_is_said_later(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True)

    async def act(stage: Stage) -> None:
        # The end of its journal holds the tail of its output: more than what is left of a page.
        script = "head -c 4000 /dev/zero | tr '\\0' x; echo; until [ -e go ]; do sleep 0.02; done"
        recipe = replace(stage.shell(f"{script}; echo lost; exit 6"), workdir=str(tmp_path))
        await stage.up(RUN, recipe)
        await until(lambda: len(stage.log(RUN)) > 4000)
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb") as file:
            file.write(bytes(1 << 20))
        (tmp_path / "go").touch()
        await until(lambda: not stage.alive(RUN))
        await asyncio.sleep(0.5)
        assert [type(report) for report in stage.of(RUN)] == [Started]
        assert supervisors(stage.engine.folder_of(RUN))
        filler.unlink()
        assert (await stage.ended(RUN)).code == 6

    try:
        perform(disk, act)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_descendants_are_found_with_and_without_the_kernels_list_of_children() -> None:
    script = "sleep 600 & sh -c 'sleep 600; true' & wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as parent:
        try:
            deadline = time.monotonic() + 60
            while len(descendants_by_scan(parent.pid)) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            found = processes.descendants(parent.pid)
            assert sorted(found) == sorted(descendants_by_scan(parent.pid))
            assert len(found) == 3
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
