"""`python -m trainmaster.gpu.record FILE`: writes down what NVML answers on this machine, errors included.

The fake driver makes its machines of it, and tests play the calls again (`ReplayedNvml`).
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainmaster.gpu.nvml import NvmlDriver

ALLOCATED = 1 << 30
BUSY_S = 3.0
PHASES = ("idle", "in use")
MORE = ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetNVMLVersion")
MORE_OF_A_GPU = (
    *(
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
    ),
    *("nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlDeviceGetEccMode"),
    *("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMaxMigDeviceCount"),
    *("nvmlDeviceGetSupportedEventTypes", "nvmlDeviceGetRemappedRows"),
)
"""Answers that nothing uses yet, recorded for later use."""


class RecordedNvml:
    """NVML itself, with every call and its answer written down."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._names: dict[int, str] = {}
        """Of handles: what they were got by."""
        self.calls: list[dict[str, Any]] = []
        self.phase = PHASES[0]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(found):
            return found
        return lambda *said: self._call(name, found, said)

    def _call(self, name: str, call: Callable[..., Any], said: Sequence[Any]) -> Any:
        row: dict[str, Any] = {"phase": self.phase, "call": name}
        row["said"] = [self._plain(each) for each in said]
        self.calls.append(row)
        try:
            answer = call(*said)
        except self._nvml.NVMLError as problem:
            row |= {"error": problem.value, "words": str(problem)}
            raise
        if "Handle" in name or name == "nvmlEventSetCreate":
            self._names[_address(answer)] = f"{name}{row['said']}"
        row["answer"] = self._plain(answer)
        return answer

    def _plain(self, value: Any) -> Any:
        if isinstance(value, ctypes._Pointer):
            return {"handle": self._names.get(_address(value), "unknown")}
        if isinstance(value, ctypes.Structure):
            names = (field[0] for field in type(value)._fields_)
            return {name: self._plain(getattr(value, name)) for name in names}
        if hasattr(value, "__dict__") and not isinstance(value, str | bytes):  # nvmlFriendlyObject
            return {name: self._plain(each) for name, each in vars(value).items()}
        if isinstance(value, list | tuple | ctypes.Array):
            return [self._plain(each) for each in value]
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        return value if isinstance(value, int | float | str | None) else repr(value)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class Answer:
    """A structure that NVML answered with."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__ |= {name: played(each) for name, each in fields.items()}


def played(value: Any) -> Any:
    """A written answer as NVML would give it."""
    if isinstance(value, list):
        return [played(each) for each in value]
    if isinstance(value, dict):
        return value["handle"] if set(value) == {"handle"} else Answer(value)
    return value


class ReplayedNvml:
    """Answers as they were recorded: to each call in its order, and the last one again and again.

    A function that was never asked then is answered as by a driver that does not have it.
    """

    def __init__(
        self, nvml: Any, calls: Sequence[Mapping[str, Any]], phase: str = PHASES[0]
    ) -> None:
        self._nvml = nvml
        self._left: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for row in calls:
            if row["phase"] == phase:
                self._left.setdefault((row["call"], _key(row["said"])), []).append(row)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(found):
            return found
        return lambda *said: self._answer(name, said)

    def _answer(self, name: str, said: Sequence[Any]) -> Any:
        if name in ("nvmlInit", "nvmlShutdown"):
            return None
        rows = self._left.get((name, _key(list(said))))
        if name not in {call for call, _ in self._left}:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if rows is None:
            raise AssertionError(f"{name}{tuple(said)} was not recorded")
        row = rows.pop(0) if len(rows) > 1 else rows[0]
        if "error" in row:
            raise self._nvml.NVMLError(row["error"])
        return played(row["answer"])


def _key(said: Sequence[Any]) -> str:
    plain = [each["handle"] if isinstance(each, dict) else each for each in said]
    return json.dumps(plain)


def record(nvml: Any, use_gpu: Callable[[], str]) -> dict[str, Any]:
    """All answers of this machine, before and while this process has memory on its first GPU."""
    spied = RecordedNvml(nvml)
    driver = NvmlDriver(spied)
    version, gpus, readings = driver.version, driver.gpus(), driver.readings()
    others = driver.processes()
    driver.events()
    for name in MORE:
        _try(spied, name)
    for number in range(spied.nvmlDeviceGetCount()):
        handle = spied.nvmlDeviceGetHandleByIndex(number)
        for name in MORE_OF_A_GPU:
            _try(spied, name, handle)
    driver.close()
    used = use_gpu()
    spied.phase = PHASES[1]
    busy = NvmlDriver(spied)
    own = {
        "used": used,
        "pid": os.getpid(),
        "gpus": [asdict(each) | {"near": [], "linked": []} for each in busy.gpus()],
        "readings": [asdict(each) for each in busy.readings()],
        "processes": [asdict(each) for each in busy.processes()],
    }
    busy.close()
    rows = []
    for gpu, reading in zip(gpus, readings, strict=True):
        said = {**asdict(reading), **asdict(gpu)}
        said |= {"near": sorted(gpu.near), "linked": sorted(gpu.linked)}
        theirs = sum(each.memory for each in others if each.uuid == gpu.uuid)
        said["memory_used"] = max(0, reading.memory_used - theirs)  # what the driver keeps
        for name in ("trouble", "memory_total", "util_ppm", "slice"):
            del said[name]
        rows.append(said)
    today = datetime.datetime.now(datetime.UTC).date()
    cuda = [row.get("answer") for row in spied.calls if row["call"] == MORE[0]]
    return {
        "recorded": f"by python -m trainmaster.gpu.record on {today.isoformat()}",
        "driver_version": version,
        "cuda_version": cuda[0] if cuda else None,
        "gpus": rows,
        "own": own,
        "calls": spied.calls,
    }


def _try(nvml: RecordedNvml, name: str, *said: Any) -> None:
    """Ask what may not be supported: the answer is written down all the same."""
    try:
        getattr(nvml, name)(*said)
    except (nvml.NVMLError, AttributeError):
        return


def use_first_gpu() -> str:
    """1 GiB on the first GPU, written for a few seconds, so that this process is seen; what came of it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        return str(problem)
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    steps: list[tuple[str, Sequence[Any]]] = [
        ("cuInit", (0,)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), 0)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(memory), ctypes.c_size_t(ALLOCATED))),
    ]
    for name, said in steps:
        if code := getattr(cuda, name)(*said):
            return f"{name} answered {code}"
    until = time.monotonic() + BUSY_S
    while time.monotonic() < until:
        for _ in range(100):
            cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(ALLOCATED))
        cuda.cuCtxSynchronize()
    return f"{ALLOCATED} bytes"


def main() -> None:
    import pynvml  # type: ignore[import-untyped]

    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("say where to: python -m trainmaster.gpu.record FILE")
    found = record(pynvml, use_first_gpu)
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{len(found['calls'])} calls on {len(found['gpus'])} GPUs: {sys.argv[1]}\n")


if __name__ == "__main__":
    main()
