"""The contract of every engine."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainmaster.model.actions import Order
from trainmaster.model.engine_reports import NodeReport, Report
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.topology import Topology

Tell = Callable[[Report, int], None]
"""How an engine reports: called in the manager's event loop, in the order in which things happened. The
number is the report's place in its run's journal, from 1: the manager keeps the last one that it has seen."""

TellNode = Callable[[NodeReport], None]
"""How an engine of several machines reports what becomes of its nodes, in the manager's event loop."""


def ignore(_report: NodeReport) -> None:
    """For an engine that has one machine, or a manager that does not follow its nodes."""


class EngineError(ValueError):
    """An engine that cannot work here: one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do on this machine, and what it cannot, in words."""

    can_freeze: bool
    limits_memory: bool
    limits_cpus: bool
    shares_files: bool = True
    """Whether its nodes see the folder that a job is submitted from: then the job runs there."""
    can_move_frozen: bool = False
    """Whether a frozen run can go on on another GPU of its kind, on its node."""
    spans_machines: bool = False
    """Whether its nodes are machines of their own, which come and go."""
    remarks: tuple[str, ...] = ()
    """One sentence for each thing that a user would expect and this machine does not let us do."""
    user_remarks: tuple[str, ...] = ()
    """Those that matter only where jobs run as the users who submit them."""
    node_remarks: tuple[tuple[str, str], ...] = ()
    """The same of single nodes: its name, and the sentence."""
    cluster: str | None = None
    """The address of the cluster; None: it has none."""
    fence_s: float | None = None
    """After so long a node that the cluster does not know to be alive ends its runs."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Nodes of the cluster that are there and take nothing: its name, and why."""


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job of the manager's store, live or ended."""

    uuid: str
    attempts: int
    """How often it was started."""


Known = Callable[[str], KnownJob | None]
"""The job of an id; None if the store has none."""


def any_job(_id: str) -> KnownJob:
    """For engines that are used without a store."""
    return KnownJob("", sys.maxsize)


@dataclass(frozen=True, slots=True)
class StrayRun:
    """A run that goes on and that no live job of the store needs."""

    run: Run
    pid: int | None
    """Its supervisor."""
    is_ended: bool
    """Whether it is being ended: only a run of which the store knows that it is over."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that an engine would send."""

    to: str
    """A node, the supervisor of a run, or the cluster."""
    what: str
    said: object
    """A value that says all of it."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as it was written down: what it was launched with, and what happened to it."""

    record: str
    """`LaunchSpec.row` as it was written last; empty: an earlier version's, or it cannot be read."""
    reports: tuple[tuple[Report, int], ...]
    """With their numbers."""
    has_begun: bool
    """False: its launch never came."""
    is_prerun: bool = False
    alive_ms: int | None = None
    """Its last sign of life, 0 if it left none; None: it may go on."""


@dataclass(frozen=True, slots=True)
class Probed:
    """How a short program of ours ended on a node."""

    code: int | None
    """None: it did not end within its time."""
    output: bytes = b""


class Engine(Protocol):
    """Starts, suspends and ends gangs of processes.

    Orders are idempotent: one that has been carried out already changes nothing, so that a manager that
    does not know whether it sent an order sends it again. Every order names an attempt; an attempt is
    launched at most once, however often it is ordered.

    No order is left without an answer. One to a run of which nothing is left, because its machine was
    switched off say, or its files were removed, is answered by Lost or Ended; so is an order to end a run
    whose launch never came. Its number is beyond the last that the manager has seen of the run.
    """

    @property
    def name(self) -> str: ...

    @property
    def topology(self) -> Topology:
        """What it found when it was made. An engine of several machines tells of later nodes by NodeCame."""
        ...

    @property
    def abilities(self) -> Abilities: ...

    def troubles(self) -> Sequence[str]:
        """What of the engine does not work now, one sentence each."""
        ...

    def number_nodes(self, topology: Topology) -> None:
        """How orders number nodes and GPUs from now on: the manager's topology, which only grows.

        Called before `open`, and after each change before the orders that follow it. An engine of one
        machine has one numbering, and need not listen.
        """
        ...

    async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
        """Be ready to take orders; EngineError where that cannot be.

        An engine of several machines tells of every node that is there, and again of each that changes.
        """
        ...

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        """Begin to carry it out; the result is reported later. Never raises: what fails for now, such as
        a write to a full disk, is tried again."""
        ...

    def requests(self, order: Order, spec: LaunchSpec) -> Sequence[Request]:
        """The dry run of an order: what would be sent for it now, and nothing is."""
        ...

    async def observe(self, runs: Mapping[Run, int], known: Known = any_job) -> Sequence[StrayRun]:
        """After a restart: report what has happened to these runs since, and go on watching them.

        For each the last report that the manager has seen, 0 for none: only later ones are told. Those that
        were written before are told before it returns, unless that takes long.

        What runs under this engine's folder and is not among them is ended if it is an earlier run of a
        known job. It is left alone where its job is not known by number and UUID, or not with that
        attempt: it may be the work of another store. Both are returned.
        A run among them whose folder is that of another job counts as one of which nothing is left.
        A run that was seen before and of which nothing is left is reported as lost, with a number beyond
        the last that was seen. One of which nothing was ever seen or written is not reported: its launch
        never came.
        """
        ...

    async def save(self, run: Run) -> None:
        """Ask a run to write a checkpoint now and go on; one that cannot is left alone."""
        ...

    async def bring(self, run: Run) -> None:
        """Have here what a run has written so far in folders of its own on its nodes, as far as that is
        possible while it writes. Where its nodes see this machine's folders there is nothing to do."""
        ...

    def tell_gpu_use(self, run: Run, util_ppm: int) -> None:
        """Say now and then how busy the GPUs of a run are: the hang watch of the run uses it."""
        ...

    def catches_save(self, run: Run, pids: Sequence[int]) -> bool:
        """Whether a program of these ranks of the run has a handler for the signal to save."""
        ...

    def environment(self, run: Run) -> tuple[Path, Mapping[str, str]]:
        """Working directory and environment of its first rank."""
        ...

    def run_of(self, pid: int) -> Run | None:
        """The run that a process of this machine is a member of; None: of none of this engine's."""
        ...

    def connect(self, job: str, port: int) -> socket.socket | None:
        """A connection to a port that processes of this job, and no others, listen on; None: there is none.

        It looks for them and waits for the connection, so it is for a thread.
        """
        ...

    def recorded(self, run: Run) -> RecordedRun | None:
        """What is written down of a run, whether it goes on or not; None if nothing is."""
        ...

    async def write_row(self, run: Run, spec: LaunchSpec) -> None:
        """Write down the job as the store has it now (`LaunchSpec.row`), where its run is recorded, if it is.

        What cannot be written now is left as it was.
        """
        ...

    async def probe(self, node: str, words: Sequence[str], limit_s: float) -> Probed:
        """Run a short program of ours (`python -m`, these words) on a node, beside all runs.

        EngineError where the node cannot be reached.
        """
        ...

    def host_of(self, node: str) -> str:
        """The address at which the other nodes reach this one."""
        ...

    def unwatched(self) -> Sequence[Run]:
        """Runs that go on by themselves, also while the engine is not open."""
        ...

    def cancel_unwatched(self, run: Run) -> bool:
        """Tell such a run that it is cancelled: it ends, and its records say so to the next manager.

        False where it cannot be told.
        """
        ...

    async def forget(self, run: Run) -> None:
        """Its logs are not needed any more."""
        ...

    async def close(self) -> None:
        """Stop watching. Runs go on."""
        ...
