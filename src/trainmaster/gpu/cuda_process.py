"""The CUDA state of another process, and the five calls that change it.

Answered by the driver through `cuda.core.checkpoint` (extra [gpu]), or by the folder that plays it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS

OUT_OF_MEMORY, NOT_INITIALIZED, OPERATING_SYSTEM = 2, 3, 304
NOT_READY, NOT_SUPPORTED, UNKNOWN = 600, 801, 999
BUSY = "busy"
"""The driver is still checkpointing or restoring it (drivers that say so were not seen on hardware)."""
NOT_INSTALLED = "cuda-core is not installed beside Trainmaster: `pip install 'trainmaster[gpu]'`."


class CudaFault(Exception):
    """A call that failed, with the driver's number and words."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class NoCheckpoints(Exception):
    """CUDA's checkpoint calls cannot be used here: one sentence."""


class CudaProcess(Protocol):
    """Another process, as the driver sees it. Every call raises CudaFault where it fails, and may hang."""

    def state(self) -> str:
        """running, locked, checkpointed, failed or busy."""
        ...

    def lock(self, timeout_ms: int) -> None: ...

    def checkpoint(self) -> None: ...

    def restore(self, moves: Mapping[str, str]) -> None:
        """On these GPUs instead, by UUID: every GPU of the machine is named, or none."""
        ...

    def unlock(self) -> None: ...

    def has_communicators(self) -> bool:
        """Whether it is joined to other processes by NCCL."""
        ...


Find = Callable[[int], CudaProcess]


def open_checkpoints() -> Find:
    """How to find a process by its number; NoCheckpoints if that is not possible."""
    folder = os.environ.get(FAKE_GPUS)
    if folder:
        return lambda pid: FakeProcess(pid, Path(folder))
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found, unused-ignore]
        from cuda.core import checkpoint  # type: ignore[import-not-found, unused-ignore]
    except ImportError as problem:
        missing = problem.name or ""
        is_there = not missing.startswith("cuda")
        raise NoCheckpoints(f"cuda-core needs {missing}." if is_there else NOT_INSTALLED) from None
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # all GPUs of the machine count
    try:
        (result,) = driver.cuInit(0)
    except Exception as problem:
        raise NoCheckpoints(f"CUDA does not start here: {problem}") from None
    if int(result):
        raise NoCheckpoints(f"CUDA does not start here: error {int(result)}.")
    return lambda pid: DriverProcess(pid, checkpoint.Process, driver.CUresult)


class DriverProcess:
    """By the CUDA driver."""

    def __init__(self, pid: int, process: Callable[[int], Any], results: Any) -> None:
        self._pid = pid
        self._process = process(pid)
        self._results = results

    def state(self) -> str:
        try:
            return str(self._asked(lambda: self._process.state))
        except CudaFault as fault:
            if "checkpoint process state: " in str(fault):  # a later driver has more states
                return BUSY
            raise

    def lock(self, timeout_ms: int) -> None:
        self._asked(lambda: self._process.lock(timeout_ms))

    def checkpoint(self) -> None:
        self._asked(self._process.checkpoint)

    def restore(self, moves: Mapping[str, str]) -> None:
        pairs = {_bare(old): _bare(new) for old, new in moves.items()}
        self._asked(lambda: self._process.restore(pairs or None))

    def unlock(self) -> None:
        self._asked(self._process.unlock)

    def has_communicators(self) -> bool:
        return any(map(is_nccl_thread, thread_names(self._pid)))

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as problem:
            raise fault_of(str(problem), self._results) from None


def fault_of(words: str, results: Any) -> CudaFault:
    """An exception of cuda.core with the driver's number: it names most, 801 it puts into a sentence."""
    named = re.match(r"CUDA_ERROR_\w+", words)
    found = None if named is None else getattr(results, named[0], None)
    if named is not None and found is not None:
        return CudaFault(int(found), named[0])
    if "not supported" in words:  # of the process it is asked about, as of an MPS client
        return CudaFault(NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED")
    return CudaFault(UNKNOWN, words)


def thread_names(pid: int) -> list[str]:
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.append(Path(f"/proc/{pid}/task/{thread}/comm").read_text().strip())
    except OSError:
        pass
    return found


def is_nccl_thread(name: str) -> bool:
    """NCCL names its proxies, PyTorch its watchdog, one for each group (not seen on hardware here)."""
    return name.startswith(("NCCL ", "pt_nccl"))


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-")


class FakeProcess:
    """By the folder that plays the driver. Moves, managed memory and NCCL: not seen on hardware."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder

    def state(self) -> str:
        return str(self._begun("state")["state"])

    def lock(self, timeout_ms: int) -> None:
        said = self._begun("lock", fake_driver.RUNNING)
        if said.get("mps"):
            raise CudaFault(NOT_SUPPORTED, "operation not supported")
        self._set(fake_driver.LOCKED)

    def checkpoint(self) -> None:
        said = self._begun("checkpoint", fake_driver.LOCKED)
        if said.get("managed"):
            raise CudaFault(NOT_SUPPORTED, "operation not supported")
        self._set(fake_driver.CHECKPOINTED)

    def restore(self, moves: Mapping[str, str]) -> None:
        said = self._begun("restore", fake_driver.CHECKPOINTED)
        readings = fake_driver.FakeDriver(self._folder).readings()
        if moves and set(moves) != {each.uuid for each in readings}:
            raise CudaFault(1, "invalid argument")
        if said.get("nccl"):
            self._set(fake_driver.FAILED)
            raise CudaFault(UNKNOWN, "unknown error")
        free = {each.uuid: each.memory_total - each.memory_used for each in readings}
        for uuid, size in said["gpus"].items():
            if size > free.get(moves.get(uuid, uuid), 0) + fake_driver.LEFT_BEHIND:
                raise CudaFault(OUT_OF_MEMORY, "out of memory")
        fake_driver.move_memory(self._pid, moves, self._folder)
        self._set(fake_driver.LOCKED)

    def unlock(self) -> None:
        self._begun("unlock", fake_driver.LOCKED)
        self._set(fake_driver.RUNNING)

    def has_communicators(self) -> bool:
        return bool(fake_driver.process_of(self._pid, self._folder).get("nccl"))

    def _begun(self, call: str, needed: str = "") -> dict[str, Any]:
        """What is known of it; a call that a fault is about fails here."""
        self._meet(fake_driver.take_fault(call, self._pid, self._folder))
        said = fake_driver.process_of(self._pid, self._folder)
        if not said:  # as an H200 answered
            is_there = os.path.exists(f"/proc/{self._pid}")
            raise CudaFault(NOT_INITIALIZED if is_there else OPERATING_SYSTEM, "no CUDA state")
        if needed not in ("", said["state"]):
            raise CudaFault(401, "the operation cannot be performed in the present state")
        return said

    def _meet(self, fault: Mapping[str, Any] | None) -> None:
        if fault is None:
            return
        if fault["does"] == "hang":
            time.sleep(fake_driver.HANG_S)
        if fault["does"] == "die":
            os.kill(self._pid, signal.SIGKILL)
            raise CudaFault(OPERATING_SYSTEM, "OS call failed")
        raise CudaFault(int(fault.get("code", UNKNOWN)), "a fault of this test")

    def _set(self, state: str) -> None:
        if fake_driver.process_of(self._pid, self._folder):
            fake_driver.set_state(self._pid, state, self._folder)
