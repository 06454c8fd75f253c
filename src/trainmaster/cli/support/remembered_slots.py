"""The devices of a manager: those of the machine, or CPU slots, which the next start has again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.cli.support.remembered_file import kept_text
from trainmaster.config.links import MeasuredLinks
from trainmaster.config.units import size_bytes
from trainmaster.durable_files import write_whole
from trainmaster.errors import BadInput, system_reason
from trainmaster.gpu.devices import Machine, detect_machine, with_memory
from trainmaster.model.topology import TopologyError
from trainmaster.text.formatting import plural

SLOTS = "slots"
"""A file of the data folder: what `--slots` said at the last start."""
GPU_MEMORY = "gpu_memory"
"""The same of `--gpu-memory`."""
AUTO = "auto"
"""What they say for what the machine has."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What a manager hands out, and where that was said."""

    machine: Machine
    slots: str | None
    """What `--slots` says; None: devices are found by themselves."""
    is_remembered: bool
    """Whether slots were said at an earlier start."""
    gpu_memory: str | None = None
    """What `--gpu-memory` says; None: all that a GPU has."""
    has_remembered_memory: bool = False
    """Whether that was said at an earlier start, and there are GPUs now."""

    def with_links(self, links: MeasuredLinks) -> Devices:
        """The same with measured links between them."""
        topology = replace(self.machine.topology, links=links)
        return replace(self, machine=replace(self.machine, topology=topology))

    @property
    def shown(self) -> str:
        return plural(self.machine.topology.gpu_count, "CPU slot")


def devices_of(folder: Path, stated: str | None, gpu_memory: str | None = None) -> Devices:
    """The devices for this start."""
    is_slots_remembered = stated is None
    slots = _remembered(folder, SLOTS) if stated is None else None if stated == AUTO else stated
    try:
        machine = detect_machine(slots)
    except TopologyError:
        if slots is None or not is_slots_remembered:
            raise
        raise _unreadable(folder, SLOTS, "it is damaged") from None
    if gpu_memory is not None and gpu_memory != AUTO and not machine.devices:
        raise BadInput(f"--gpu-memory {gpu_memory}: there are no GPUs, only CPU slots.")
    memory = _remembered(folder, GPU_MEMORY) if gpu_memory is None else gpu_memory
    memory = None if memory == AUTO else memory
    has_memory = memory is not None and bool(machine.devices)
    if memory is not None and has_memory:
        machine = _with_memory(machine, memory)
    return Devices(
        machine,
        slots,
        is_slots_remembered and slots is not None,
        memory,
        has_memory and gpu_memory is None,
    )


def _with_memory(machine: Machine, memory: str) -> Machine:
    try:
        return with_memory(machine, size_bytes(memory))
    except TopologyError as error:
        raise BadInput(f"--gpu-memory {memory} {error}.") from None
    except ValueError as error:
        raise BadInput(f"--gpu-memory {error}.") from None


def remember_devices(folder: Path, devices: Devices) -> None:
    """For the next start."""
    for name, said in ((SLOTS, devices.slots), (GPU_MEMORY, devices.gpu_memory)):
        if said is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_whole(folder / name, said)


def _remembered(folder: Path, name: str) -> str | None:
    try:
        return kept_text(folder / name).strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = system_reason(error) if isinstance(error, OSError) else "it is damaged"
        raise _unreadable(folder, name, why) from None


WAYS_OUT = {SLOTS: "say the slots with --slots", GPU_MEMORY: "say the memory with --gpu-memory"}


def _unreadable(folder: Path, name: str, why: str) -> BadInput:
    return BadInput(f"{folder / name} cannot be read ({why}): {WAYS_OUT[name]}.")
