"""What must hold before a run's GPU memory is taken out by the driver: checked before anything is touched.

Managed memory cannot be seen from outside: the driver refuses it in the middle, and all is walked back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_DRIVER = 570
"""The first with the calls in libcuda, and with a timeout for the lock."""
LEAST_TO_MOVE = 580
GIB = 1 << 30
RESERVE = GIB // 2
"""Host memory that stays free for everybody."""
UNLIMITED = 1 << 60
FILES = {
    1: (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}
"""By the version of control groups: the files that say its limit and its use, and what is cached of files."""


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


def cgroup_rooms(held: Mapping[int, int]) -> list[Room]:
    """In the control groups of processes that have so many bytes on GPUs, with all groups above them.

    Processes that share a group need room for all of them there. What is cached of files gives way.
    """
    needed: dict[tuple[str, int], int] = {}
    for pid, size in held.items():
        for group in cgroups_of(pid):
            needed[group] = needed.get(group, 0) + size
    found = []
    for (folder, version), size in needed.items():
        most, used, cached = FILES[version]
        limit, now = _number(folder, most), _number(folder, used)
        if limit is not None and now is not None and limit < UNLIMITED:
            left = limit - now + _of_stat(folder, cached)
            found.append(Room("within its limit (`memory`)", left, size))
    return found


def cgroups_of(pid: int) -> list[tuple[str, int]]:
    """The folders of its memory groups, and of all above them, each with its version; none where it ended."""
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    found = []
    for number, controllers, path in rows:
        if number == "0":
            base, version = "/sys/fs/cgroup", 2
        elif "memory" in controllers.split(","):
            base, version = "/sys/fs/cgroup/memory", 1
        else:
            continue
        while path not in ("", "/"):
            found.append((base + path, version))
            path = os.path.dirname(path)
        found.append((base, version))
    return found


def memory_limit(groups: Sequence[tuple[str, int]]) -> int | None:
    """The least that these memory groups may have; None: nothing limits them."""
    limits = (_number(folder, FILES[version][0]) for folder, version in groups)
    return min((each for each in limits if each is not None and each < UNLIMITED), default=None)


def _number(folder: str, name: str) -> int | None:
    try:
        with open(os.path.join(folder, name)) as file:
            return int(file.read())
    except (OSError, ValueError):  # no such group, or `max`
        return None


def _of_stat(folder: str, names: Sequence[str]) -> int:
    """Bytes of files that the kernel gives up before it ends a process."""
    try:
        with open(os.path.join(folder, "memory.stat")) as file:
            said = dict(line.split() for line in file)
        return sum(int(said.get(name, 0)) for name in names)
    except (OSError, ValueError):
        return 0
