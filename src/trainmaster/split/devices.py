"""The devices that a model is placed on, and what it costs to send a tensor between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.model.units import NOMINAL, ceil_div


class PlacementError(ValueError):
    """A model that does not fit on these devices: one sentence that says what would."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device, or one of several virtual devices (streams) of a GPU."""

    name: str
    memory: int
    """Bytes that the model may have there."""
    speed: int = NOMINAL
    """Parts per million of the speed for which operators' times are."""
    gpu: str = ""
    """Virtual devices with the same GPU share its memory, and send each other nothing; empty: its own."""

    @property
    def pool(self) -> str:
        """Whose memory it uses."""
        return self.gpu or self.name

    def time(self, nominal: int) -> int:
        """How long an operator takes here."""
        return ceil_div(nominal * NOMINAL, self.speed)


@dataclass(frozen=True, slots=True)
class Link:
    """Time to send bytes from one device to another: a line, as Baechi fits it."""

    per_byte: float = 0.0
    """Nanoseconds."""
    fixed: float = 0.0
    """Nanoseconds."""

    def time(self, size: int) -> int:
        return round(self.per_byte * size + self.fixed)


def check_devices(devices: Sequence[Device]) -> None:
    if not devices:
        raise PlacementError("There are no devices to place the model on: name at least one.")
    names = [each.name for each in devices]
    if len(set(names)) < len(names):
        raise PlacementError("Two devices have the same name: give each its own.")
    for each in devices:
        if each.memory <= 0 or each.speed <= 0:
            raise PlacementError(f"The device {each.name} has no memory or no speed.")
