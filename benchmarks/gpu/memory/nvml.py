"""Memory in use on the first GPU, as the driver says it, by the C library alone."""

from __future__ import annotations

import ctypes
from types import TracebackType

MOST_PROCESSES = 64


class Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The driver's library, open for the first GPU."""

    def __enter__(self) -> Nvml:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self._device))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call("nvmlShutdown")

    def _call(self, name: str, *words: object) -> None:
        code = getattr(self._library, name)(*words)
        if code:
            raise RuntimeError(f"{name} returns {code}: see whether `nvidia-smi` works")

    def used(self) -> int:
        """Bytes in use on the GPU, by whomever."""
        found = Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(found))
        return found.used

    def of_processes(self) -> int:
        """Bytes of all processes that compute there."""
        count = ctypes.c_uint(MOST_PROCESSES)
        found = (Process * MOST_PROCESSES)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        self._call(name, self._device, ctypes.byref(count), found)
        return sum(each.memory for each in found[: count.value])

    def facts(self) -> dict[str, object]:
        """The GPU's name and its driver."""
        name, driver = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetName", self._device, name, 96)
        self._call("nvmlSystemGetDriverVersion", driver, 96)
        memory = Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return {
            "gpu": name.value.decode(),
            "gpu_memory": memory.total,
            "driver": driver.value.decode(),
        }
