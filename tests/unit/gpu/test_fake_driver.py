"""The folder that plays the driver: what processes say is what it reads, and the dead have nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.gpu import fake_driver
from trainmaster.gpu.devices import detect_machine
from trainmaster.gpu.driver import FAKE_GPUS, Driver, DriverError, open_driver
from trainmaster.gpu.fake_driver import LEFT_BEHIND, MIB

ME = os.getpid()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Four H200 in two islands."""
    fake_driver.make_folder(tmp_path, gpus=4, islands=((0, 2), (1, 3)))
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return open_driver()


@pytest.fixture
def program(driver: Driver) -> Iterator[subprocess.Popen[str]]:
    """A program with 1 GiB on the first GPU, which goes on until its input ends."""
    uuid = driver.gpus()[0].uuid
    source = (
        "import sys\nfrom trainmaster.gpu import fake_driver\n"
        "fake_driver.allocate(1 << 30, util_ppm=300_000)\nprint('ready', flush=True)\nsys.stdin.read()"
    )
    env = os.environ | {"CUDA_VISIBLE_DEVICES": uuid}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", source], env=env, **pipes) as started:  # type: ignore[call-overload]
        assert started.stdout.readline() == "ready\n"
        yield started
        started.kill()


def test_a_machine_of_recorded_gpus_becomes_a_topology(driver: Driver) -> None:
    assert driver.version == "580.159.04"
    found = detect_machine()
    (node,) = found.topology.nodes
    assert (node.type.name, node.type.memory, node.gpus) == ("H200", 143_771 * MIB, 4)
    uuids = [gpu.uuid for gpu in driver.gpus()]
    assert found.devices == tuple(uuids[each] for each in (0, 2, 1, 3))
    assert node.islands == ((0, 1), (2, 3))


def test_what_programs_allocate_is_read_until_they_have_ended(
    driver: Driver, program: subprocess.Popen[str]
) -> None:
    uuid, idle = driver.gpus()[0].uuid, driver.readings()[1]
    fake_driver.allocate(2 << 30, [uuid], util_ppm=800_000)
    reading = driver.readings()[0]
    assert reading.memory_used == idle.memory_used + (3 << 30)
    assert reading.util_ppm == 1_000_000
    assert {(each.pid, each.memory, each.util_ppm) for each in driver.processes()} == {
        (ME, 2 << 30, 800_000),
        (program.pid, 1 << 30, 300_000),
    }
    program.communicate()
    assert {each.pid for each in driver.processes()} == {ME}
    assert fake_driver.state_of(program.pid) is None
    fake_driver.release()
    assert driver.readings()[0].memory_used == idle.memory_used


def test_a_number_that_is_used_again_is_another_process(driver: Driver, tmp_path: Path) -> None:
    fake_driver.allocate(MIB, [driver.gpus()[0].uuid])
    place = tmp_path / "processes" / f"{ME}.json"
    place.write_text(place.read_text().replace('"started": "', '"started": "9'))
    assert (driver.processes(), fake_driver.state_of(ME)) == ((), None)


def test_a_checkpointed_process_leaves_little_and_computes_nothing(
    driver: Driver, program: subprocess.Popen[str]
) -> None:
    """As an H200 had it: its process is not even listed."""
    fake_driver.set_state(program.pid, fake_driver.CHECKPOINTED)
    frozen, idle, *_ = driver.readings()
    assert frozen.memory_used == idle.memory_used + LEFT_BEHIND
    assert (frozen.util_ppm, driver.processes()) == (0, ())
    old, new = driver.gpus()[0].uuid, driver.gpus()[3].uuid
    fake_driver.move_memory(program.pid, {old: new})
    fake_driver.set_state(program.pid, fake_driver.RUNNING)
    assert [(each.uuid, each.memory) for each in driver.processes()] == [(new, 1 << 30)]


def test_more_than_is_left_is_refused(driver: Driver) -> None:
    uuid = driver.gpus()[0].uuid
    with pytest.raises(MemoryError, match="out of memory"):
        fake_driver.allocate(143_772 * MIB, [uuid])
    assert driver.processes() == ()


def test_faults_strike_the_calls_that_they_name(driver: Driver) -> None:
    fake_driver.add_fault("lock", pid=7, nth=2, code=801)
    fake_driver.add_fault("readings", nth=1)
    assert fake_driver.take_fault("lock", 7) is None
    assert fake_driver.take_fault("lock", 8) is None
    assert fake_driver.take_fault("unlock", 7) is None
    struck = fake_driver.take_fault("lock", 7)
    assert struck is not None
    assert (struck["does"], struck["code"]) == ("fail", 801)
    assert fake_driver.take_fault("lock", 7) is None
    with pytest.raises(DriverError, match="does not answer"):
        driver.readings()
    assert len(driver.readings()) == 4


def test_events_are_told_once_and_a_lost_gpu_says_why(driver: Driver) -> None:
    """Not seen on hardware."""
    uuid = driver.gpus()[2].uuid
    fake_driver.add_event(uuid, 79)
    assert [(each.uuid, each.kind, each.code) for each in driver.events()] == [(uuid, "xid", 79)]
    assert driver.events() == ()
    fake_driver.change_gpu(uuid, lost="GPU is lost")
    assert [each.trouble for each in driver.readings()] == ["", "", "GPU is lost", ""]


def test_slices_are_devices_of_their_own_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not seen on hardware."""
    mig = {1: ("1g.10gb", "1g.10gb", "2g.20gb")}
    fake_driver.make_folder(tmp_path, gpus=2, kind="H100", mig=mig)
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    found = detect_machine()
    assert [(node.type.name, node.gpus) for node in found.topology.nodes] == [
        ("H100", 1),
        ("H100-1g.10gb", 2),
        ("H100-2g.20gb", 1),
    ]
    assert [each.split("-")[0] for each in found.devices] == ["GPU", "MIG", "MIG", "MIG"]
    assert [each.util_ppm for each in open_driver().readings()] == [0, None, None, None]


def test_gpus_that_are_cut_up_into_nothing_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not seen on hardware."""
    fake_driver.make_folder(tmp_path, kind="H100", mig={0: ()})
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    with pytest.raises(DriverError, match="MIG mode and has no slices"):
        detect_machine()
    assert detect_machine("2").devices == ()


def test_a_folder_that_plays_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path / "none"))
    with pytest.raises(DriverError, match="plays no driver"):
        detect_machine()
