"""The devices of a manager: those of the machine, or CPU slots, which the next start has again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.support.errors import BadInput, system_reason
from trainmaster.durable_files import write_whole
from trainmaster.gpu.devices import Machine, detect_machine
from trainmaster.model.topology import TopologyError
from trainmaster.text.formatting import plural

SLOTS = "slots"
"""A file of the data folder: what `--slots` said at the last start."""
AUTO = "auto"
"""What `--slots` says for the devices that the machine has."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What a manager hands out, and where that was said."""

    machine: Machine
    slots: str | None
    """What `--slots` says; None: devices are found by themselves."""
    is_remembered: bool
    """Whether that was said at an earlier start."""

    @property
    def shown(self) -> str:
        return plural(self.machine.topology.gpu_count, "CPU slot")


def devices_of(folder: Path, stated: str | None) -> Devices:
    """The devices for this start."""
    if stated is not None:
        slots = None if stated == AUTO else stated
        return Devices(detect_machine(slots), slots, is_remembered=False)
    slots = _remembered(folder)
    try:
        return Devices(detect_machine(slots), slots, is_remembered=slots is not None)
    except TopologyError:
        if slots is None:
            raise
        raise _unreadable(folder / SLOTS, "it is damaged") from None


def remember_slots(folder: Path, slots: str | None) -> None:
    """For the next start; None: devices are found by themselves."""
    if slots is None:
        (folder / SLOTS).unlink(missing_ok=True)
    else:
        write_whole(folder / SLOTS, slots)


def _remembered(folder: Path) -> str | None:
    place = folder / SLOTS
    try:
        return place.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = system_reason(error) if isinstance(error, OSError) else "it is damaged"
        raise _unreadable(place, why) from None


def _unreadable(place: Path, why: str) -> BadInput:
    return BadInput(f"{place} cannot be read ({why}): say the slots with --slots.")
