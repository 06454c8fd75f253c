"""What a supervisor is to run: a file in the run's folder, written by the engine before it is started.

`run.json` is what the run begins with; `run-2.json` and so on are what it is reshaped into.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from trainmaster.durable_files import write_whole
from trainmaster.failures.hang_rule import HangLimits
from trainmaster.model.launch_spec import Account


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One process: its command, and what only it has in its environment."""

    argv: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class CgroupPlan:
    """Where the run's control groups are made, and what they limit; empty = not possible here."""

    tracked_in: str = ""
    """A folder of the unified hierarchy: everything that the run starts is found there."""
    memory_in: str = ""
    cpus_in: str = ""
    version: int = 2
    """Of the two that limit: the files are called differently."""
    memory: int | None = None
    """Bytes for each rank."""
    cpus: int | None = None
    """Thousandths of a core for each rank."""
    pids_in: str = ""
    pids: int | None = None
    """Processes and threads of the whole run."""
    devices_in: str = ""
    """Where the run can be kept to its GPUs."""
    devices_version: int = 2
    minors: tuple[int, ...] | None = None
    """The only GPUs that it may open, by the minor numbers of their files; None: any."""
    counts_memory: bool = False
    """Whether each rank has a group in `memory_in` though nothing limits its memory: to know what it uses."""


@dataclass(frozen=True, slots=True)
class HangPlan:
    """When a run counts as hung, and whether it is restarted then."""

    limits: HangLimits
    restarts: bool = False
    known_ms: int = 0
    """Its longest silence in earlier attempts."""
    sees_processes: bool = True
    """False: its program runs out of sight, so nothing is known of it but its steps and its output."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """Everything that a supervisor needs to know."""

    name: str
    """`job.attempt`."""
    generation: int
    """How often the run's processes have been started before, under this supervisor."""
    workdir: str
    env: dict[str, str]
    """What all ranks have in their environment."""
    ranks: tuple[RankSpec, ...]
    socket: str
    grace_ms: int
    log_bytes: int
    log_files: int
    placement: str
    """Where it runs, as text that is equal only for equal placements."""
    cgroups: CgroupPlan
    umask: int = 0o022
    program_files: str = ""
    """Where the program's files are listed as they were at submission; empty: not known."""
    freezer: str = "stop"
    """For supervisors of earlier versions, which look it up."""
    uuid: str = ""
    """Of the job; empty for one that was submitted to an earlier version."""
    row: str = ""
    """The job as the store has it, as JSON: what a store is rebuilt from."""
    sharing: str = ""
    """`mps` for a client of its GPU's MPS daemon, which cannot be frozen; empty for any other."""
    role: str = ""
    """guaranteed or opportunistic."""
    tolerance_ppm: int = 0
    """How much slower opportunistic runs on its GPUs may make it."""
    gpus_folder: str = ""
    """Where the runs of each GPU tell each other how fast they are; empty: it has CPU slots."""
    hang: HangPlan | None = None
    """None: nobody looks whether it hangs."""
    prerun_ms: int = 0
    """A pre-run is ended after this time, ..."""
    prerun_steps: int = 0
    """... or after so many steps; 0 in both: it is not a pre-run."""
    account: Account | None = None
    """Who its ranks run as; None: as their supervisor."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Variables whose values ranks read from files, as their user, when they start."""
    container_engine: str = ""
    """The program that runs its containers; empty for none."""
    first_rank: int = 0
    """The number of its first rank in a gang on several machines."""
    gang_generation: int = 0
    """How often the gang that it is a part of had been started or resized before."""
    slots: tuple[str, ...] = ()
    """What each rank has for itself, and keeps: its GPUs, or its node where it has CPU slots."""
    in_place: bool = False
    """Whether its new ranks join others that train, on other machines too: it is told when all are ready."""
    numbers: tuple[int, ...] = ()
    """By which those new processes are known."""


APART = {"pids": ("pids_in", "pids"), "devices": ("devices_in", "devices_version", "minors")} | {
    "memory": ("counts_memory",)
}
"""What is said of control groups in fields of its own."""
LATER = frozenset({"uuid", "row", "sharing", "role", "tolerance_ppm", "gpus_folder", "hang"}) | {
    "prerun_ms",
    "prerun_steps",
    "account",
    "secrets",
    "container_engine",
    "first_rank",
    "gang_generation",
    "slots",
    "in_place",
    "numbers",
}
FIELDS = frozenset(each.name for each in fields(RunFile))
LARGEST = 64 << 20
"""Characters that a run file may have."""


def path_of(folder: str, generation: int) -> str:
    name = "run.json" if generation == 0 else f"run-{generation}.json"
    return os.path.join(folder, name)


def write(folder: str, run: RunFile) -> None:
    """All of it or nothing, readable by its owner alone: environments hold secrets."""
    write_whole(path_of(folder, run.generation), json.dumps(_stated(run)), mode=0o600)


def _stated(run: RunFile) -> dict[str, Any]:
    """Without what is empty, and with what they do not know in fields of its own: supervisors of earlier
    versions know no other fields."""
    said = {name: value for name, value in asdict(run).items() if value or name not in LATER}
    groups = said["cgroups"]
    return said | {
        field: {name: groups.pop(name) for name in names} for field, names in APART.items()
    }


def read(folder: str, generation: int = 0) -> RunFile:
    """ValueError for a file that another Trainmaster wrote, or a power failure has emptied."""
    path = path_of(folder, generation)
    said: dict[str, Any] = json.loads(_content(path))
    try:
        ranks = tuple(RankSpec(tuple(each["argv"]), each["env"]) for each in said.pop("ranks"))
        cgroups = _cgroup_plan(said)
        hang, account = said.pop("hang", None), said.pop("account", None)
        slots, numbers = tuple(said.pop("slots", ())), tuple(said.pop("numbers", ()))
        known = {name: value for name, value in said.items() if name in FIELDS}
        return RunFile(
            ranks=ranks,
            slots=slots,
            numbers=numbers,
            cgroups=cgroups,
            hang=_hang_plan(hang),
            account=None if account is None else Account(**account),
            **known,
        )
    except (TypeError, KeyError, AttributeError) as problem:
        raise ValueError(f"{path} is not what this Trainmaster writes: {problem}") from None


def _content(path: str) -> str:
    """What the file says. ValueError where it is not a file that this user, or root, has written: a link
    could lead anywhere, a pipe be waited for, and what another user wrote could be made up."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path} is a link") from None
        raise
    with open(opened) as file:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            raise ValueError(f"{path} is not a file of this user")
        said = file.read(LARGEST + 1)
    if len(said) > LARGEST:
        raise ValueError(f"{path} is longer than {LARGEST:,} characters")
    return said


def _cgroup_plan(said: dict[str, Any]) -> CgroupPlan:
    groups = said.pop("cgroups")
    for apart in APART:
        groups |= said.pop(apart, {})
    minors = groups.pop("minors", None)
    return CgroupPlan(**groups, minors=None if minors is None else tuple(minors))


def _hang_plan(said: dict[str, Any] | None) -> HangPlan | None:
    return None if said is None else HangPlan(**said | {"limits": HangLimits(**said["limits"])})


def stated(folder: str, field: str) -> str | None:
    """A text of the run's first file, whichever version wrote it; None if it does not say."""
    try:
        said = json.loads(_content(path_of(folder, 0)))
    except (OSError, ValueError):
        return None
    found = said.get(field) if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


def socket_of(folder: str) -> str | None:
    """Where the run's supervisor listens."""
    return stated(folder, "socket")


def newest(folder: str) -> RunFile | None:
    """The newest run file; None if none was ever written."""
    if not os.path.isdir(folder):
        return None
    generations = [
        int(name[4:-5])
        for name in os.listdir(folder)
        if name.startswith("run-") and name.endswith(".json") and name[4:-5].isdecimal()
    ]
    try:
        return read(folder, max(generations, default=0))
    except FileNotFoundError:
        return None


def write_row(folder: str, uuid: str, row: str) -> None:
    """Give the newest run file the job as the store has it now, if it is that job's."""
    last = newest(folder)
    if last is not None and last.uuid in ("", uuid):
        write(folder, replace(last, row=row))
