"""Finds out, by trying, which control groups this machine lets us use."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from trainmaster.engines.local import processes
from trainmaster.engines.local.cgroups import put
from trainmaster.engines.local.device_filter import DeviceFilter
from trainmaster.engines.local.runfile import CgroupPlan

PROBE = "trainmaster-probe-"
ADVICE = (
    "this machine does not let us use control groups; where systemd runs, start Trainmaster by "
    "`systemd-run --user --scope -p Delegate=yes trainmaster up`."
)


UNTRACKED = (
    "Processes of a job that hide from it (in a session and an environment of their own) are left running"
    " if its supervisor and the guard beside it are both killed: they are not in a control group."
)


UNFILTERED = (
    "Jobs are told which GPUs are theirs, and nothing keeps them from opening others: that takes a manager"
    " that root has started, and control groups that filter devices."
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    plan: CgroupPlan
    remarks: tuple[str, ...]


def probe() -> ProbeResult:
    """Create a group, move a process into it, limit it, and remove it again."""
    unified, versions_1 = hierarchies()
    unified = _parent_group(unified) if unified else ""
    tracked = unified if unified and _works(unified) else ""
    memory, cpus, version = "", "", 2
    if tracked:
        memory = tracked if _delegates(tracked, "memory", "memory.max", str(1 << 30)) else ""
        cpus = tracked if _delegates(tracked, "cpu", "cpu.max", "100000 100000") else ""
    if not memory and not cpus:
        version = 1
        at = versions_1.get("memory", "")
        memory = at if at and _limits(at, "memory.limit_in_bytes", str(1 << 30)) else ""
        at = versions_1.get("cpu", "")
        cpus = at if at and _limits(at, "cpu.cfs_quota_us", "100000") else ""
    pids = tracked if tracked and _delegates(tracked, "pids", "pids.max", "1000") else ""
    if not pids:
        at = versions_1.get("pids", "")
        pids = at if at and _limits(at, "pids.max", "1000") else ""
    limits = (("host memory", memory), ("CPUs", cpus), ("processes", pids))
    missing = [name for name, at in limits if not at]
    remarks = (f"Limits on {' and '.join(missing)} are not kept: {ADVICE}",) if missing else ()
    if not tracked:
        remarks = (*remarks, UNTRACKED)
    devices, devices_version = filter_group(tracked, versions_1.get("devices", ""))
    plan = CgroupPlan(
        *(tracked, memory, cpus, version),
        pids_in=pids,
        devices_in=devices,
        devices_version=devices_version,
    )
    return ProbeResult(plan, remarks)


def filter_group(unified: str, old: str) -> tuple[str, int]:
    """Where groups can be kept to some GPUs, and in which version; empty: nowhere."""
    for base, version in ((unified, 2), (old, 1)):
        if base and _works(base, partial(_filter, version=version)):
            return base, version
    return "", 2


def _filter(group: str, version: int) -> None:
    """OSError also for a group in which only listed devices are allowed, such as a container's: there a rule
    against one device may change nothing."""
    if version == 1:
        with open(os.path.join(group, "devices.list")) as file:
            if not file.read().startswith("a *:* rwm"):
                raise PermissionError(group)
    DeviceFilter(group, version).allow(())


def _parent_group(own: str) -> str:
    """The group below which ours are made: with limits, where it has no processes of its own.

    The manager moves into a group of its own where its group was made for it alone: by systemd in a
    scope that is delegated, or as the root of a container. Not in a service: systemd could not start it
    again while jobs are left in there; `DelegateSubgroup=` has it begin one level lower.
    """
    above = os.path.dirname(own)
    if _is_ours(above) and not _processes(above):
        return above
    may_step_aside = _is_ours(own) and not own.endswith(".service")
    if may_step_aside and _processes(own) <= {os.getpid(), *processes.descendants(os.getpid())}:
        with contextlib.suppress(OSError):
            aside = os.path.join(own, "trainmaster-daemon")
            os.makedirs(aside, exist_ok=True)
            for pid in _processes(own):
                put(aside, "cgroup.procs", str(pid))
    return own


def _is_ours(group: str) -> bool:
    """Whether the group is delegated to us, by systemd or as the root of a container."""
    with contextlib.suppress(OSError):
        if os.getxattr(group, "user.delegate") == b"1":
            return True
    is_mount = os.path.ismount(group)
    return is_mount and os.path.exists(os.path.join(group, "cgroup.type"))


def _processes(group: str) -> set[int]:
    """Those in the group itself; 0 stands for processes that we cannot see."""
    try:
        with open(os.path.join(group, "cgroup.procs")) as file:
            return set(map(int, file.read().split()))
    except OSError:
        return {0}


def hierarchies() -> tuple[str, dict[str, str]]:
    """Our own group in the unified hierarchy, and in each of the old ones by controller."""
    own: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                own[controller] = path
    unified, old = "", {}
    with contextlib.suppress(OSError), open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            root, at = before.split()[3:5]
            kind, _, options = after.split()[:3]
            if kind == "cgroup2":
                unified = _below(at, root, own.get("", "/"))
            elif kind == "cgroup":
                for controller in set(options.split(",")) & own.keys():
                    old[controller] = _below(at, root, own[controller])
    return unified, old


def _below(mount: str, root: str, path: str) -> str:
    """A group's folder, where a container may see only a part of the hierarchy."""
    inside = path.removeprefix(root.rstrip("/")) if root != "/" else path
    return os.path.normpath(f"{mount}/{inside}")


def _delegates(base: str, controller: str, file: str, text: str) -> bool:
    """Whether groups below can be limited; switching the controller on may be refused."""
    with contextlib.suppress(OSError), open(os.path.join(base, "cgroup.controllers")) as known:
        if controller in known.read().split():
            with contextlib.suppress(OSError):
                put(base, "cgroup.subtree_control", f"+{controller}")
            return _limits(base, file, text)
    return False


def _limits(base: str, file: str, text: str) -> bool:
    return _works(base, lambda group: put(group, file, text))


def _works(base: str, limit: Callable[[str], None] | None = None) -> bool:
    """Whether a process can be moved into a group that is limited like that."""
    group = os.path.join(base, f"{PROBE}{os.getpid()}")
    try:
        _clear(base)
        os.mkdir(group)
    except OSError:
        return False
    try:
        if limit is not None:
            limit(group)
        with _test_process() as pid:
            put(group, "cgroup.procs", str(pid))
        return True
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(group)


def _clear(base: str) -> None:
    """Remove groups left behind by probes that were killed."""
    for name in os.listdir(base):
        pid = name.removeprefix(PROBE)
        if name.startswith(PROBE) and pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(base, name))


@contextmanager
def _test_process() -> Iterator[int]:
    """A process to move between groups; it reads from us, so that it ends when we are killed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process.pid
