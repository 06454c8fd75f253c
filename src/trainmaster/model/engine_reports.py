"""What an engine reports about its runs: what happened, when, with the details that a user asks for.

`at_ms` is by the wall clock, which may be set at any time. `steady_ms` is by the machine's steady clock
(CLOCK_BOOTTIME), where that still counts: not after a restart of the machine, nor from earlier versions.

The daemon turns them into events (events.py), because only it knows how much work had been done by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.job import Run
from trainmaster.model.stop_reasons import EndReason
from trainmaster.model.topology import GpuType


class StopOrder(Enum):
    """What a run had been ordered when it ended."""

    NOTHING = "nothing"
    HALT = "halt"
    KILL = "kill"
    PRERUN = "prerun"
    """To end, because it was a pre-run and had shown enough."""


@dataclass(frozen=True, slots=True)
class Started:
    """Every rank is up; `pids` by rank."""

    run: Run
    at_ms: int
    pids: tuple[int, ...] = ()
    changed: tuple[str, ...] | None = None
    """Files of the program that are not as they were at submission."""
    by_mps: bool = False
    """Whether it is a client of MPS: a GPU that it shares without is shared by time-slicing."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Frozen:
    """All its processes are stopped (suspended in memory), and its devices are free."""

    run: Run
    at_ms: int
    how: str = "stop"
    """By which freezer: `stop`, `driver` or `cooperative`."""
    why: str = ""
    """Why by that one: a sentence."""
    host_bytes: int | None = None
    """What it keeps in host memory of what it had on its GPUs; None: not measured."""
    gpu_bytes: int | None = None
    """What it keeps on its GPUs, all together; None: not known."""
    is_all_on_gpus: bool | None = None
    """Whether every rank of it has its own state on a GPU; None: it has CPU slots, or nobody looked."""
    took_ms: int | None = None
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NotFrozen:
    """It was to be frozen, could not be, and goes on."""

    run: Run
    at_ms: int
    why: str = ""
    is_final: bool = False
    """Whether another try would end the same way, for as long as it runs."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Thawed:
    run: Run
    at_ms: int
    took_ms: int | None = None
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reshaped:
    """It continues with another number of ranks."""

    run: Run
    at_ms: int
    pids: tuple[int, ...] = ()
    """By rank."""
    in_place: bool = False
    """Whether the ranks that stay have kept their processes; else all go on from the last checkpoint."""
    why: str = ""
    """Why not, where its program can be resized in place."""
    pause_ms: int | None = None
    """How long it did not train, where it was resized in place."""
    steady_ms: int | None = None
    numbers: tuple[int, ...] | None = None
    """Of its processes, by rank: their logs are named so. None: not known."""


@dataclass(frozen=True, slots=True)
class CanResize:
    """All ranks of a part of a gang have said that they can be resized while they train."""

    run: Run
    at_ms: int
    may_lose: int = 0
    """How many ranks of the gang may be lost while the others go on."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResizeReady:
    """The new ranks of a part of a gang are ready to join the others."""

    run: Run
    at_ms: int
    number: int
    """Of the resize: the gang's."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NotResized:
    """A part of a gang cannot be resized in place."""

    run: Run
    at_ms: int
    number: int
    """Of the resize: the gang's."""
    why: str
    is_late: bool = False
    """Whether it may still be, once another part has written a checkpoint."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResizeTimed:
    """It has made its first step after a resize, or after the loss of a rank; how long the parts took."""

    run: Run
    at_ms: int
    order_ms: int | None = None
    """From the order to the supervisor."""
    warm_up_ms: int | None = None
    """New ranks started, imported and built, while the others trained."""
    boundary_ms: int | None = None
    """The ranks went on to the end of a step."""
    regroup_ms: int | None = None
    """They formed the new process group."""
    broadcast_ms: int | None = None
    """New ranks got the state, and all wrapped their model."""
    leave_ms: int | None = None
    """Ranks that were not needed ended, beside the training of the others."""
    stop_ms: int | None = None
    """Of a restart: all ranks saved and ended, ..."""
    start_ms: int | None = None
    """... and new processes were started."""
    first_step_ms: int | None = None
    """From then on."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """One of its ranks has failed, and the others go on."""

    run: Run
    at_ms: int
    rank: int
    """The number of its process, after which its log is named: ranks are numbered anew by each resize."""
    pids: tuple[int, ...] = ()
    """Of the others, by rank."""
    code: int = 0
    signal: str = ""
    tail: str = ""
    """Its last lines."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Progressed:
    """Its program reported progress."""

    run: Run
    at_ms: int
    step: int
    loss: float | None = None
    samples_per_s: float | None = None
    total_steps: int | None = None
    epoch_steps: int | None = None
    steps_per_s: float | None = None
    counted: bool | None = None
    """Its optimizer steps were counted from outside: it does not use the SDK, and cannot save."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Paced:
    """It is held back, or not any more, so that a guaranteed run on its GPU keeps its speed."""

    run: Run
    at_ms: int
    pace: int = 100
    """Percent of the time that its steps would use."""
    why: str = ""
    is_heeded: bool = True
    """Whether its program can be held back; else it runs at full speed, whatever its pace is."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hung:
    """It gives no sign of life: neither steps nor output, for longer than its own past explains."""

    run: Run
    at_ms: int
    silent_ms: int
    longest_ms: int
    """Its longest time between two steps before; without steps, between two pieces of output."""
    is_busy: bool = False
    """Whether its device is busy all the same."""
    stepless_ms: int | None = None
    """Since its last step; None: it has told none."""
    stacks: tuple[str, ...] = ()
    """Where its processes are, a sentence for each rank."""
    trouble: str = ""
    """Why there are no Python stacks of some of them."""
    restarts: bool = False
    """Whether it is ended, to be started again."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WentOn:
    """It has given a sign of life again: it does not hang."""

    run: Run
    at_ms: int
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Straggled:
    """One of its ranks is slower than the others, or none is any more."""

    run: Run
    at_ms: int
    rank: int | None = None
    percent: int | None = None
    """Of the time that the others take for a step, or where they wait for it, of a step without its delay."""
    own_ms: int | None = None
    """Where they wait for it: what it takes of each step before that, ..."""
    peers_ms: int | None = None
    """... and what they take."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """What its first steps show of its program, on each of its devices; None: not seen."""

    run: Run
    at_ms: int
    sync_bytes: int | None = None
    cpu_us: int | None = None
    activation_bytes: int | None = None
    batch: int | None = None
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HeedsStops:
    """Its program looks for requests to stop, and saves before it leaves."""

    run: Run
    at_ms: int
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RanksLimited:
    """Its program has samples for at most so many ranks; it has `world` now."""

    run: Run
    at_ms: int
    ranks: int
    world: int
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of it has become durable."""

    run: Run
    at_ms: int
    step: int | None = None
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FilesKept:
    """Nodes that keep the files of its job, which were sent there: its next run need not be sent them."""

    run: Run
    at_ms: int
    nodes: tuple[str, ...]
    missing: str = ""
    """Why not all that it wrote there was brought."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """None of its processes is left."""

    run: Run
    at_ms: int
    code: int
    """Exit code of the rank that decided: 0, or of the first that failed; 128 + n for signal n."""
    asked: StopOrder = StopOrder.NOTHING
    rank: int | None = None
    """The first rank that failed; None where none did."""
    has_left: bool = False
    """It was ordered to stop and saved its work, by its own report or into its checkpoint folder."""
    was_killed: bool = False
    """It did not end within its grace period."""
    why: str = ""
    """One sentence where the engine knows more: out of memory, command not found."""
    tail: str = ""
    """The last lines of the deciding rank."""
    cancelled: bool | None = None
    """Whether its manager ended it for good, and not as a run that it did not need; None: an earlier
    version does not say."""
    end: EndReason | None = None
    """Why it was ended for good."""
    unsaved_ms: int | None = None
    """How long it worked from its last file to the order to stop; None: it says itself that it saves."""
    hung: bool | None = None
    """Whether it was ended because it hung."""
    longest_silence_ms: int | None = None
    """The longest that it has shown, after its first step, and lived through."""
    signal: str | None = None
    """The signal that ended that rank; empty where it exited; None: an earlier version does not say."""
    ran_ms: int | None = None
    """How long its processes ran, frozen or not."""
    peak_memory: int | None = None
    """The most host memory that one of its processes had, in bytes; None: an earlier version does not say."""
    rank_memory: int | None = None
    """The most that all processes of one of its ranks had together; None: nobody counted it."""
    steady_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """All its processes are gone and its end was not recorded: its machine or supervisor was killed."""

    run: Run
    at_ms: int
    why: str = ""
    steady_ms: int | None = None
    alive_ms: int | None = None
    """Its last sign of life, where it was found gone: 0 if it left none. None: it was alive until then."""
    unfit: tuple[str, ...] | None = None
    """Nodes that cannot run this job, by name: they do not see its files. None: nothing is known of that."""


Report = (
    Started
    | Frozen
    | NotFrozen
    | Thawed
    | Reshaped
    | CanResize
    | ResizeReady
    | NotResized
    | ResizeTimed
    | ReplicaLost
    | Progressed
    | Saved
    | FilesKept
    | Profiled
    | HeedsStops
    | RanksLimited
    | Paced
    | Hung
    | WentOn
    | Straggled
    | Ended
    | Lost
)


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster as its engine found it."""

    name: str
    host: str
    """The address at which other nodes reach it."""
    gpus: int
    type: GpuType
    cpus: int
    """Thousandths of a core."""
    memory: int
    """Host memory in bytes."""
    uuids: tuple[str, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()
    """The domains around it, outermost first: their level and their name."""


@dataclass(frozen=True, slots=True)
class NodeCame:
    """A node is there and takes runs: a new one, or one that was gone."""

    node: ClusterNode
    at_ms: int


@dataclass(frozen=True, slots=True)
class NodeFell:
    """A node takes nothing now. Its runs are reported as lost once nothing of them is left."""

    name: str
    at_ms: int
    why: str
    """A sentence."""
    gone_ms: int | None = None
    """When its runs are reported as lost if it does not come back; None: not known, or they are already."""


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """Other users of the cluster hold so many of a node's devices; 0: none any more."""

    name: str
    at_ms: int
    gpus: int


NodeReport = NodeCame | NodeFell | DevicesTaken
