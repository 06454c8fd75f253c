"""A full disk: nothing is started, and what was set aside for it comes back by itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.core.stage import Strings
from trainmaster.config.limits import Limits
from trainmaster.daemon.disk_watch import (
    WHY,
    DiskWatch,
    Place,
    device_of,
    disk_events,
    free_at,
    looked,
)
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.launch_spec import Account
from trainmaster.model.units import GIB, MIB

LEAST = 4 * MIB


def told(world: Strings, free: int) -> list[e.Event]:
    found = [each.event for each in disk_events(world.state, free, LEAST)]
    world.tell(*found)
    return found


def test_devices_are_set_aside_while_the_disk_is_full_and_come_back() -> None:
    world = Strings("1x3").running("x", 1)
    disk, devices = AsideCause.DISK, range(3)
    world.tell(e.GpuSetAside(0, 2, "It fails all.", AsideCause.FAILURES))
    assert not told(world, LEAST)
    assert told(world, LEAST - 1) == [e.GpuSetAside(0, gpu, WHY, disk) for gpu in devices]
    assert not told(world, 0), "they are aside"
    assert not told(world, 2 * LEAST - 1), "not as soon as a little is free"
    assert told(world, 2 * LEAST) == [e.GpuReturned(0, gpu, disk) for gpu in devices]
    assert world.state.gpus_aside.keys() == {2}, "that one is not for the disk alone"


def test_checkpoints_on_another_disk_are_looked_at_once_for_all_its_jobs(tmp_path: Path) -> None:
    elsewhere, here = Place("/dev/shm", None), Place(str(tmp_path), None)
    missing = Place(str(tmp_path / "missing"), None)
    assert device_of(elsewhere) != device_of(here)
    places = {"1": elsewhere, "2": here, "3": elsewhere, "4": missing}
    free, shared = looked(tmp_path, places)
    assert free > 0
    assert list(shared) == [("1", "3")]
    assert free_at(missing) == 0


def test_a_place_is_looked_at_as_its_jobs_user() -> None:
    """Whether another's file is there is not found out by the notes of root's manager."""
    if os.geteuid() != 0:
        pytest.fail("This test looks at files as another user: run it as root.")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as closed:
        nobody = Account("nobody", 65534, 65534, "/")
        assert device_of(Place(closed, None)) is not None
        assert device_of(Place(f"{closed}/.", nobody)) is None
        assert free_at(Place(f"{closed}/.", nobody)) == 0
        assert device_of(Place(f"{closed}/.", None)) is not None, "root again"


def test_a_disk_that_is_nearly_full_is_said_with_the_jobs_that_write_there(tmp_path: Path) -> None:
    facts: list[object] = []
    driver = SimpleNamespace(
        controller=Strings("1x1").controller,
        site_limits=Limits(),
        inbox=SimpleNamespace(follow_up=facts.extend),
        jobs={},
    )
    disks = DiskWatch(driver, tmp_path)  # type: ignore[arg-type]
    disks.take(10 * GIB, {("1", "3"): 5 * MIB, ("7",): 9 * GIB})
    assert not facts
    assert disks.notes() == [
        "Only 5 MiB are free where jobs 1 and 3 write checkpoints (the limit disk_free): make room."
    ]
    disks.take(10 * GIB, {("7",): 9 * GIB})
    assert not disks.notes()
    disks.take(0, {})
    assert len(facts) == 1
