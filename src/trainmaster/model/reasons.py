"""Why a job waits, and why an action was refused: closed sets with their numbers, worded at the edge."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.placement import Sharing
from trainmaster.model.quota import Period
from trainmaster.model.reservation import Reservation


class Why(Enum):
    """The one primary reason a job waits."""

    NOT_ENOUGH_FREE = "NotEnoughFree"
    """Fewer GPUs are free than it needs."""
    FRAGMENTED = "Fragmented"
    """Enough GPUs are free, but not where it may use them together; `until_ms`: it takes these then."""
    HOST_TAKEN = "HostTaken"
    """Enough GPUs are free, but not enough host memory or CPUs beside them: `host`."""
    GPU_MEMORY_TAKEN = "GpuMemoryTaken"
    """A part of a GPU is free that is large enough, but not enough of its memory: `part`."""
    SHARED_OTHERWISE = "SharedOtherwise"
    """A part of a GPU is free that is large enough, but jobs share that GPU in another way: `part`."""
    NOT_MEASURED = "NotMeasured"
    """It may run beside jobs, `held_by`, once it has been measured what those use of their GPUs."""
    GPU_BUSY = "GpuBusy"
    """It may run only beside jobs that leave GPUs idle for a part of the time: those, `held_by`, do not."""
    STOPPED_ON_NODE = "StoppedOnNode"
    """Its processes are stopped in memory on nodes, named by `detail`, where they cannot go on now."""
    BEHIND_OTHERS = "BehindOthers"
    """It would fit; the policy lets an earlier job go first."""
    SHARE_USED_UP = "ShareUsedUp"
    """Its queue already holds its share."""
    USER_GPU_LIMIT = "UserGpuLimit"
    """Its user holds as many GPUs as one user may: `quota`."""
    USER_RUNNING_LIMIT = "UserRunningLimit"
    """As many jobs of its user run as may: `quota`."""
    BUDGET_USED_UP = "BudgetUsedUp"
    """The GPU-hours of its queue or its user are used up, `quota`; `until_ms`: they are renewed then."""
    RESERVED = "Reserved"
    """The GPUs it could use are held for another job."""
    WAITING_FOR_RELEASE = "WaitingForRelease"
    """It has GPUs promised that are still being released."""
    DEADLINE_LEAVES_TIME = "DeadlineLeavesTime"
    """Its deadline is accepted and not near yet: others go first until `until_ms`."""
    NEVER_FITS = "NeverFits"
    """No state of this cluster could hold it."""
    DEPENDENCY = "Dependency"
    """Other jobs have to end first: `after`."""
    ARRAY_LIMIT = "ArrayLimit"
    """Only `limit` jobs of its array may run at once."""
    HELD = "Held"
    """A user keeps it from starting, from its submission on or since."""
    SUSPENDED_BY_USER = "SuspendedByUser"
    """By `by`; its processes are stopped in memory on nodes, named by `detail`, where there is `drained`."""
    SUSPENDED_IDLE = "SuspendedIdle"
    """An interactive session that was not used, and was suspended for that."""
    OVER_GPU_MEMORY = "OverGpuMemory"
    """It used more GPU memory than it had booked, and is being stopped to start again with more."""
    PRERUN = "Prerun"
    """Another job, `held_by`, runs the same program on one device first."""
    RETRY_DELAY = "RetryDelay"
    """Its last run failed or was lost: it is tried again at `until_ms`."""
    INPUT_BLOCKED = "InputBlocked"
    """It names an input, `detail`, on which the jobs `failed` failed: set aside since `since_ms`."""
    AVOIDS_DEVICES = "AvoidsDevices"
    """It failed on devices, named by `detail`, that are free: it waits for others until `until_ms`."""
    MAINTENANCE = "Maintenance"
    """Nodes that it could use are in maintenance, or will be before it ends: `kept_free`."""
    RESERVATION = "Reservation"
    """Devices that it could use are kept for others, or will be before it ends: `kept_free`."""
    FASTER_TYPE = "FasterType"
    """Devices are free for it, and it is expected to end sooner on faster ones: `detail`, at `until_ms`."""
    NEXT_PASS = "NextPass"
    """It would fit and no other job goes first: the policy has not started it yet."""
    POLICY_FAILED = "PolicyFailed"
    """The policy raised an error, so that nothing is started: `detail`."""


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """What a queue holds and may hold, in thousandths of a GPU."""

    queue: str
    used: int
    share: int
    """Its share of the cluster among the queues that have jobs now."""
    guaranteed: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What is used of a quota, and its bound: thousandths of a GPU, jobs, or thousandths of a GPU x ms."""

    queue: str
    """Empty: in all queues."""
    user: str
    """Empty: of all users."""
    used: int
    most: int
    period: Period | None = None
    """Of a budget."""


@dataclass(frozen=True, slots=True)
class Protection:
    """A rule that keeps a running job on its GPUs."""

    job: str
    rule: str
    """The option or field that says so: `min_run_s`."""
    until_ms: int | None = None
    """When it ends; None: with the run."""
    unsaved_ms: int = 0
    """Work that would be lost: it can be neither frozen nor save."""


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """A job, or an array, that another depends on."""

    job: str
    """Its id; the array's where it is one."""
    name: str
    when: str
    """How it has to end: a `When`."""
    total: int = 0
    """Jobs of the array; 0: it is a single job."""
    left: int = 0
    """Those of them that have not ended."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Which attempt the next one is."""

    attempt: int
    attempts: int
    """The last one that it may have."""
    was_lost: bool
    """It was lost; else it failed."""


@dataclass(frozen=True, slots=True)
class HostUse:
    """What a job has of the host memory (bytes) or of the CPUs (thousandths)."""

    job: str
    amount: int
    is_frozen: bool = False
    """It is suspended in memory, and keeps this much of it."""


@dataclass(frozen=True, slots=True)
class HostShortage:
    """Host memory (bytes) or CPUs (thousandths) that free GPUs lack for a job."""

    is_memory: bool
    """Else it is CPUs."""
    each: int
    """Needed for each of its GPUs."""
    count: int
    """Its GPUs."""
    free: int
    """The most that is free on a node with free GPUs."""
    used: tuple[HostUse, ...] = ()
    """What jobs have of it on such nodes, the most first."""


@dataclass(frozen=True, slots=True)
class PartShortage:
    """A GPU of which a part is free that a job cannot use: memory in bytes, and how it is shared."""

    needed: int
    free: int
    wanted: Sharing
    shared: Sharing

    @property
    def excess(self) -> int:
        return self.free - self.needed


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason and its numbers, in thousandths of a GPU; `held_by` names the jobs in the way."""

    why: Why
    need: int
    free: int = 0
    largest_block: int = 0
    held_by: tuple[str, ...] = ()
    until_ms: int | None = None
    """The latest time until which this holds, where known."""
    notice: DeadlineNotice | None = None
    """The last notice about its deadline, if it has one."""
    after: tuple[Prerequisite, ...] = ()
    """What it depends on."""
    limit: int = 0
    """How many jobs of its array may run at once."""
    by: str = ""
    """The user who holds it or suspended it, where known."""
    retry: Retry | None = None
    since_ms: int | None = None
    """Since when this holds, where that is said."""
    failed: tuple[str, ...] = ()
    """Jobs that failed on its input."""
    reserved: int = 0
    """GPUs that nobody uses and that are reserved for other jobs, which go first: `reserved_for`."""
    reserved_for: tuple[str, ...] = ()
    queue: QueueStanding | None = None
    """Its queue, where what that holds or may hold is the reason, or is owed to it."""
    protections: tuple[Protection, ...] = ()
    """Jobs that hold GPUs which it may get, and the rules that keep them there."""
    is_unmeasured: bool = False
    """Nobody knows what it uses of a GPU: it has one for itself until that has been measured."""
    unmeasured: tuple[str, ...] = ()
    """Jobs with which it may share a GPU once it has been measured what they use of it."""
    never_preempts: str = ""
    """The policy, where it never suspends a run to make room."""
    drained: int = 0
    """GPUs that it could use and that are on drained nodes that are there."""
    set_aside: int = 0
    """GPUs that it could use and that are set aside, on nodes that are there and not drained."""
    away: int = 0
    """GPUs that it could use on nodes that are away."""
    total: int = 0
    """GPUs of the cluster that it could use, where they are too few for it."""
    host: HostShortage | None = None
    detail: str = ""
    part: PartShortage | None = None
    quota: QuotaUse | None = None
    kept_free: Reservation | None = None
    """It has not begun yet if `since_ms`, its begin, is given."""


class Refused(Enum):
    """Why the controller did not do what a plan asked."""

    UNKNOWN_JOB = "unknown job"
    WRONG_PHASE = "the job is not in a phase that allows it"
    NOT_ADMISSIBLE = "the placement is not one of the job's shapes"
    NODE_UNAVAILABLE = "a node is gone, draining or set aside"
    GPU_SET_ASIDE = "a GPU is set aside"
    GPU_TAKEN = "a GPU is taken or shared in another mode"
    MEMORY_TAKEN = "not enough GPU memory"
    HOST_TAKEN = "not enough CPUs or host memory"
    RESERVED = "a GPU is reserved for another job"
    NOT_PREEMPTIBLE = "the job is not preemptible"
    WORK_WOULD_BE_LOST = "the job can neither be frozen nor save: its work would be lost"
    OVER_QUOTA = "its queue or its user would be over a limit, or a budget is used up"
    AVOIDED = "the job failed on one of these devices and waits for others"
    KEPT_FREE = "a GPU is kept free of the job, for maintenance or for a reservation"
    POLICY_RAISED = "the policy raised an error"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused action is a value with a reason, never an exception."""

    job: str
    why: Refused
    detail: str = ""
