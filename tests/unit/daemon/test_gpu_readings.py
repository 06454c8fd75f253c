"""What GPUs and runs use: added up from the driver's answers, whatever becomes of the driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.daemon.gpu_rows import gpu_rows, gpu_uses
from trainmaster.daemon.run_gpu_use import uses_of
from trainmaster.engines.protocol import Abilities
from trainmaster.gpu import fake_driver
from trainmaster.gpu.devices import machine_of, slot_topology
from trainmaster.gpu.driver import FAKE_GPUS, GpuProcess, Reading, open_driver
from trainmaster.gpu.watch import Look, Watch
from trainmaster.model.job import Run
from trainmaster.model.topology import Topology
from trainmaster.model.units import GIB

A, B = Run("1", 1), Run("2", 3)


@dataclass
class EngineOf:
    """An engine that knows whose processes these are."""

    topology: Topology
    runs: Mapping[int, Run] = field(default_factory=dict)
    abilities: Abilities = field(default_factory=lambda: Abilities(True, True, True))

    def run_of(self, pid: int) -> Run | None:
        return self.runs.get(pid)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineOf:
    """Three H200, the first two joined by NVLink, and this process a member of job 1."""
    fake_driver.make_folder(tmp_path, gpus=3, islands=((0, 1),))
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    machine = machine_of(open_driver().gpus(), "vm", 8_000, 64 * GIB)
    return EngineOf(machine.topology, {os.getpid(): A})


def readings_of(engine: EngineOf) -> GpuReadings:
    made = GpuReadings(engine)  # type: ignore[arg-type]
    made.every_s, made.again_s = 0.05, 0.05
    return made


def looked(engine: EngineOf) -> GpuReadings:
    made = readings_of(engine)
    asyncio.run(made.take(Watch(open_driver()).look()))
    return made


async def watched_until(readings: GpuReadings, is_so: Callable[[], bool]) -> None:
    task = asyncio.create_task(readings.watch())
    try:
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0.05)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_look_survives_the_way_between_processes(engine: EngineOf) -> None:
    fake_driver.allocate(GIB, util_ppm=5)
    fake_driver.add_event("GPU-x", 31)
    look = Watch(open_driver()).look()
    assert Look.from_json(look.to_json()) == look
    assert len(look.processes) == len(look.gpus) == 3


def test_the_processes_of_a_run_are_added_up() -> None:
    look = Look(
        readings=(Reading("x", util_ppm=900_000), Reading("y", util_ppm=700_000)),
        processes=(
            GpuProcess(11, "x", 2 * GIB, 400_000),
            GpuProcess(12, "x", 1 * GIB, 300_000),
            GpuProcess(12, "y", 1 * GIB, None),
            GpuProcess(21, "x", 5 * GIB, 200_000),
            GpuProcess(99, "y", 7 * GIB, None),
        ),
    )
    uses = uses_of(look, {11: A, 12: A, 21: B, 99: None})
    assert set(uses) == {A, B}
    assert uses[A].memory == {"x": 3 * GIB, "y": GIB}
    assert (uses[A].total_memory, uses[A].most_memory, uses[A].processes) == (4 * GIB, 3 * GIB, 2)
    assert uses[A].util_ppm == {"x": 700_000, "y": None}, "beside a stranger nobody knows"
    assert (uses[A].mean_util_ppm, uses[B].mean_util_ppm) == (None, 200_000)


def test_a_run_that_is_alone_on_its_gpu_computes_as_much_as_the_gpu() -> None:
    look = Look(
        readings=(Reading("x", util_ppm=900_000),),
        processes=(GpuProcess(11, "x", GIB), GpuProcess(12, "x", GIB)),
    )
    assert uses_of(look, {11: A, 12: A})[A].mean_util_ppm == 900_000


def test_where_processes_have_numbers_of_another_machine_a_run_alone_has_all_that_its_gpu_uses() -> (
    None
):
    """As in a container without the host's process numbers."""
    look = Look(
        readings=(
            *(Reading("x", 80 * GIB, 9 * GIB, 400_000), Reading("y", 80 * GIB, 9 * GIB, 400_000)),
            *(Reading("z", 80 * GIB, 9 * GIB, 400_000), Reading("idle", 80 * GIB, 4 << 20, 0)),
        ),
        processes=(GpuProcess(4_000_001, "x", 8 * GIB), GpuProcess(99, "z", 8 * GIB)),
    )
    holders = {"x": [A], "y": [A, B], "z": [B], "idle": [A]}
    (use,) = uses_of(look, {99: None}, holders).values()
    assert (use.run, use.memory, use.mean_util_ppm) == (A, {"x": 9 * GIB}, 400_000)


def test_rows_say_what_was_read_and_which_devices_are_near(engine: EngineOf) -> None:
    uuids = engine.topology.uuids
    fake_driver.allocate(2 * GIB, uuids[:1], util_ppm=250_000)
    readings = looked(engine)
    rows = gpu_rows(readings, engine.topology)
    idle = rows[1].memory_used_bytes
    assert idle is not None
    assert (rows[0].memory_used_bytes, rows[0].util) == (2 * GIB + idle, 0.25)
    assert [row.nvlink for row in rows.values()] == [("vm:1",), ("vm:0",), ()]
    (use,) = gpu_uses(readings.of_run(A), engine.topology)
    assert (use.device, use.memory_bytes, use.util) == ("vm:0", 2 * GIB, 0.25)
    assert gpu_uses(readings.of_run(B), engine.topology) == ()


def test_what_happens_to_gpus_is_said(engine: EngineOf) -> None:
    """XID and ECC events, and GPUs that fall off the bus: not seen on hardware."""
    watch, readings = Watch(open_driver()), readings_of(engine)
    uuids = engine.topology.uuids
    fake_driver.add_event(uuids[0], 79)
    fake_driver.change_gpu(uuids[0], lost="GPU is lost")
    fake_driver.change_gpu(uuids[1], ecc_errors=2)
    heard: list[GpuReadings] = []
    readings.listeners.append(heard.append)
    asyncio.run(readings.take(watch.look()))
    assert heard == [readings]
    assert readings.notes() == [
        "GPU vm:0 does not answer (GPU is lost): reset the GPU or restart the machine.",
        "GPU vm:0 reported XID 79 (1 event).",
        "GPU vm:1 has had 2 uncorrected memory errors (ECC).",
    ]
    rows = gpu_rows(readings, engine.topology)
    assert (rows[0].trouble, rows[0].memory_bytes, rows[0].last_xid) == ("GPU is lost", None, 79)
    assert (rows[2].trouble, rows[2].xid_events) == (None, 0)


def test_programs_that_are_no_jobs_are_said(engine: EngineOf) -> None:
    engine.runs = {}
    fake_driver.allocate(2 * GIB, engine.topology.uuids[:1])
    fake_driver.allocate(1 << 20, engine.topology.uuids[1:2])
    (note,) = looked(engine).notes()
    assert note == f"GPU vm:0 has 2.0 GiB in use outside of jobs: process {os.getpid()}."


def test_what_fails_after_a_look_is_said_and_does_not_end_the_watching(engine: EngineOf) -> None:
    readings, heard = readings_of(engine), list[GpuReadings]()

    def fail(now: GpuReadings) -> None:
        raise ValueError("of no type")

    readings.listeners += [fail, heard.append]
    asyncio.run(watched_until(readings, lambda: len(heard) > 1))
    assert readings.trouble == ""
    (note,) = readings.notes()
    assert (
        note == "What is read of GPUs is not used (ValueError: of no type): manager.log says more."
    )


def test_a_machine_that_does_not_know_its_processes_does_not_know_what_runs_use(
    engine: EngineOf,
) -> None:
    uuids = engine.topology.uuids
    fake_driver.allocate(GIB, uuids[:1])
    look = Watch(open_driver()).look()
    readings = readings_of(engine)
    asyncio.run(readings.take(look))
    assert readings.blindness(uuids) == ""
    elsewhere = tuple(replace(each, pid=(1 << 22) + 1) for each in look.processes)
    asyncio.run(readings.take(replace(look, processes=elsewhere)))
    assert (
        readings.blindness(uuids[:1]) == "the driver does not name processes as this machine does"
    )
    assert readings.blindness(uuids[1:]) == ""


def test_a_driver_that_fails_is_said_and_read_again(engine: EngineOf) -> None:
    fake_driver.add_fault("readings", code=15)
    readings = readings_of(engine)
    asyncio.run(watched_until(readings, lambda: bool(readings.trouble)))
    (note,) = readings.notes()
    assert note.startswith("GPUs are not read: the GPU driver does not answer (error 15")
    assert gpu_rows(readings, engine.topology)[0].memory_bytes is None
    fake_driver.clear_faults()
    asyncio.run(watched_until(readings, lambda: not readings.trouble and bool(readings.look.gpus)))
    assert readings.notes() == []


def test_a_driver_that_hangs_is_said_and_asked_by_a_new_process(engine: EngineOf) -> None:
    fake_driver.add_fault("readings", "hang", nth=1)
    readings = readings_of(engine)
    readings.silence_s = 2.0
    said: list[str] = []
    readings.listeners.append(lambda now: said.append(now.trouble))
    asyncio.run(watched_until(readings, lambda: bool(readings.look.gpus)))
    assert said[0] == "the GPU driver has not answered for 2 s"
    assert said[-1] == ""


def test_cpu_slots_are_not_watched() -> None:
    readings = readings_of(EngineOf(slot_topology(1, 2, "vm", 2_000, GIB)))
    asyncio.run(asyncio.wait_for(readings.watch(), 60))
    assert (readings.notes(), gpu_rows(readings, slot_topology(1, 2, "vm", 2_000, GIB))) == ([], {})
