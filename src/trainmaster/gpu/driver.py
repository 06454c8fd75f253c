"""The questions to the driver of a machine's GPUs. NVML answers them, or in tests a folder that plays it.

The standard library only, beside the model: programs that freeze others load it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainmaster.model.topology import TopologyError

FAKE_GPUS = "TRAINMASTER_FAKE_GPUS"
"""Names a folder that plays the driver (fake_driver.py); not set: NVML answers."""
BRANDS = frozenset({"NVIDIA", "Tesla", "GeForce", "Quadro"})
FAMILIES = frozenset({"RTX", "GTX", "TITAN"})


NO_SLICES = (
    "every GPU is in MIG mode and has no slices: make some with `nvidia-smi mig`, or give --slots to do"
    " without GPUs"
)


class DriverError(TopologyError):
    """The GPU driver does not answer: one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver describes it, or a slice of one (MIG: not seen on hardware)."""

    number: int
    """In the order of the PCI bus; a slice has that of its GPU."""
    name: str
    uuid: str
    memory: int
    near: frozenset[int]
    """Numbers of the GPUs that it reaches by NVLink or a PCIe switch, itself included."""
    linked: frozenset[int] = frozenset()
    """Numbers of the GPUs that it reaches by NVLink (not seen on hardware)."""
    slice: str = ""
    """The profile of a MIG slice, such as 1g.10gb; empty for a whole GPU."""
    minor: int | None = None
    """N of its device file /dev/nvidiaN; a slice has that of its GPU. None: the driver does not say."""

    @property
    def kind(self) -> str:
        """What people call it: H100, A100, RTX3090, H100-1g.10gb."""
        words = [word for word in self.name.split() if word not in BRANDS] or [self.name]
        if words[0] in FAMILIES and len(words) > 1:
            words = [words[1] if words[1][0].isalpha() else words[0] + words[1]]
        whole = words[0].split("-")[0]
        return f"{whole}-{self.slice}" if self.slice else whole


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver says of one device now; None where it says nothing."""

    uuid: str
    memory_total: int = 0
    memory_used: int = 0
    """By everybody, the driver's own part included."""
    util_ppm: int | None = None
    """Part of the time in which any program computed; a slice has none."""
    temperature_c: int | None = None
    power_w: int | None = None
    power_limit_w: int | None = None
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded. Errors were not seen on hardware."""
    trouble: str = ""
    """Why it does not answer, such as that it fell off the bus (not seen on hardware)."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has memory on a device."""

    pid: int
    uuid: str
    memory: int
    util_ppm: int | None = None
    """Part of the time in which it computed; None: the driver does not say."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something that happened to a GPU. Not seen on hardware."""

    uuid: str
    """Of the whole GPU; empty where the driver does not say which."""
    kind: str
    """xid, or ecc for an uncorrected memory error."""
    code: int
    """The number of the XID; 0 for others."""


class Driver(Protocol):
    """Answers about the GPUs of this machine; DriverError where it cannot. Calls may hang."""

    @property
    def version(self) -> str:
        """Of the driver, such as 580.159.04."""
        ...

    def gpus(self) -> tuple[Gpu, ...]:
        """All devices: GPUs, and instead of one that is cut up its MIG slices; none without a driver."""
        ...

    def readings(self) -> tuple[Reading, ...]:
        """One for each device; one that does not answer has a trouble."""
        ...

    def processes(self) -> tuple[GpuProcess, ...]:
        """Those with memory on a device, once for each of their devices."""
        ...

    def events(self) -> tuple[GpuEvent, ...]:
        """What has happened since the last call."""
        ...

    def close(self) -> None:
        """Let go of the driver; the next question opens it again."""
        ...


def open_driver() -> Driver:
    """The driver of this machine, or what plays it."""
    folder = os.environ.get(FAKE_GPUS)
    if folder:
        from trainmaster.gpu.fake_driver import FakeDriver

        return FakeDriver(Path(folder))
    from trainmaster.gpu.nvml import NvmlDriver

    return NvmlDriver()
