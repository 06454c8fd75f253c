"""Vital signs of a manager: whether it decides, whether its threads are free, and what is running short."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from trainmaster.config.limits import Limits
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import size

LOOK_S = 2.0
"""How often it is tried whether a thread is free."""
LATE = 5
"""A fifth of the time after which a manager is taken not to work is worth a note."""
FULL, NEARLY_FULL = 0.95, 0.8
"""Parts of the open files that a process may have."""


@dataclass(frozen=True, slots=True)
class VitalSigns:
    """As they are now."""

    step_age_s: float
    """Since the last step ended."""
    step_for_s: float
    """How long the present step has taken so far; 0: there is none."""
    thread_wait_s: float
    """How long work has waited for a thread."""
    disk_free: int
    """Bytes that are free where the data folder is."""
    open_files: int
    most_open_files: int

    def trouble(self, limits: Limits) -> str:
        """Why the manager does not work; empty if it does."""
        most_s = limits.step_deadline / SECOND
        if self.step_for_s >= most_s:
            return f"It has been at one step for {self.step_for_s:.0f} s: its database or disk may hang."
        if self.thread_wait_s >= most_s:
            return f"Its threads have been busy for {self.thread_wait_s:.0f} s: its disk may hang."
        if self.open_files >= FULL * self.most_open_files:
            return f"It has {self.open_files:,} of {self.most_open_files:,} files open."
        return ""

    def notes(self, limits: Limits) -> list[str]:
        """What is running short."""
        late_s = limits.step_deadline / SECOND / LATE
        found = []
        if self.step_for_s >= late_s:
            found.append(f"A step has taken {self.step_for_s:.0f} s so far.")
        if self.thread_wait_s >= late_s:
            found.append(f"Work has waited {self.thread_wait_s:.0f} s for a thread.")
        if self.open_files >= NEARLY_FULL * self.most_open_files:
            found.append(f"{self.open_files:,} of {self.most_open_files:,} files are open.")
        if self.disk_free < limits.disk_free:
            found.append(
                f"Only {size(self.disk_free)} are free where the data folder is (the limit disk_free):"
                " make room."
            )
        return found


class ThreadWatch:
    """Tries every now and then how long work waits for a thread."""

    def __init__(self) -> None:
        self._asked_s: float | None = None

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            self._asked_s = time.monotonic()
            await asyncio.to_thread(_nothing)
            self._asked_s = None
            await asyncio.sleep(LOOK_S)

    @property
    def wait_s(self) -> float:
        return 0.0 if self._asked_s is None else time.monotonic() - self._asked_s


def _nothing() -> None:
    """What a thread does that is only tried."""


def vital_signs(folder: Path, stepped_s: float, begun_s: float | None, wait_s: float) -> VitalSigns:
    """`stepped_s` and `begun_s`: when the last step ended and the present one began, by the steady clock."""
    now_s = time.monotonic()
    try:
        disk_free = shutil.disk_usage(folder).free
    except OSError:  # the folder is gone: nothing can be written there
        disk_free = 0
    return VitalSigns(
        step_age_s=now_s - stepped_s,
        step_for_s=0.0 if begun_s is None else now_s - begun_s,
        thread_wait_s=wait_s,
        disk_free=disk_free,
        open_files=len(os.listdir("/proc/self/fd")),
        most_open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
