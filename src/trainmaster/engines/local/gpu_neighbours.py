"""What runs on one GPU tell each other: a small file for each, in a folder of the GPU.

Each supervisor writes its own and reads the others'. One that was not written for a while counts as gone, so
no manager is needed after a crash; readers remove it an hour later.
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
KEEP_S = 3600.0
"""After this time the next reader removes them."""
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
    """What the others on these GPUs say now, each once. What has been old for long is removed."""
    found: dict[str, Notice] = {}
    for place in _places(folder, gpus):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for path in (os.path.join(place, name) for name in names):
            notice = _read_one(path) if path.endswith(".json") else None
            if notice is None or abs(now - notice.at) >= FRESH_S:
                _remove_old(path, notice, now)
            elif notice.run != own:
                found[notice.run] = notice
    return [found[name] for name in sorted(found)]


def _read_one(path: str) -> Notice | None:
    try:
        with open(path) as file:
            return Notice(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None  # being removed, or of another version


def _remove_old(path: str, notice: Notice | None, now: float) -> None:
    with contextlib.suppress(OSError):
        written_at = os.stat(path).st_mtime if notice is None else notice.at
        if now - written_at > KEEP_S:
            os.unlink(path)


def _places(folder: str, gpus: Iterable[str]) -> list[str]:
    return [os.path.join(folder, gpu.replace("/", "_")) for gpu in gpus]
