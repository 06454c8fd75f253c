"""The driver by NVML (nvidia-ml-py). What one H200 could not show is marked: not seen on hardware."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from trainmaster.gpu.driver import NO_SLICES, DriverError, Gpu, GpuEvent, GpuProcess, Reading

T = TypeVar("T")

PPM_PER_PERCENT = 10_000
SLICE = re.compile(r"MIG\s+(\S+)")


class NvmlDriver:
    """NVML, opened at the first question and kept open; a lost connection is opened again."""

    def __init__(self, nvml: Any = None) -> None:
        if nvml is None:
            import pynvml  # type: ignore[import-untyped]

            nvml = pynvml
        self._nvml: Any = nvml
        self._is_open = False
        self._events: Any = None
        self._known: list[tuple[Any, Any, str]] = []
        """Every device, the GPU that it is or is a part of, and its UUID, since NVML was opened: one that
        falls off the bus does not say its name any more."""
        self._seen_us: dict[str, int] = {}
        """Of each GPU the newest sample of what its processes compute."""

    @property
    def version(self) -> str:
        return self._asked(lambda: str(self._nvml.nvmlSystemGetDriverVersion()), "")

    def gpus(self) -> tuple[Gpu, ...]:
        return self._asked(self._gpus, ())

    def readings(self) -> tuple[Reading, ...]:
        return self._asked(lambda: tuple(self._reading(*each) for each in self._devices()), ())

    def processes(self) -> tuple[GpuProcess, ...]:
        return self._asked(lambda: tuple(self._processes()), ())

    def events(self) -> tuple[GpuEvent, ...]:
        return self._asked(lambda: tuple(self._new_events()), ())

    def close(self) -> None:
        if self._is_open:
            self._is_open, self._events, self._known = False, None, []
            self._maybe(self._nvml.nvmlShutdown)

    # -- asking --------------------------------------------------------------------------------------

    def _asked(self, question: Callable[[], T], without: T) -> T:
        """The answer; `without` where the machine has no driver; DriverError for one that does not answer:
        GPU jobs must not silently run on CPU slots."""
        nvml = self._nvml
        absent = (
            *(nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED),
            *(nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_GPU_NOT_FOUND),
        )
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            return question()
        except nvml.NVMLError as problem:
            self.close()
            if problem.value in absent:
                return without
            raise DriverError(
                f"the GPU driver does not answer ({str(problem).lower()}): see whether `nvidia-smi`"
                " works, or give --slots to do without GPUs"
            ) from None

    def _maybe(self, call: Callable[..., Any], *said: Any) -> Any:
        """The answer; None where this GPU or driver has none."""
        try:
            return call(*said)
        except self._nvml.NVMLError:
            return None

    # -- devices -------------------------------------------------------------------------------------

    def _handles(self) -> list[Any]:
        """Of the GPUs, in the order of the PCI bus."""
        nvml = self._nvml
        return [
            nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        ]

    def _slices(self, handle: Any) -> list[Any] | None:
        """The MIG slices of a GPU; None for one that is not cut up. Not seen on hardware."""
        nvml = self._nvml
        mode = self._maybe(nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        most = self._maybe(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        found = (
            self._maybe(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, each)
            for each in range(most)
        )
        return [each for each in found if each is not None]

    def _devices(self) -> list[tuple[Any, Any, str]]:
        if not self._known:
            nvml = self._nvml
            for number in range(nvml.nvmlDeviceGetCount()):
                gpu = self._maybe(nvml.nvmlDeviceGetHandleByIndex, number)
                slices = None if gpu is None else self._slices(gpu)
                for each in [gpu] if slices is None else slices:
                    uuid = None if each is None else self._maybe(nvml.nvmlDeviceGetUUID, each)
                    if uuid is not None:
                        self._known.append((each, gpu, str(uuid)))
        return self._known

    def _gpus(self) -> tuple[Gpu, ...]:
        handles = self._handles()
        found = tuple(
            gpu for number in range(len(handles)) for gpu in self._gpus_at(number, handles)
        )
        if handles and not found:
            raise DriverError(NO_SLICES)
        return found

    def _gpus_at(self, number: int, handles: Sequence[Any]) -> Iterator[Gpu]:
        handle = handles[number]
        slices = self._slices(handle)
        if slices is None:
            others = [(other, peer) for other, peer in enumerate(handles) if other != number]
            linked = frozenset(n for n, peer in others if self._is_linked(handle, peer))
            near = frozenset(n for n, peer in others if self._is_close(handle, peer))
            yield self._gpu(handle, number, linked | near | {number}, linked)
        for each in slices or ():
            yield self._gpu(each, number, frozenset({number}), frozenset(), of=handle)

    def _gpu(
        self, handle: Any, number: int, near: frozenset[int], linked: frozenset[int], of: Any = None
    ) -> Gpu:
        nvml = self._nvml
        name = str(nvml.nvmlDeviceGetName(handle))
        found = SLICE.search(name) if of is not None else None
        return Gpu(
            number=number,
            name=name if of is None else str(nvml.nvmlDeviceGetName(of)),
            uuid=str(nvml.nvmlDeviceGetUUID(handle)),
            memory=int(self._memory(handle).total),
            near=near,
            linked=linked,
            slice="" if of is None else (found[1] if found else "slice"),
            minor=self._maybe(nvml.nvmlDeviceGetMinorNumber, handle if of is None else of),
        )

    def _is_linked(self, one: Any, other: Any) -> bool:
        """Whether NVLink joins two GPUs. Not seen on hardware."""
        nvml = self._nvml
        status = self._maybe(
            nvml.nvmlDeviceGetP2PStatus, one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK
        )
        return bool(status == nvml.NVML_P2P_STATUS_OK)

    def _is_close(self, one: Any, other: Any) -> bool:
        """Whether two GPUs sit under one PCIe switch. Not seen on hardware."""
        level = self._maybe(self._nvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
        return level is not None and bool(level <= self._nvml.NVML_TOPOLOGY_MULTIPLE)

    # -- readings ------------------------------------------------------------------------------------

    def _reading(self, handle: Any, gpu: Any, uuid: str) -> Reading:
        nvml, maybe = self._nvml, self._maybe
        try:
            memory = self._memory(handle)
        except nvml.NVMLError as problem:  # it fell off the bus: the others still answer
            return Reading(uuid, trouble=str(problem))
        util = maybe(nvml.nvmlDeviceGetUtilizationRates, handle)
        power = maybe(nvml.nvmlDeviceGetPowerUsage, gpu)
        limit = maybe(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
        return Reading(
            uuid=uuid,
            memory_total=int(memory.total),
            memory_used=int(memory.used),
            util_ppm=None if util is None else int(util.gpu) * PPM_PER_PERCENT,
            temperature_c=maybe(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else round(power / 1000),
            power_limit_w=None if limit is None else round(limit / 1000),
            ecc_errors=maybe(
                nvml.nvmlDeviceGetTotalEccErrors,
                gpu,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
        )

    def _memory(self, handle: Any) -> Any:
        """As nvidia-smi shows it: without what the driver reserves, where it tells the two apart."""
        nvml = self._nvml
        found = self._maybe(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        return nvml.nvmlDeviceGetMemoryInfo(handle) if found is None else found

    def _processes(self) -> Iterator[GpuProcess]:
        nvml = self._nvml
        for handle, gpu, uuid in self._devices():
            lists = (
                nvml.nvmlDeviceGetComputeRunningProcesses,
                nvml.nvmlDeviceGetMPSComputeRunningProcesses,
            )
            said = [each for call in lists for each in self._maybe(call, handle) or ()]
            found = {int(each.pid): each for each in said}.values()  # some drivers say it in both
            busy = self._busy(gpu, uuid) if found and handle is gpu else {}
            for each in found:
                yield GpuProcess(
                    int(each.pid), uuid, int(each.usedGpuMemory or 0), busy.get(int(each.pid))
                )

    def _busy(self, gpu: Any, uuid: str) -> dict[int, int]:
        """Of each process the mean part of the time in which it computed, since the last call."""
        nvml, since = self._nvml, self._seen_us.get(uuid, 0)
        samples = self._maybe(nvml.nvmlDeviceGetProcessUtilization, gpu, since) or ()
        found: dict[int, list[int]] = {}
        for sample in samples:
            if int(sample.timeStamp) > since:
                found.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        newest = max((int(sample.timeStamp) for sample in samples), default=since)
        self._seen_us[uuid] = newest
        return {pid: sum(said) * PPM_PER_PERCENT // len(said) for pid, said in found.items()}

    # -- events: not seen on hardware ----------------------------------------------------------------

    def _new_events(self) -> Iterator[GpuEvent]:
        """None where they are not supported: that is not an error."""
        nvml = self._nvml
        if self._events is None:
            self._events = self._registered()
        while self._events is not None:
            said = self._maybe(nvml.nvmlEventSetWait_v2, self._events, 0)
            if said is None:  # nothing has happened
                return
            uuid = self._maybe(nvml.nvmlDeviceGetUUID, said.device)
            is_xid = said.eventType == nvml.nvmlEventTypeXidCriticalError
            yield GpuEvent(
                "" if uuid is None else str(uuid),
                "xid" if is_xid else "ecc",
                int(said.eventData) if is_xid else 0,
            )

    def _registered(self) -> Any:
        nvml = self._nvml
        found = self._maybe(nvml.nvmlEventSetCreate)
        if found is None:
            return None
        for handle in {uuid: gpu for _, gpu, uuid in self._devices()}.values():
            for kind in (nvml.nvmlEventTypeXidCriticalError, nvml.nvmlEventTypeDoubleBitEccError):
                self._maybe(nvml.nvmlDeviceRegisterEvents, handle, kind, found)
        return found
