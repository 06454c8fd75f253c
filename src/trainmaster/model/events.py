"""Facts, in the past tense: all that a controller ever learns.

A fact about a run may be learned late: its manager was away. `at_ms` is then when it happened; None: now. The
run's GPU time counts from and up to then, and whatever is decided is decided now.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.model.actions import Action
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.device_failures import DeviceFailure
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.failure import Failure
from trainmaster.model.inputs import InputBlock, InputFailure
from trainmaster.model.job import Estimate, Job, Oracle, Run, Shape
from trainmaster.model.placement import Placement
from trainmaster.model.policy_spec import Options, PolicySpec
from trainmaster.model.profile import Profile
from trainmaster.model.progress import Sample
from trainmaster.model.queue import Queue
from trainmaster.model.quota import Prices, UserLimits
from trainmaster.model.reservation import Reservation


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    job: Job
    estimate: Estimate | None = None
    oracle: Oracle | None = None
    """Only ever set by the simulator."""
    profile: Profile | None = None
    held: bool = False
    """Not to be started before it is released."""
    attempts: int = 0
    """How often it was started before, under a store that is gone."""
    first_start_ms: int | None = None
    """When that was, for the first time."""
    attained: int = 0
    """Thousandths of a GPU x ms that it held under that store, ..."""
    preemptions: int = 0
    failures: int = 0
    """... and how often it was preempted and failed."""
    preflight: bool = False
    """It is run on one of its devices first; until that has passed it asks for no more."""
    gpu_memory: int = 0
    memory: int = 0
    avoid: tuple[tuple[int, int], ...] = ()
    """What its failures under a store that is gone let it ask for, as in `RunFailed`."""


@dataclass(frozen=True, slots=True)
class JobProfiled:
    """Measured outside the pass: split shapes, a profile, a better estimate; the simulator's better oracle.

    What it does not say stays as it was.
    """

    job: str
    splits: tuple[Shape, ...] = ()
    estimate: Estimate | None = None
    oracle: Oracle | None = None
    profile: Profile | None = None
    warm: tuple[int, ...] | None = None
    """Nodes that have its files already."""


@dataclass(frozen=True, slots=True)
class JobWithdrawn:
    """Its owner cancelled it."""

    job: str


@dataclass(frozen=True, slots=True)
class JobHeld:
    """Not to run until it is released: by its owner, for another job, by its array's limit."""

    job: str
    may_end: bool = False
    """Whether its run may be ended where it can be neither frozen nor save: its owner insists."""
    ends: bool = False
    """Whether its run is ended though it could be frozen: it must not come back as it was."""


@dataclass(frozen=True, slots=True)
class JobReleased:
    """It may run again."""

    job: str


@dataclass(frozen=True, slots=True)
class PrerunWaived:
    """It needs no pre-run any more: its program passed one as another job, or its owner opted out."""

    job: str


@dataclass(frozen=True, slots=True)
class JobChanged:
    """Its owner changed it: another priority, queue, deadline, grace period or number of retries.

    What it asks for and its role change only while it holds nothing.
    """

    job: Job


@dataclass(frozen=True, slots=True)
class ActionRequested:
    """An authorised user asked for a move, a resize or a suspension."""

    action: Action


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Another policy decides from now on, or the same with other options."""

    name: str
    options: Options = ()
    source: str = ""
    files: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec(self.name, self.options, self.source, self.files)

    @classmethod
    def to(cls, spec: PolicySpec) -> PolicyChanged:
        return cls(spec.name, spec.options, spec.source, spec.files)


@dataclass(frozen=True, slots=True)
class RunAdopted:
    """It was found running, or frozen, there, by orders of a store that is gone."""

    run: Run
    placement: Placement
    speed_ppm: int
    frozen: bool = False
    is_prerun: bool = False
    is_assumed: bool = False
    """Whether nobody has measured that speed yet."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Every rank of the gang is up and training at this speed."""

    run: Run
    speed_ppm: int
    by_mps: bool | None = None
    """Whether it shares its GPU by MPS; None: as its placement says."""
    at_ms: int | None = None
    is_assumed: bool = False
    """Whether nobody has measured that speed yet."""


@dataclass(frozen=True, slots=True)
class RunSuspended:
    """It has released its GPUs with its work saved; frozen = still in memory on its node."""

    run: Run
    work: int
    frozen: bool = False
    was_killed: bool = False
    """It did not leave by itself before the end of its grace period."""
    shows_saving: bool = True
    """It says that it saved, or wrote a checkpoint when it was told to stop; False: only before."""
    host_bytes: int | None = None
    """Of a frozen run: host memory that it keeps, in all; None: as the controller estimates."""
    gpu_bytes: int | None = None
    """Of a frozen run: memory that it keeps on its GPUs, in all; None: as the controller estimates."""
    is_all_on_gpus: bool = True
    """Of a frozen run: whether every rank has state on a GPU, so that it can go on on other GPUs."""
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunNotFrozen:
    """It was to be frozen, that failed or is impossible, and it still runs on its GPUs."""

    run: Run
    is_final: bool = False
    """It cannot be frozen as long as it runs: another try would fail likewise."""


@dataclass(frozen=True, slots=True)
class RunPaced:
    """It is held back so that a guaranteed run on its GPU keeps its speed, or is not any more."""

    run: Run
    percent: int
    """Of the time that its steps would use: 100 is all, 0 none."""


@dataclass(frozen=True, slots=True)
class RunHung:
    """It gives no sign of life for longer than its own past explains."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunWentOn:
    """One that hung has given a sign of life again."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunStraggled:
    """One of its ranks is slower than the others."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunIdle:
    """Its GPUs have computed nothing for long."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunResumed:
    run: Run
    speed_ppm: int
    at_ms: int | None = None
    is_assumed: bool = False
    """Whether nobody has measured that speed yet."""


@dataclass(frozen=True, slots=True)
class RunResized:
    run: Run
    work: int
    speed_ppm: int
    at_ms: int | None = None
    is_assumed: bool = False
    """Whether nobody has measured that speed yet."""


@dataclass(frozen=True, slots=True)
class RunResizeTimed:
    """It has made its first step after a resize: how long the parts of that took is in its story."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunReplicaLost:
    """One of its ranks has failed, and the others go on."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunSpeedChanged:
    """A neighbour came or went, or a better measurement arrived."""

    run: Run
    work: int
    speed_ppm: int


@dataclass(frozen=True, slots=True)
class RunSaved:
    """A checkpoint with this much of its work has become durable."""

    run: Run
    work: int


@dataclass(frozen=True, slots=True)
class RunCanSave:
    """Its program has said that it saves when it is told to end."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunSizeLimited:
    """Its program has said that it cannot use more GPUs than this."""

    run: Run
    most_gpus: int


@dataclass(frozen=True, slots=True)
class RunProgressed:
    """It reported how far its training has come."""

    run: Run
    sample: Sample


@dataclass(frozen=True, slots=True)
class RunSucceeded:
    run: Run
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunFailed:
    """It ended by itself with an error; `work` is what its last checkpoint keeps."""

    run: Run
    work: int = 0
    retryable: bool = True
    retry_in_ms: int = 0
    """How long to wait before it is tried again."""
    failure: Failure | None = None
    """Why it failed; None: not classified."""
    avoid: tuple[tuple[int, int], ...] = ()
    """(node, GPU) pairs that the next attempt is not to use."""
    gpu_memory: int = 0
    """Bytes on each GPU that the next attempt asks for; 0: as before."""
    memory: int = 0
    """Bytes of host memory that the next attempt asks for; 0: as before."""
    at_ms: int | None = None
    is_counted: bool = True
    """Whether it uses up one of the job's retries: not where our estimate of its memory was too low."""


@dataclass(frozen=True, slots=True)
class RunLost:
    """Its node or supervisor went away under it: not the job's failure. `work` is what is saved."""

    run: Run
    work: int = 0
    retryable: bool = True
    """False: it was lost too often."""
    retry_in_ms: int = 0
    failure: Failure | None = None
    """Why it was lost; None: not classified."""
    avoid: tuple[tuple[int, int], ...] = ()
    """(node, GPU) pairs that the next attempt is not to use."""
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunPassed:
    """Its pre-run is over and speaks against no start on all its devices: the job waits for them."""

    run: Run
    failure: Failure | None = None
    """Why it failed, where that may be due to the one device; None: it did not."""
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunStopped:
    """Ended because it was asked to: by a stop order, or by its owner."""

    run: Run
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NodesAdded:
    """Nodes are there that nobody has seen before, or known ones with other host memory or UUIDs.

    New ones get the next indices, in this order (`topology_growth.grown`).
    """

    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class NodeForgotten:
    """It does not come back: its name is free for another, and its index is never used again."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeMeasured:
    """A self-test measured how fast a device of this node is: its type's relative speed follows from it."""

    node: int
    rate: int
    """Millions of operations per second, of a matrix product."""


@dataclass(frozen=True, slots=True)
class SpeedsStated:
    """Somebody stated how fast these types are, in parts per million; the others are as measured."""

    speeds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NodeJoined:
    node: int


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """Gone: what ran there is reported by `RunLost`."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """Takes nothing new; what runs there is to be moved."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeUndrained:
    node: int


@dataclass(frozen=True, slots=True)
class GpuSetAside:
    """This GPU, or CPU slot, takes nothing new; what runs there goes on, or is lost by its own facts.

    `gpu` is its index in the cluster, as in a slice.
    """

    node: int
    gpu: int
    why: str = ""
    """One sentence for people."""
    cause: AsideCause | None = None
    """It stays aside while any cause is left; None: an earlier version did not say it."""
    is_tested: bool = False
    """The device was tested since this cause came, and `why` says how that went."""


@dataclass(frozen=True, slots=True)
class GpuReturned:
    """A cause to set it aside has ended; with the last one it is used again."""

    node: int
    gpu: int
    cause: AsideCause | None = None
    """None: all of them, by a user's word."""


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """A run failed early on a device, and the device may be to blame."""

    failure: DeviceFailure


@dataclass(frozen=True, slots=True)
class DeviceWorked:
    """Failures on these devices do not count any more: a run of this program succeeded, or lasted, there.

    No program: somebody brought them back.
    """

    program: str
    devices: tuple[str, ...]
    """By names that stay: a UUID, `node:slot`."""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of the cluster that is planned for a time: not a fact yet."""

    at_ms: int
    event: NodeJoined | NodeLeft | NodeDraining | NodeUndrained | GpuSetAside | GpuReturned


@dataclass(frozen=True, slots=True)
class InputFailed:
    """A job could not read an input path."""

    failure: InputFailure


@dataclass(frozen=True, slots=True)
class InputBlocked:
    """An input path is set aside, or was looked at since; the manager holds the jobs that name it."""

    block: InputBlock


@dataclass(frozen=True, slots=True)
class InputReturned:
    """It is used again, and what failed on it before does not count any more."""

    path: str


@dataclass(frozen=True, slots=True)
class QueueDefined:
    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """It is not defined any more; jobs of its name are as those of any undefined queue."""

    name: str


@dataclass(frozen=True, slots=True)
class UserLimited:
    """A user, or everybody, may have so much from now on; empty limits: as much as anybody."""

    limits: UserLimits


@dataclass(frozen=True, slots=True)
class PricesChanged:
    """GPU hours cost this from now on; what was used before costs what it did."""

    prices: Prices


@dataclass(frozen=True, slots=True)
class ReservationMade:
    """Devices are to be kept free in that time."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class ReservationCancelled:
    """It does not hold any more, whether it has begun or not."""

    number: int


Event = (
    JobSubmitted
    | JobProfiled
    | JobWithdrawn
    | JobHeld
    | JobReleased
    | PrerunWaived
    | JobChanged
    | ActionRequested
    | PolicyChanged
    | RunAdopted
    | RunStarted
    | RunSuspended
    | RunNotFrozen
    | RunPaced
    | RunHung
    | RunWentOn
    | RunStraggled
    | RunIdle
    | RunResumed
    | RunResized
    | RunResizeTimed
    | RunReplicaLost
    | RunSpeedChanged
    | RunSaved
    | RunCanSave
    | RunSizeLimited
    | RunProgressed
    | RunSucceeded
    | RunFailed
    | RunLost
    | RunPassed
    | RunStopped
    | NodesAdded
    | NodeForgotten
    | NodeMeasured
    | SpeedsStated
    | NodeJoined
    | NodeLeft
    | NodeDraining
    | NodeUndrained
    | GpuSetAside
    | GpuReturned
    | DeviceFailed
    | DeviceWorked
    | InputFailed
    | InputBlocked
    | InputReturned
    | QueueDefined
    | QueueRemoved
    | UserLimited
    | PricesChanged
    | ReservationMade
    | ReservationCancelled
)
