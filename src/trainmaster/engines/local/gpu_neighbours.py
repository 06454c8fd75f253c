"""What runs on one GPU tell each other: a small file for each, in a folder of the GPU.

Each supervisor writes its own and reads the others'. One that was not written for a while counts as gone, so
nothing has to be cleaned up after a crash, and no manager is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from trainmaster_sdk.wire import FULL_PACE

FRESH_S = 5.0
"""Older files are those of supervisors that have died."""
OPPORTUNISTIC = "opportunistic"


@dataclass(frozen=True, slots=True)
class Notice:
    """What a run says of itself."""

    run: str
    role: str
    at: float
    """When it was written, in seconds since 1970."""
    pace: int = FULL_PACE
    tolerance_ppm: int = 0
    """How much slower it may become."""
    step_us: int = 0
    """How long its steps took in the last second or so; 0: it makes none."""
    alone_us: int = 0
    """How long they take without opportunistic runs beside it; 0: not known."""
    since: float = 0.0
    """When the measurement of `step_us` began."""


def write(folder: str, gpus: Iterable[str], notice: Notice) -> None:
    for place in _places(folder, gpus):
        os.makedirs(place, mode=0o700, exist_ok=True)
        path = os.path.join(place, f"{notice.run}.json")
        with open(f"{path}.new", "w") as file:
            json.dump(asdict(notice), file)
        os.replace(f"{path}.new", path)


def remove(folder: str, gpus: Iterable[str], run: str) -> None:
    for place in _places(folder, gpus):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(place, f"{run}.json"))


def read(folder: str, gpus: Iterable[str], own: str, now: float) -> list[Notice]:
    """What the others on these GPUs say now, each once."""
    found: dict[str, Notice] = {}
    for place in _places(folder, gpus):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            notice = _read_one(os.path.join(place, name)) if name.endswith(".json") else None
            if notice is not None and notice.run != own and abs(now - notice.at) < FRESH_S:
                found[notice.run] = notice
    return [found[name] for name in sorted(found)]


def _read_one(path: str) -> Notice | None:
    try:
        with open(path) as file:
            return Notice(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None  # being removed, or of another version


def _places(folder: str, gpus: Iterable[str]) -> list[str]:
    return [os.path.join(folder, gpu.replace("/", "_")) for gpu in gpus]
