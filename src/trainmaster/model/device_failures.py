"""Early failures by device: what speaks against each, and what has shown since that it works."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

MOST_KEPT = 256
"""Failures that are remembered; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """A run that failed early on a device, not by its user's fault."""

    device: str
    job: str
    program: str
    is_platform: bool
    """The reason is one of the platform; else it is not known."""
    reason: str = ""
    is_cleared: bool = False
    """Another program has worked there since: it only shows that its own program fails there."""


@dataclass(frozen=True, slots=True)
class DeviceFailures:
    """The early failures since each device, or program, last worked; the newest last.

    Devices and programs go by names that stay: a UUID, `node:slot`.
    """

    failures: tuple[DeviceFailure, ...] = ()
    works: frozenset[tuple[str, str]] = frozenset()
    """(Program, device) pairs that worked since the program first failed."""

    def failed(self, failure: DeviceFailure) -> DeviceFailures:
        kept = (*self.failures, failure)[-MOST_KEPT:]
        programs = {each.program for each in kept}
        return replace(
            self, failures=kept, works=frozenset(each for each in self.works if each[0] in programs)
        )

    def worked(self, program: str, devices: Iterable[str]) -> DeviceFailures:
        """A run of this program succeeded, or lasted, there; no program: they were brought back."""
        there = tuple(devices)
        kept = tuple(
            replace(each, is_cleared=True) if each.device in there else each
            for each in self.failures
            if each.device not in there or (program and each.program != program)
        )
        if any(each.program == program for each in kept):
            works = self.works | {(program, device) for device in there}
            return DeviceFailures(kept, works)
        return replace(self, failures=kept)

    def against(self, device: str) -> tuple[DeviceFailure, ...]:
        """Those that count against it, the last of each job."""
        counted = {
            each.job: each
            for each in self.failures
            if each.device == device and not each.is_cleared and not self._fails_elsewhere(each)
        }
        return tuple(counted.values())

    def _fails_elsewhere(self, failure: DeviceFailure) -> bool:
        """Whether the program, and not the device, is the likely cause: it failed on another one as well.

        Where the platform is known to be the reason: for the same one. Not where it has worked since.
        """
        if any(program == failure.program for program, _ in self.works):
            return False
        return any(
            each.program == failure.program
            and each.device != failure.device
            and (each.reason == failure.reason or not failure.is_platform)
            for each in self.failures
        )

    def is_bad(self, device: str, most: int) -> bool:
        """Whether so many jobs failed there in a row, of more than one program or by the platform's fault."""
        found = self.against(device)
        is_several = len({each.program for each in found}) > 1
        return len(found) >= most and (is_several or all(each.is_platform for each in found))
