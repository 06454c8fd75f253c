"""Whether this machine's driver can suspend GPU programs at all, and what is missing where it cannot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from trainmaster.gpu.cuda_process import NOT_INSTALLED
from trainmaster.gpu.driver import FAKE_GPUS, Driver, DriverError, open_driver
from trainmaster.gpu.freeze_conditions import (
    LEAST_TO_MOVE,
    device_refusal,
    driver_refusal,
    major_of,
)


@dataclass(frozen=True, slots=True)
class FreezingAbility:
    missing: str = ""
    """Why no program can be suspended: a sentence; empty where some can be."""
    can_move: bool = False
    """Whether a suspended one can go on on another GPU of its kind (not seen on hardware)."""


def freezing_ability(devices: Sequence[str], driver: Driver | None = None) -> FreezingAbility:
    """By the driver's version, its devices, and what is installed beside us."""
    try:
        version = (driver or open_driver()).version
    except DriverError as problem:
        return FreezingAbility(f"The driver's version is not known: {problem}.")
    is_cut_up = all(each.startswith("MIG-") for each in devices)
    refused = driver_refusal(version) or (device_refusal(devices, False) if is_cut_up else None)
    if refused is not None:
        return FreezingAbility(refused.why)
    if not has_checkpoints():
        return FreezingAbility(NOT_INSTALLED)
    return FreezingAbility(can_move=major_of(version) >= LEAST_TO_MOVE and len(devices) > 1)


def has_checkpoints() -> bool:
    if os.environ.get(FAKE_GPUS):
        return True
    try:
        return find_spec("cuda.core") is not None and find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False
