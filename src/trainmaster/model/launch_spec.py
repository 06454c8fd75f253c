"""What a job's processes are started from: everything an engine must know that a policy need not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.units import MIB, SECOND

PRERUN_MS = 60 * SECOND
"""How long a pre-run takes at most, where nothing else is said."""
OUT_OF_SIGHT = ("docker", "podman")
"""Engines of containers that are not children of the processes that we start."""
CONTAINER_LABEL = "trainmaster.socket"
"""What their containers are found by: it has the socket of the run, which no other run has."""
MOST_PIDS = "TRAINMASTER_MOST_PIDS"
"""How many processes and threads such a container may have: for its command line."""


class Ranks(Enum):
    """How many processes a gang has."""

    PER_GPU = "gpu"
    """One for each GPU: a program that reads RANK and WORLD_SIZE."""
    PER_NODE = "node"
    """One for each node, which sees all its GPUs: an ordinary program, or a launcher such as torchrun."""


class OnHang(Enum):
    """What is done about a run that hangs."""

    REPORT = "report"
    RESTART = "restart"
    """It is told to save and to end, and counts as failed."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much of a rank's output is kept: the newest."""

    file_bytes: int = 16 * MIB
    files: int = 4


@dataclass(frozen=True, slots=True)
class Account:
    """A Unix account, as the machine knew it when a job was submitted: the job's processes run as it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str = "/bin/sh"


@dataclass(frozen=True, slots=True)
class GangPart:
    """The part of a gang that is on one node: how its ranks are counted, and where all of them meet."""

    first_rank: int
    world: int
    node_rank: int
    nodes: int
    host: str
    """The address of the first node, as the others reach it; not used where that is the only one."""
    port: int
    generation: int = 0
    """How often the gang was started or resized before, under this attempt."""
    in_place: bool = False
    """Whether it is resized while it trains: its new ranks join others, and nobody regroups before all nodes
    are ready."""
    numbers: tuple[int, ...] = ()
    """By which new processes of an `in_place` part are known, in the gang."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One job's program with its environment. Every attempt is started from the same one."""

    command: tuple[str, ...]
    workdir: str
    checkpoint_dir: str
    name: str = ""
    user: str = ""
    env: tuple[tuple[str, str], ...] = ()
    prefix: tuple[str, ...] = ()
    """A container's command line, put before the command."""
    ranks: Ranks = Ranks.PER_GPU
    launcher: str = ""
    """The program that starts the workers, such as torchrun; empty where the command does not name one."""
    umask: int = 0o022
    """Rights that files of its processes do not get."""
    program_files: str = ""
    """A file that lists the program's files as they were at submission; empty where that is not known."""
    grace_ms: int = 30 * SECOND
    memory: int | None = None
    """Most bytes of host memory that each rank may use; None = not limited."""
    limits_gpu_memory: bool = True
    """Whether MPS keeps each rank to the GPU memory that is booked for it: not where nobody stated that."""
    cpus: int | None = None
    """Most thousandths of a core that each rank may use; None = not limited."""
    max_runtime_ms: int | None = None
    """How long it may run in all; the daemon enforces it, and the program can read when it ends."""
    array_index: int | None = None
    array_size: int | None = None
    may_stay_in_memory: bool = True
    """Whether it may be suspended where it is, by stopping its processes."""
    counts_steps: bool = True
    """Whether the optimizer steps of a PyTorch program are counted without its help."""
    tolerance_ppm: int = 30_000
    """How much slower opportunistic jobs on its GPUs may make it."""
    on_hang: OnHang = OnHang.REPORT
    longest_silence_ms: int = 0
    """The longest that earlier attempts have lived through; only in what an engine is given to launch."""
    preflight: bool = False
    """Whether it is run on one of its devices first, where it asks for several."""
    prerun_ms: int = PRERUN_MS
    """How long a pre-run takes at most, ..."""
    prerun_steps: int = 20
    """... and after how many steps it is over before that."""
    prerun_attempts: int = 0
    """How many of its attempts were pre-runs; only in what an engine is given to launch."""
    program_digest: str = ""
    """Of the program's files as they were at submission; empty where they were not looked at."""
    logs: LogLimits = LogLimits()
    uuid: str = ""
    """Of the job, chosen at submission: numbers begin again with another store, this does not.
    Empty for a job that was submitted to an earlier version."""
    row: str = ""
    """The job as the store has it, as JSON; only in what an engine is given to launch."""
    account: Account | None = None
    """Who its processes run as; None: the manager's own account."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Variables whose values its processes read from files when they start: names and paths."""
    data: tuple[str, ...] = ()
    """Paths that it reads, as its submitter said; only in what an engine is given to launch."""
    speeds: tuple[tuple[str, int], ...] = ()
    """Of each of its nodes, how fast a device there is; only in what an engine is given to launch."""
    part: GangPart | None = None
    """Which part of a gang on several machines; only in what a node's launcher is given. None: all of it."""

    @property
    def container_engine(self) -> str:
        """The program that runs its containers; empty for none."""
        return self.prefix[-1] if self.prefix else ""
