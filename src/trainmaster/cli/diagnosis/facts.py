"""What `doctor` knows before it judges: frozen values, None where a thing could not be found out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Where a folder lies."""

    kind: str
    """ext4, nfs4, tmpfs, … as /proc/mounts says; empty: not known."""
    options: frozenset[str]
    free: int
    """Bytes that this user may write."""
    inodes_free: int | None
    """None: it does not count them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The computer, and what this user may do with it."""

    python: tuple[int, int]
    kernel: str
    is_linux: bool
    open_files: int
    """The most that a process may have open; the manager raises its soft limit to it."""
    cgroup_remarks: tuple[str, ...]
    """What cannot be limited here, and why."""
    filters_devices: bool
    """Whether jobs can be kept to their GPUs."""
    shm: FileSystem | None
    """/dev/shm, which data loaders pass batches through."""
    shm_bytes: int
    ptrace_scope: int | None
    has_py_spy: bool
    containers: tuple[str, ...]
    """Container runtimes that are installed."""
    clock_is_synchronised: bool | None
    """By the kernel; None: it does not say."""
    now_ms: int
    interpreter_remark: str = ""
    """Why other users cannot run this Python; empty: they can."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The data folder."""

    path: str
    exists: bool
    owner: int | None
    user: int
    """Whoever asks."""
    is_writable: bool
    file_system: FileSystem | None
    exposed: tuple[str, ...]
    """Files with secrets that other users can read."""
    token_mode: int | None
    """Of `admin-token`; None: there is none."""
    log_bytes: int
    home: str
    restored: bool
    """Whether a backup was restored and no manager was started since."""
    mode: int | None = None
    """Its rights; None: it is not there."""
    serves_users: bool = False
    """Whether its manager runs jobs as the users who submit them."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The database, and whether it is the folder's."""

    url: str
    is_there: bool
    trouble: str
    """Why it cannot be read; empty if it can."""
    problem: str
    """What the check for damage found; empty if nothing."""
    schema: str | None
    newest_schema: str
    knows_schema: bool
    bytes: int | None
    """Of an SQLite file and its log."""
    is_led: bool | None
    """Whether a manager holds its lock; None: not known."""
    is_on_server: bool
    backup_age_s: float | None
    """Of the newest `trainmaster backup`."""
    copy_age_s: float | None
    """Of the newest automatic copy."""
    seq: int
    newest_ms: int | None
    """When its newest step was."""
    home: str
    store: str
    mark_store: str
    """The store that the folder was used with last; empty: none."""
    mark_seq: int
    unknown_runs: tuple[str, ...]
    """Runs in the folder with numbers that the store has not given."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What /healthz says."""

    is_ours: bool
    """Whether it is an answer of a manager at all."""
    role: str = ""
    version: str = ""
    trouble: str = ""
    notes: tuple[str, ...] = ()
    step_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Manager:
    """The process that the folder's address file names, and what answers where it should."""

    own_version: str
    address: str
    """`none`, `unreadable`, `dead` (its process has ended) or `alive`."""
    pid: int | None
    url: str
    socket: str
    processes: tuple[int, ...]
    """Managers that use the data folder now."""
    by_socket: Answer | None
    """None: nobody answered, or there is nothing to ask."""
    by_port: Answer | None
    port: int
    port_users: tuple[int, ...]
    """Whose programs listen at that port."""
    stale_sockets: tuple[str, ...]
    """Sockets of this folder's manager that nobody listens on."""
    certificate_days: float | None
    """Until the certificate of an https address ends."""
    certificate_trouble: str


@dataclass(frozen=True, slots=True)
class GpuDevice:
    name: str
    uuid: str
    persistence: bool | None
    ecc_errors: int | None
    has_slices: bool
    """Whether it is cut up by MIG."""
    trouble: str
    others: tuple[tuple[int, int], ...]
    """Processes that no job started, with their bytes."""


@dataclass(frozen=True, slots=True)
class Gpus:
    driver: str
    """Its version; empty: there is none."""
    trouble: str
    has_device_files: bool
    """Whether the kernel has GPUs, whatever NVML says."""
    devices: tuple[GpuDevice, ...]
    has_cuda_core: bool
    has_mps: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that unfinished jobs use."""

    path: str
    jobs: tuple[str, ...]
    what: str
    """working folder or checkpoints."""
    trouble: str
    """Why it cannot be used; empty if it can."""
    file_system: FileSystem | None
    fsync_s: float | None


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs whose supervisor lives."""

    alive: tuple[str, ...]
    leftover: tuple[str, ...]
    """Of jobs that have ended or that the store does not know."""
    missing: tuple[str, ...]
    """Jobs that run by the store, and of which no process is left, while no manager works."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster whose nodes run the jobs."""

    engine: str
    address: str
    has_client: bool
    """Whether the engine's own library is installed here."""
    answers: bool
    refusal: str = ""
    """Why it does not let programs of this shell in: one sentence."""


@dataclass(frozen=True, slots=True)
class Facts:
    machine: Machine
    folder: Folder
    store: StoreFacts
    manager: Manager
    gpus: Gpus
    runs: Runs
    places: tuple[Place, ...] = field(default=())
    cluster: Cluster | None = None
    """None: this machine runs them."""
