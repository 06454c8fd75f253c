"""Control groups of one run: what it may use, what belongs to it, and whether memory ran out.

Version 2 and the older version 1 are both known; the engine probes which of them it may write to, and
what it finds is in the run's file. Only the standard library is imported: supervisors load this.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable

from trainmaster.engines.local.device_filter import DeviceFilter
from trainmaster.engines.local.runfile import CgroupPlan

PERIOD_US = 100_000
TRACKING_ROUNDS = 5
OWN_MEMORY = {1: ("total_rss", "total_shmem"), 2: ("anon", "shmem")}
"""In `memory.stat`, by version: what the kernel cannot take back as it can the pages of files."""


class RunCgroups:
    """Creates the groups of a run's ranks, and removes them at the end."""

    def __init__(self, plan: CgroupPlan, name: str) -> None:
        self._plan = plan
        self._name = name
        self.trouble = ""
        """What could not be set up, in words."""
        self._filter: DeviceFilter | None = None
        """Which GPUs it may open; None: it was started without."""

    def prepare(self, ranks: int, minors: Collection[int] | None = None) -> None:
        """One group for the run and one in it for each rank, with its limits.

        OSError if it cannot be kept to these GPUs: without that it must not run.
        """
        try:
            self._prepare(ranks)
        except OSError as problem:
            self.trouble = f"its control groups could not be made: {problem.strerror}"
        if minors is not None:
            group = os.path.join(self._plan.devices_in, self._name)
            os.makedirs(group, exist_ok=True)
            if self._filter is None:
                self._filter = DeviceFilter(group, self._plan.devices_version)
            self._filter.allow(minors)

    def allow(self, minors: Collection[int]) -> None:
        """From now on it may open these GPUs; OSError if the kernel refuses that."""
        if self._filter is not None:
            self._filter.allow(minors)

    def _prepare(self, ranks: int) -> None:
        plan = self._plan
        if self._pids_group:
            os.makedirs(self._pids_group, exist_ok=True)
            put(self._pids_group, "pids.max", str(plan.pids))
        for base in self._limiting():
            run = os.path.join(base, self._name)
            os.makedirs(run, exist_ok=True)
            if plan.version == 2 and base in (plan.memory_in, plan.cpus_in):
                wanted = [
                    name
                    for name, where, is_used in (
                        ("+memory", plan.memory_in, self.has_memory_groups),
                        ("+cpu", plan.cpus_in, plan.cpus is not None),
                    )
                    if where == base and is_used
                ]
                put(run, "cgroup.subtree_control", " ".join(wanted))
            for rank in range(ranks):
                os.makedirs(os.path.join(run, f"rank-{rank}"), exist_ok=True)
        for rank in range(ranks):
            self._limit(rank)

    def _limit(self, rank: int) -> None:
        plan = self._plan
        is_2 = plan.version == 2
        if plan.memory is not None and plan.memory_in:
            folder, most = self._of(plan.memory_in, rank), str(plan.memory)
            put(folder, "memory.max" if is_2 else "memory.limit_in_bytes", most)
            with contextlib.suppress(OSError):
                put(
                    folder,
                    *(("memory.swap.max", "0") if is_2 else ("memory.memsw.limit_in_bytes", most)),
                )
        if plan.cpus is not None and plan.cpus_in:
            folder = self._of(plan.cpus_in, rank)
            quota = max(1000, plan.cpus * PERIOD_US // 1000)
            if is_2:
                put(folder, "cpu.max", f"{quota} {PERIOD_US}")
            else:
                put(folder, "cpu.cfs_period_us", str(PERIOD_US))
                put(folder, "cpu.cfs_quota_us", str(quota))

    def enter(self, rank: int) -> None:
        """Called by the rank before it executes its program, so that all it starts is inside."""
        groups = [self._of(base, rank) for base in self._limiting()]
        if self._pids_group and self._plan.pids_in not in self._limiting():
            groups.append(self._pids_group)
        for group in groups:
            with contextlib.suppress(OSError):
                put(group, "cgroup.procs", "0")

    def enter_filter(self, rank: int) -> None:
        """The same for the group that keeps it to its GPUs; OSError if it cannot be entered.

        That of the run where its ranks have none, because limits were refused.
        """
        base = self._plan.devices_in
        if self._filter is not None:
            whole, group = os.path.join(base, self._name), self._of(base, rank)
            is_split = base in self._limiting() and os.path.isdir(group)
            put(group if is_split else whole, "cgroup.procs", "0")

    def track(self, members: Callable[[], Iterable[int]]) -> None:
        """Gather the run's processes where they are found even if their supervisor is killed.

        Not done at the start: moving a process takes the kernel ten times as long as starting one.
        """
        base = self._plan.tracked_in
        entered = (
            *self._limiting(),
            self._plan.pids_in if self._pids_group else "",
            self._plan.devices_in if self._filter is not None else "",
        )
        if not base or base in entered:
            return
        run = os.path.join(base, self._name)
        with contextlib.suppress(OSError):
            os.makedirs(run, exist_ok=True)
        for _ in range(TRACKING_ROUNDS):
            outside = {*members()} - {*self._tracked()}
            if not outside:
                return
            for pid in outside:
                with contextlib.suppress(OSError):
                    put(run, "cgroup.procs", str(pid))

    def members(self) -> list[int]:
        """Processes in its groups, whatever their parent is: in the one for tracking, once they were moved
        there, and from their start in those that limit their number and keep them to their GPUs."""
        bases = dict.fromkeys((self._plan.tracked_in, self._plan.pids_in, self._plan.devices_in))
        found: dict[int, None] = {}
        for base in filter(None, bases):
            for folder, _, _ in os.walk(os.path.join(base, self._name)):
                listed = os.path.join(folder, "cgroup.procs")
                with contextlib.suppress(OSError), open(listed) as file:
                    found |= dict.fromkeys(map(int, file.read().split()))
        return [*found]

    def _tracked(self) -> list[int]:
        base = self._plan.tracked_in
        with (
            contextlib.suppress(OSError),
            open(os.path.join(base, self._name, "cgroup.procs")) as file,
        ):
            return [*map(int, file.read().split())]
        return []

    def kill(self) -> None:
        """Kill all processes at once, where the kernel can: none can fork in time."""
        if self._plan.tracked_in:
            with contextlib.suppress(OSError):
                put(os.path.join(self._plan.tracked_in, self._name), "cgroup.kill", "1")

    def oom_kills(self, rank: int) -> int:
        """How many of the rank's processes were killed because they used more than its limit."""
        if self._plan.memory is None or not self._plan.memory_in:
            return 0
        name = "memory.events" if self._plan.version == 2 else "memory.oom_control"
        try:
            with open(os.path.join(self._of(self._plan.memory_in, rank), name)) as file:
                said = dict(line.split() for line in file)
        except (OSError, ValueError):
            return 0
        return int(said.get("oom_kill", 0))

    def memory_of(self, rank: int) -> int:
        """Bytes that the rank's processes have together and that are no files; 0: they are not counted."""
        plan = self._plan
        if not self.has_memory_groups:
            return 0
        try:
            with open(os.path.join(self._of(plan.memory_in, rank), "memory.stat")) as file:
                said = dict(line.split() for line in file)
        except (OSError, ValueError):
            return 0
        return sum(int(said.get(name, 0)) for name in OWN_MEMORY[plan.version])

    def remove(self) -> None:
        """Remove the groups; possible once no process is inside."""
        plan = self._plan
        whole = (plan.tracked_in, plan.pids_in, plan.devices_in)
        for base in filter(None, dict.fromkeys((*whole, *self._limiting()))):
            for folder, _, _ in os.walk(os.path.join(base, self._name), topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    @property
    def has_memory_groups(self) -> bool:
        """Whether each rank has a group by which its memory is limited, or counted."""
        plan = self._plan
        return bool(plan.memory_in) and (plan.memory is not None or plan.counts_memory)

    def _limiting(self) -> list[str]:
        """The hierarchies in which this run is limited, or its memory counted: its ranks start there."""
        plan = self._plan
        limits = (
            plan.memory_in if self.has_memory_groups else "",
            plan.cpus_in if plan.cpus is not None else "",
        )
        return [base for base in dict.fromkeys(limits) if base]

    @property
    def _pids_group(self) -> str:
        """The group that limits how many processes the whole run has; empty: nothing does."""
        plan = self._plan
        return os.path.join(plan.pids_in, self._name) if plan.pids_in and plan.pids else ""

    def _of(self, base: str, rank: int) -> str:
        return os.path.join(base, self._name, f"rank-{rank}")


def cgroup_name(socket: str) -> str:
    """A name for the run that no other run on this machine has."""
    return "trainmaster-" + os.path.basename(socket).removesuffix(".sock")


def put(folder: str, name: str, text: str) -> None:
    """Write a control file."""
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
