"""NVIDIA's XID codes and what to do about each: the driver's word on what happened to a GPU.

By "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors), for A100 and later. Codes
that are not in this table are said, and nothing is done about them. No XID was seen on hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class XidAction(StrEnum):
    """What to do after an XID."""

    PROGRAM = "program"
    """The program's own fault: the GPU is healthy."""
    COLLATERAL = "collateral"
    """It follows from something else: another XID, or the end of a program."""
    WATCH = "watch"
    """The GPU can be used on; if it comes back, look after the GPU."""
    RESET = "reset"
    """Nothing more is started there until the GPU has been reset."""
    REBOOT = "reboot"
    """The machine must be restarted."""

    @property
    def sets_aside(self) -> bool:
        return self in (XidAction.RESET, XidAction.REBOOT)

    @property
    def accuses_gpu(self) -> bool:
        """Whether a run that fails after it may have failed by its GPU."""
        return self is XidAction.WATCH or self.sets_aside

    @property
    def asks_for_test(self) -> bool:
        """Whether a self-test may tell more: not of a GPU that cannot be reached."""
        return self is XidAction.RESET


@dataclass(frozen=True, slots=True)
class Xid:
    """One code: what it means, and what to do."""

    code: int
    meaning: str
    action: XidAction

    @property
    def sentence(self) -> str:
        return f"XID {self.code} ({self.meaning}): {ADVICE[self.action]}."


ADVICE: Mapping[XidAction, str] = {
    XidAction.PROGRAM: "the program's own fault; the GPU is healthy",
    XidAction.COLLATERAL: "it follows from another event or from the end of a program",
    XidAction.WATCH: "the GPU can be used on; reset it when that is convenient",
    XidAction.RESET: "reset the GPU (`nvidia-smi --gpu-reset`), then bring it back",
    XidAction.REBOOT: "restart the machine, then bring the GPU back",
}
MEANINGS: Mapping[XidAction, Mapping[int, str]] = {
    XidAction.PROGRAM: {
        8: "GPU stopped processing",
        11: "invalid push buffer stream",
        13: "exception in a kernel, such as an access out of bounds",
        25: "invalid push buffer stream",
        31: "GPU memory page fault",
        32: "invalid push buffer stream",
        39: "copy engine exception",
        40: "copy engine exception",
        41: "copy engine exception",
        43: "a fault of the program stopped its work",
        60: "video processor exception",
        68: "video decoder exception",
        69: "graphics engine class error",
        80: "corrupted data sent to the GPU",
        137: "illegal access to the memory of another GPU over NVLink",
    },
    XidAction.COLLATERAL: {
        45: "work of a program was removed",
        154: "the action that another XID needs has changed",
    },
    XidAction.WATCH: {
        37: "driver firmware error",
        38: "driver firmware error",
        44: "fault during a context switch",
        63: "a row of GPU memory was remapped",
        66: "illegal access by the driver",
        67: "illegal access by the driver",
        92: "many single-bit memory errors",
        94: "memory error contained to one program",
        121: "corrected errors on the link to the CPU",
        141: "CUDA fast path error",
        157: "no spare resources left to repair the GPU",
    },
    XidAction.RESET: {
        46: "GPU stopped processing",
        48: "uncorrectable memory error",
        62: "the GPU's micro-controller halted",
        64: "a row of GPU memory could not be remapped",
        74: "NVLink error",
        95: "memory error not contained to one program",
        109: "context switch timed out",
        110: "security fault",
        119: "the GPU's system processor does not answer",
        120: "error of the GPU's system processor",
        136: "link training failed",
        140: "uncorrectable memory error that could not be handled",
        143: "the GPU could not be initialised",
        155: "NVLink went down",
        156: "a resource of the GPU is to be retired",
        158: "the GPU timed out",
    },
    XidAction.REBOOT: {
        79: "the GPU has fallen off the bus",
        151: "key rotation error",
    },
}
XIDS: Mapping[int, Xid] = {
    code: Xid(code, meaning, action)
    for action, meanings in MEANINGS.items()
    for code, meaning in meanings.items()
}


def xid_of(code: int) -> Xid | None:
    """What is known about a code; None: it is not in the table."""
    return XIDS.get(code)
