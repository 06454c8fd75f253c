"""Runs open the GPUs that they were given and no others: real control groups of both versions, and device
files with the numbers of GPUs, which need no driver. Where nothing refuses, the kernel says ENXIO."""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.contract.frozen_runs import driver_kit, frozen_run
from tests.contract.frozen_runs import until as wait_until
from tests.live.stage import Stage, perform, placed, until
from trainmaster.engines.local import cgroup_probe, runfile
from trainmaster.engines.local.cgroups import cgroup_name
from trainmaster.engines.local.device_filter import MAJOR
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.runfile import CgroupPlan
from trainmaster.gpu import fake_driver
from trainmaster.model.actions import Kill, Reshape
from trainmaster.model.engine_reports import Lost
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.topology import parse_shorthand

pytestmark = pytest.mark.live
RUN = Run("12", 1)
ONE, OTHER, CONTROL = 247, 248, 255
MINORS = (ONE, OTHER)
REFUSED = errno.EPERM
TRYING = f"""
import os
def tried():
    found = []
    for minor in {(*MINORS, CONTROL)}:
        try:
            os.close(os.open(os.environ["NODES"] + "/" + str(minor), os.O_RDWR))
            found.append(0)
        except OSError as problem:
            found.append(problem.errno)
    return found
"""
"""What the kernel answers for each of the files."""
IN_RANK_AND_CHILD = (
    TRYING
    + """
import time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, str(tried()).encode())
    os._exit(0)
print(tried(), os.read(read, 1000).decode(), os.environ["TRAINMASTER_RESTART_COUNT"], flush=True)
time.sleep(600)
"""
)


@dataclass(frozen=True)
class Files:
    folder: Path
    open: int
    """What the kernel answers outside of every filter."""

    def own(self, minor: int) -> list[int]:
        """What a run that has this GPU alone is answered."""
        return [self.open if each in (minor, CONTROL) else REFUSED for each in (*MINORS, CONTROL)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    if os.geteuid() != 0:
        pytest.fail("This test makes device files and control groups: run it as root.")
    folder = tmp_path / "nodes"
    folder.mkdir()
    try:
        for minor in (*MINORS, CONTROL):
            os.mknod(folder / str(minor), stat.S_IFCHR | 0o666, os.makedev(MAJOR, minor))
        os.close(os.open(folder / str(ONE), os.O_RDWR))
    except OSError as problem:
        if problem.errno != errno.ENXIO:
            pytest.fail(
                "This test makes and opens device files, which this machine does not let us"
                f" ({problem.strerror}): run it where mknod works, on a file system without nodev."
            )
        return Files(folder, errno.ENXIO)
    return Files(folder, 0)


@pytest.fixture(params=[2, 1])
def plan(request: pytest.FixtureRequest, files: Files) -> CgroupPlan:
    unified, old = cgroup_probe.hierarchies()
    bases = (unified, "") if request.param == 2 else ("", old.get("devices", ""))
    base, version = cgroup_probe.filter_group(*bases)
    if request.param == 1 and "devices" not in old:
        pytest.skip("this machine has no control groups of version 1 for devices")
    if not base:
        pytest.fail(
            f"This machine filters no devices by control groups of version {request.param}, so that half of"
            " the filter was not tested: run it where root may make groups, in a privileged container say."
        )
    return replace(cgroup_probe.probe().plan, devices_in=base, devices_version=version)


def trying(stage: Stage, files: Files) -> LaunchSpec:
    recipe = stage.recipe(sys.executable, "-S", "-c", IN_RANK_AND_CHILD)
    return replace(recipe, env=(("NODES", str(files.folder)),))


@pytest.mark.parametrize("memory", [None, 256 << 20], ids=["", "in groups of its ranks"])
def test_a_run_opens_its_own_gpus_and_no_others_until_it_is_reshaped(
    tmp_path: Path, plan: CgroupPlan, files: Files, memory: int | None
) -> None:
    def make(folder: Path) -> LocalEngine:
        uuids = [f"GPU-{minor}" for minor in MINORS]
        engine = LocalEngine(folder, parse_shorthand("1x2"), uuids, minors=MINORS)
        engine.host = replace(engine.host, cgroups=plan)
        return engine

    async def act(stage: Stage) -> None:
        recipe = replace(trying(stage, files), memory=memory)
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN).count(b"\n") == 1)
        await stage.order(Reshape(RUN, placed(1, first=1)), recipe)
        await until(lambda: stage.log(RUN).count(b"\n") == 2)
        one, other = files.own(ONE), files.own(OTHER)
        assert stage.log(RUN).decode() == f"{one} {one} 0\n{other} {other} 1\n"
        assert isinstance(stage.engine, LocalEngine)
        socket = runfile.read(str(stage.engine.folder_of(RUN))).socket
        group = Path(plan.devices_in, cgroup_name(socket))
        assert group.exists()
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)
        await until(lambda: not group.exists())

    perform(tmp_path, act, make)


def test_on_cpu_slots_of_a_machine_with_gpus_a_run_opens_none(
    tmp_path: Path, plan: CgroupPlan, files: Files
) -> None:
    def make(folder: Path) -> LocalEngine:
        engine = LocalEngine(folder, parse_shorthand("1x2"), minors=())
        engine.host = replace(engine.host, cgroups=plan)
        return engine

    async def act(stage: Stage) -> None:
        recipe = trying(stage, files)
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN).count(b"\n") == 1)
        none = [REFUSED, REFUSED, files.open]
        assert stage.log(RUN).decode() == f"{none} {none} 0\n"
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)

    perform(tmp_path, act, make)


def test_a_run_that_is_thawed_on_another_gpu_opens_that_one(
    tmp_path: Path, plan: CgroupPlan, files: Files
) -> None:
    gpus = tmp_path / "gpus"
    kit = driver_kit(gpus)
    told = tmp_path / "told"
    look = f"""
{TRYING}
on_gpu = step
def step():
    on_gpu()
    with open({str(told)!r} + "~", "w") as file: file.write(str(tried()))
    os.replace({str(told)!r} + "~", {str(told)!r})
"""
    kit = replace(
        kit,
        prepare=kit.prepare + look,
        env={**kit.env, "NODES": str(files.folder)},
        more={"cgroups": replace(plan, minors=(ONE,))},
    )
    second = fake_driver.FakeDriver(gpus).gpus()[1].uuid
    (tmp_path / "run").mkdir()
    with frozen_run(tmp_path / "run", kit) as run:
        assert wait_until(lambda: told.exists() and told.read_text()) == str(files.own(ONE))
        run.freeze()
        told.unlink()
        assert run.thaw(devices=[second], minors=[OTHER])["what"] == "thawed"
        assert wait_until(lambda: told.exists() and told.read_text()) == str(files.own(OTHER))


def test_a_run_that_cannot_be_kept_to_its_gpus_is_not_started_and_not_at_fault(
    tmp_path: Path,
) -> None:
    """A folder that is not of the kernel stands in for groups without a filter."""

    async def act(stage: Stage) -> None:
        assert isinstance(stage.engine, LocalEngine)
        plan = CgroupPlan(devices_in=str(tmp_path / "groups"), devices_version=1)
        stage.engine.host = replace(stage.engine.host, cgroups=plan, minors=())
        await stage.launch(RUN, stage.shell("touch made"))
        lost = await stage.heard(RUN, Lost)
        assert "could not be kept to its own GPUs: no such file" in lost.why
        assert not (stage.workdir / "made").exists()

    perform(tmp_path, act)
