"""What NVML answers, as our values; and a recording of its answers, played again."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from trainmaster.gpu.driver import DriverError, GpuEvent
from trainmaster.gpu.fake_driver import recording
from trainmaster.gpu.nvml import NvmlDriver
from trainmaster.gpu.record import PHASES, ReplayedNvml, record
from trainmaster.gpu.watch import Watch
from trainmaster.model.units import GIB

LOST = pynvml.NVML_ERROR_GPU_IS_LOST


def handle(address: int) -> Any:
    return ctypes.cast(ctypes.c_void_p(address), pynvml.c_nvmlDevice_t)


def number_of(one: Any) -> int:
    return (ctypes.cast(one, ctypes.c_void_p).value or 0) // 16 - 1


class TwoGpus:
    """NVML with two GPUs that NVLink joins, the second cut into two slices if that is said.

    Not seen on hardware: the answers are NVIDIA's documented ones.
    """

    def __init__(self, has_slices: bool = False) -> None:
        self.has_slices = has_slices
        self.lost: set[int] = set()
        self.events: list[tuple[int, int]] = []
        self.processes: dict[int, list[tuple[int, int | None]]] = {}
        self.samples: dict[int, list[tuple[int, int, int]]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(pynvml, name)
        if name.startswith("nvml") and callable(found):

            def refuse(*said: Any) -> Any:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

            return refuse
        return found

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:
        return handle(16 * (number + 1))

    def _ask(self, one: Any) -> int:
        number = number_of(one)
        if number in self.lost:
            raise pynvml.NVMLError(LOST)
        return number

    def nvmlDeviceGetName(self, one: Any) -> str:
        return "NVIDIA H100 80GB HBM3" + (" MIG 1g.10gb" if self._ask(one) > 1 else "")

    def nvmlDeviceGetUUID(self, one: Any) -> str:
        number = self._ask(one)
        return f"MIG-{number}" if number > 1 else f"GPU-{number}"

    def nvmlDeviceGetMemoryInfo(self, one: Any, version: int | None = None) -> Any:
        total = 10 * GIB if self._ask(one) > 1 else 80 * GIB
        return SimpleNamespace(total=total, used=GIB, free=total - GIB)

    def nvmlDeviceGetMinorNumber(self, one: Any) -> int:
        if self._ask(one) > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return 1 - number_of(one)

    def nvmlDeviceGetMigMode(self, one: Any) -> list[int]:
        return [int(self.has_slices and self._ask(one) == 1)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, one: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, one: Any, place: int) -> Any:
        if place > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle(16 * (3 + place))

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, what: int) -> int:
        return int(pynvml.NVML_P2P_STATUS_OK)

    def nvmlDeviceGetUtilizationRates(self, one: Any) -> Any:
        if self._ask(one) > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=37, memory=11)

    def nvmlDeviceGetTemperature(self, one: Any, what: int) -> int:
        return 40 + self._ask(one)

    def nvmlDeviceGetPowerUsage(self, one: Any) -> int:
        return 123_400

    def nvmlDeviceGetComputeRunningProcesses(self, one: Any) -> list[Any]:
        rows = self.processes.get(self._ask(one), [])
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in rows]

    def nvmlDeviceGetProcessUtilization(self, one: Any, since: int) -> list[Any]:
        rows = self.samples.get(self._ask(one))
        if not rows:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=sm) for pid, at, sm in rows]

    def nvmlEventSetCreate(self) -> Any:
        return handle(4096)

    def nvmlDeviceRegisterEvents(self, one: Any, kinds: int, into: Any) -> None:
        self._ask(one)

    def nvmlEventSetWait_v2(self, events: Any, timeout_ms: int) -> Any:
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        kind, data = self.events.pop(0)
        return SimpleNamespace(device=handle(16), eventType=kind, eventData=data)


def test_gpus_say_what_they_are_and_whom_they_reach() -> None:
    one, other = NvmlDriver(TwoGpus()).gpus()
    assert (one.kind, one.uuid, one.memory) == ("H100", "GPU-0", 80 * GIB)
    assert (one.near, one.linked, other.linked) == ({0, 1}, {1}, {0})
    assert (one.minor, other.minor) == (1, 0), "not in the order of the bus"


def test_a_reading_has_what_the_driver_says_and_nothing_where_it_says_nothing() -> None:
    reading = NvmlDriver(TwoGpus()).readings()[1]
    assert (reading.memory_total, reading.memory_used) == (80 * GIB, GIB)
    assert (reading.util_ppm, reading.temperature_c, reading.power_w) == (370_000, 41, 123)
    assert (reading.power_limit_w, reading.ecc_errors, reading.trouble) == (None, None, "")


def test_slices_stand_in_for_a_gpu_that_is_cut_up() -> None:
    driver = NvmlDriver(TwoGpus(has_slices=True))
    assert [(gpu.uuid, gpu.kind, gpu.memory, gpu.number) for gpu in driver.gpus()] == [
        ("GPU-0", "H100", 80 * GIB, 0),
        ("MIG-2", "H100-1g.10gb", 10 * GIB, 1),
        ("MIG-3", "H100-1g.10gb", 10 * GIB, 1),
    ]
    assert [gpu.minor for gpu in driver.gpus()] == [1, 0, 0]
    assert [(each.uuid, each.util_ppm, each.temperature_c) for each in driver.readings()] == [
        ("GPU-0", 370_000, 40),
        ("MIG-2", None, 41),
        ("MIG-3", None, 41),
    ]


def test_processes_have_their_memory_and_their_mean_use_since_the_last_look() -> None:
    nvml = TwoGpus()
    nvml.processes = {0: [(11, 5 * GIB), (12, None)]}
    nvml.samples = {0: [(11, 100, 40), (11, 200, 60), (12, 200, 10)]}
    driver = NvmlDriver(nvml)
    assert [(each.pid, each.memory, each.util_ppm) for each in driver.processes()] == [
        (11, 5 * GIB, 500_000),
        (12, 0, 100_000),
    ]
    nvml.samples = {0: [(11, 200, 60), (11, 300, 20)]}
    assert [each.util_ppm for each in driver.processes()] == [200_000, None]


def test_a_gpu_that_falls_off_the_bus_is_said_and_the_others_go_on() -> None:
    """Not seen on hardware."""
    nvml = TwoGpus()
    driver = NvmlDriver(nvml)
    driver.readings()
    nvml.lost = {0}
    lost, there = driver.readings()
    assert (lost.uuid, "lost" in lost.trouble.lower(), there.trouble) == ("GPU-0", True, "")
    assert driver.processes() == ()
    with pytest.raises(DriverError, match="lost"):
        driver.gpus()
    look = Watch(NvmlDriver(nvml)).look()
    assert ([each.uuid for each in look.readings], look.trouble) == (["GPU-1"], "")


def test_xid_and_ecc_events_are_told_once() -> None:
    """Not seen on hardware."""
    nvml = TwoGpus()
    driver = NvmlDriver(nvml)
    assert driver.events() == ()
    nvml.events = [
        (pynvml.nvmlEventTypeXidCriticalError, 79),
        (pynvml.nvmlEventTypeDoubleBitEccError, 3),
    ]
    assert driver.events() == (GpuEvent("GPU-0", "xid", 79), GpuEvent("GPU-0", "ecc", 0))
    assert driver.events() == ()


def test_a_driver_without_events_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TwoGpus, "nvmlEventSetCreate")
    assert NvmlDriver(TwoGpus()).events() == ()


def test_a_recording_played_again_answers_the_same() -> None:
    nvml = TwoGpus(has_slices=True)
    nvml.processes = {0: [(11, GIB)]}
    found = json.loads(json.dumps(record(nvml, lambda: "nothing")))
    again = NvmlDriver(ReplayedNvml(pynvml, found["calls"]))
    live = NvmlDriver(nvml)
    assert (again.gpus(), again.readings()) == (live.gpus(), live.readings())
    assert (again.processes(), again.events()) == (live.processes(), ())
    assert {"call": "nvmlDeviceGetEnforcedPowerLimit", "error": 3} in [
        {name: row.get(name) for name in ("call", "error")} for row in found["calls"]
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_the_recorded_machine_is_understood(phase: str) -> None:
    """The answers of a real machine give the values that the fake driver plays."""
    said = recording()
    driver = NvmlDriver(ReplayedNvml(pynvml, said["calls"], phase))
    (gpu,), (reading,) = driver.gpus(), driver.readings()
    (row,) = said["gpus"]
    assert (gpu.kind, gpu.uuid, gpu.memory) == ("H200", row["uuid"], row["memory"])
    assert reading.trouble == ""
    assert reading.memory_used >= row["memory_used"]


def test_the_recorded_machine_lists_processes_as_this_machine_does() -> None:
    """A program with 1 GiB, which also has a context there, that used its GPU all the time."""
    said = recording()
    driver = NvmlDriver(ReplayedNvml(pynvml, said["calls"], PHASES[1]))
    (reading,), (process,) = driver.readings(), driver.processes()
    assert process.pid == said["own"]["pid"]
    assert GIB < process.memory <= reading.memory_used < 2 * GIB
    assert (process.util_ppm, reading.util_ppm) == (900_000, 1_000_000)
    idle = NvmlDriver(ReplayedNvml(pynvml, said["calls"]))
    assert (idle.processes(), idle.events()) == ((), ())
