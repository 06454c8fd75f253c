"""What must hold before a run's GPU memory is taken out by the driver: checked before anything is touched.

Managed memory cannot be seen from outside: the driver refuses it in the middle, and all is walked back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_DRIVER = 570
"""The first with the calls in libcuda, and with a timeout for the lock."""
LEAST_TO_MOVE = 580
GIB = 1 << 30
RESERVE = GIB // 2
"""Host memory that stays free for everybody."""
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why it is not done: one sentence."""

    why: str
    is_final: bool
    """Whether it stays so for as long as the program runs."""


@dataclass(frozen=True, slots=True)
class Room:
    """Host memory that is left, and where."""

    where: str
    left: int
    needed: int


def driver_refusal(version: str) -> Refusal | None:
    major = major_of(version)
    if major >= LEAST_DRIVER:
        return None
    found = f"this is {version}" if version else "none answers here"
    return Refusal(f"Suspending on a GPU needs driver {LEAST_DRIVER} or later; {found}.", True)


def major_of(version: str) -> int:
    first = version.split(".", maxsplit=1)[0]
    return int(first) if first.isdecimal() else 0


def device_refusal(devices: Sequence[str], is_mps_client: bool) -> Refusal | None:
    """By what the run was started with."""
    if any(each.startswith("MIG-") for each in devices):
        return Refusal("The driver cannot suspend programs on MIG slices.", True)
    if is_mps_client:
        return Refusal("The driver cannot suspend clients of MPS.", True)
    return None


def nccl_refusal(processes: int, has_communicators: bool) -> Refusal | None:
    if processes > 1 and has_communicators:
        return Refusal(
            f"Its {processes} GPU processes are joined by NCCL, which the driver cannot suspend.",
            True,
        )
    return None


def room_refusal(rooms: Sequence[Room]) -> Refusal | None:
    """All that it has on its GPUs must fit into host memory."""
    for room in rooms:
        if room.left < room.needed:
            return Refusal(
                f"It has {room.needed / GIB:.1f} GiB on its GPUs, and only {max(0, room.left) / GIB:.1f} "
                f"GiB of host memory are left {room.where}.",
                False,
            )
    return None


def machine_room(needed: int) -> Room:
    with open("/proc/meminfo") as file:
        said = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file if ":" in line}
    return Room("on this machine", said.get("MemAvailable", UNLIMITED) - RESERVE, needed)


def cgroup_rooms(pid: int, needed: int) -> list[Room]:
    """In its control groups of both versions, with all above them."""
    found = []
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    for number, controllers, path in rows:
        if number == "0":
            base, most, used = "/sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, most, used = (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )
        else:
            continue
        while True:
            limit, now = _number(base + path, most), _number(base + path, used)
            if limit is not None and now is not None and limit < UNLIMITED:
                found.append(Room("within its limit (`memory`)", limit - now, needed))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    return found


def _number(folder: str, name: str) -> int | None:
    try:
        with open(os.path.join(folder, name)) as file:
            return int(file.read())
    except (OSError, ValueError):  # no such group, or `max`
        return None
