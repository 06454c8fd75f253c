"""What the controller knows: a record per live job, the occupancy, nodes, queues and pending launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainmaster.core.change_log import ChangeLog
from trainmaster.core.frozen_memory import FROZEN_GPU_MEMORY, KeptMemory, estimated
from trainmaster.core.job_record import JobRecord, ScopeKey
from trainmaster.core.lifecycle import EDGES, ENDED, WAITING, Cause, LifecycleError, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.submission_siblings import RecentSubmissions
from trainmaster.core.switch_times import SwitchTimes
from trainmaster.model.actions import Action, Order, Reserve
from trainmaster.model.codec import stored_as
from trainmaster.model.device_aside import GpuAside
from trainmaster.model.device_failures import DeviceFailures
from trainmaster.model.events import PolicyChanged, RunAdopted
from trainmaster.model.inputs import InputBlock, InputFailure
from trainmaster.model.job import Demand, Run
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.queue import Queue
from trainmaster.model.quota import Prices, UserLimits
from trainmaster.model.reasons import Refused
from trainmaster.model.reservation import Reservation
from trainmaster.model.topology import SLOT_TYPE, Topology
from trainmaster.model.type_speeds import MeasuredRate, TypeSpeeds
from trainmaster.model.units import SECOND

if TYPE_CHECKING:
    from trainmaster.core.quotas import Quotas

__all__ = [
    "LAUNCH_SLACK",
    "Account",
    "JobRecord",
    "PendingLaunch",
    "ScopeKey",
    "State",
]

LAUNCH_SLACK = 60 * SECOND
"""How long after the grace period a release may still come before the node is set aside."""


@dataclass(slots=True)
class Account:
    """GPU time that is charged to a budget in its present period."""

    began_ms: int
    settled: int
    """What was used, less what live jobs have attained: thousandths of a GPU x ms."""


@stored_as("core.PendingLaunch")
@dataclass(slots=True)
class PendingLaunch:
    """A launch held back until every run still on its GPUs has left them."""

    record: JobRecord
    awaiting: set[Run]
    expires_ms: int


class State:
    """Everything the controller knows. Facts and admitted plans change it; drafts only its occupancy."""

    def __init__(
        self,
        topology: Topology,
        *,
        can_freeze: bool = False,
        can_move_frozen: bool = False,
        saves_on_demand: bool = True,
        cannot_save_at_first: bool = False,
    ) -> None:
        self.topology = topology
        self.can_freeze = can_freeze
        self.can_move_frozen = can_move_frozen
        """Whether a frozen run can go on on other GPUs of its kind, on its nodes."""
        self.saves_on_demand = saves_on_demand
        """Whether a run that is suspended saves first; else it falls back to its last checkpoint."""
        self.cannot_save_at_first = cannot_save_at_first
        """Whether programs count as unable to save until they have shown that they do."""
        self.protected: dict[str, JobRecord] = {}
        """Runs that policies must leave alone for a while, so that no work is lost."""
        self.has_slots = any(kind.name == SLOT_TYPE for kind in topology.types)
        """Whether there are CPU slots that stand in for GPUs."""
        self.occupancy = Occupancy(topology, can_freeze=can_freeze, can_move_frozen=can_move_frozen)
        self.log = ChangeLog()
        self.jobs: dict[str, JobRecord] = {}
        self.residents: list[dict[int, JobRecord]] = [{} for _ in topology.nodes]
        """Per node: the jobs entitled to GPUs there, by seq."""
        self.queues: dict[str, Queue] = {}
        self.user_limits: dict[str, UserLimits] = {}
        self.accounts: dict[ScopeKey, Account] = {}
        """Of the budgets."""
        self.quotas: Quotas | None = None
        """What is left of each bound; None: nothing is bounded."""
        self.quotas_stale = False
        """Whether queues, users or the policy have changed, so that quotas are to be made again."""
        self.prices = Prices()
        self.groups: dict[Demand, int] = {}
        self._group_of: dict[int, tuple[Demand, int]] = {}
        """The same by identity: hashing a demand again for each job is slow."""
        self.pending_launches: dict[str, PendingLaunch] = {}
        self.awaited: dict[Run, list[str]] = {}
        """By run that must leave: the jobs whose launch waits, or waited, for it."""
        self.releasing: dict[int, set[Run]] = {}
        """By GPU: runs that have been ordered to leave it and have not reported yet that they did."""
        self.leaving: dict[Run, tuple[Slice, ...]] = {}
        """The same by run: the slices it was ordered to leave."""
        self.reservations: dict[str, Reserve] = {}
        self.draining: set[int] = set()
        self.kept_free: dict[int, Reservation] = {}
        """Reservations of users and queues, and maintenance, by number: now or later."""
        self.last_kept_free = 0
        """The greatest number that was given to one: none is given twice."""
        self.kept_free_stale = False
        """Whether one was made or cancelled in this step."""
        self.in_maintenance: set[int] = set()
        """Nodes of which maintenance has begun."""
        self.away: set[int] = set()
        self.forgotten: set[int] = set()
        """Nodes that do not come back: nothing of them counts."""
        self.rates: dict[str, MeasuredRate] = {}
        """By node: how fast its devices are, where that was measured."""
        self.nominal_type = ""
        """The type whose speed is 1; empty: none was measured."""
        self.has_run = False
        """Whether any job has ever started."""
        self.stated_speeds: dict[str, int] = {}
        """By type: speeds that somebody stated."""
        self.topology_changed = False
        """Whether nodes were added or forgotten in this step."""
        self.set_aside: dict[int, set[Run]] = {}
        """Nodes that runs did not leave in time, with those runs."""
        self.gpus_aside: dict[int, GpuAside] = {}
        """GPUs, or CPU slots, that take nothing new."""
        self.device_failures = DeviceFailures()
        """What speaks against devices; the manager decides on it."""
        self.input_failures: dict[str, tuple[InputFailure, ...]] = {}
        """By path: jobs that could not read it, the last to fail at the end."""
        self.input_blocks: dict[str, InputBlock] = {}
        """Paths that are set aside."""
        self.submitted = 0
        self.job_time_integral = 0
        """Job-milliseconds: how many jobs were live, summed over all time so far."""
        self.switch_times = SwitchTimes()
        self.recent_submissions = RecentSubmissions()
        self.waiting = 0
        """Jobs that hold nothing and may be started."""
        self.outbox: list[Order] = []
        self.requests: list[Action] = []
        """Actions requested by users in this step."""
        self.adopted: list[RunAdopted] = []
        """Runs that were found in this step."""
        self.new_policy: PolicyChanged | None = None
        """The policy that decides from this step on."""
        self.on_hold: dict[str, JobRecord] = {}
        """Jobs that are held: live, and hidden from policies."""
        self.delayed: dict[str, JobRecord] = {}
        """Those of them that wait for the time of their retry."""
        self.avoiding: dict[str, JobRecord] = {}
        """Jobs that wait, or would wait, for other devices than those on which they failed."""
        self._visible: dict[str, JobRecord] | None = None
        self.measured: dict[str, JobRecord] = {}
        """Jobs whose GPU memory was measured."""

    def group_of(self, demand: Demand) -> int:
        """The number of this demand: equal demands have equal numbers."""
        known = self._group_of.get(id(demand))
        if known is None:
            known = (demand, self.groups.setdefault(demand, len(self.groups)))
            self._group_of[id(demand)] = known
        return known[1]

    def queue_line(self, queue: str) -> Iterator[str]:
        """A queue and those around it that are defined, from the inside out."""
        name: str | None = queue
        while name is not None and name in self.queues:
            yield name
            name = self.queues[name].parent

    def move(self, record: JobRecord, cause: Cause) -> None:
        """Follow the edge of the lifecycle table, or fail loudly."""
        old = record.phase
        new = EDGES[old].get(cause)
        if new is None:
            raise LifecycleError(f"job {record.id}: no edge from {old.name} by {cause.name}")
        record.phase = new
        self.waiting += (new in WAITING) - (old in WAITING)
        if new is Phase.HELD or old is Phase.HELD:
            self._note_hold(record)
        self.log.note_job(record)

    def _note_hold(self, record: JobRecord) -> None:
        self._visible = None
        if record.phase is Phase.HELD:
            self.on_hold[record.id] = record
        else:
            self.on_hold.pop(record.id, None)
            self.delayed.pop(record.id, None)

    def add(self, record: JobRecord, now: int) -> None:
        """Take a new job in, held or waiting."""
        self.submitted += 1
        self.jobs[record.id] = record
        self.recent_submissions.add(record, now)
        record.waiting_since_ms = now
        if record.is_held:
            record.phase = Phase.HELD
            self._note_hold(record)
            return
        record.job_time_before = self.job_time_integral
        self.waiting += 1
        self._visible = None
        self.log.note_job(record)
        self.log.needs_pass = True

    def note_profile(self, record: JobRecord) -> None:
        """List it among those that were measured, if it was."""
        if record.measured_memory:
            self.measured[record.id] = record

    def visible_jobs(self) -> dict[str, JobRecord]:
        """Live jobs that are not held, in order of submission: all that policies see."""
        if not self.on_hold:
            return self.jobs
        if self._visible is None:
            jobs, on_hold = self.jobs.items(), self.on_hold
            self._visible = {job: record for job, record in jobs if job not in on_hold}
        return self._visible

    def end(self, record: JobRecord, cause: Cause) -> None:
        """Release everything the job holds and remove it."""
        self.release_gpus(record)
        self.drop_reservation(record.id)
        self.move(record, cause)
        assert record.phase in ENDED
        del self.jobs[record.id]
        self.protected.pop(record.id, None)
        self.measured.pop(record.id, None)
        self.avoiding.pop(record.id, None)
        self._visible = None
        self.log.note_end(record)

    def release_gpus(self, record: JobRecord) -> None:
        """Release its GPUs, and what a frozen run of it keeps."""
        if record.placement is not None:
            self.deallocate(record)
        if record.frozen is not None:
            self.forget_frozen(record)
        if self.pending_launches:
            self.pending_launches.pop(record.id, None)

    def allocate(self, record: JobRecord, placement: Placement) -> Refused | None:
        """Give the job these slices; returns why not where they are not free."""
        thaws = self.can_thaw_at(record, placement)
        if thaws:
            placement = in_node_order_of(record.frozen or placement, placement)
            self._book_frozen(record, -1)
        why = self.occupancy.refusal(placement, record.demand)
        if why is not None:
            if thaws:
                self._book_frozen(record, 1)
            return why
        self._take(record, placement)
        return None

    def restore(self, record: JobRecord, placement: Placement) -> None:
        """Give a job back the slices just taken from it, even on a closed node."""
        if self.can_thaw_at(record, placement):
            self._book_frozen(record, -1)
        self._take(record, placement)

    def _take(self, record: JobRecord, placement: Placement) -> None:
        self.occupancy.book(placement, record.demand)
        record.placement = placement
        self.log.note_use(record)
        last = None
        for piece in placement.slices:
            if piece.node != last:
                last = piece.node
                self.residents[last][record.seq] = record

    def deallocate(self, record: JobRecord) -> Placement:
        """The job's slices are free for others; returns what it had."""
        placement = record.placement
        assert placement is not None
        self.occupancy.unbook(placement, record.demand)
        record.placement = None
        self.log.note_use(record)
        last = None
        for piece in placement.slices:
            if piece.node != last:
                last = piece.node
                self.residents[last].pop(record.seq, None)
        self.log.note_nodes([piece.node for piece in placement.slices])
        if record.frozen is not None and self.can_thaw_at(record, placement):
            self._book_frozen(record, 1)
        return placement

    def can_thaw_at(self, record: JobRecord, placement: Placement) -> bool:
        """Whether its frozen run could be thawed there, not having been ordered to leave."""
        frozen = record.frozen
        if frozen is None or record.run in self.leaving:
            return False
        return self._can_go_on_at(record, frozen, placement)

    def _can_go_on_at(self, record: JobRecord, frozen: Placement, placement: Placement) -> bool:
        if can_continue_at(self.topology, frozen, placement):
            return True
        is_movable = self.can_move_frozen and record.is_movable
        return is_movable and can_move_frozen_to(self.topology, frozen, placement)

    def loses_work_at(self, record: JobRecord, placement: Placement) -> bool:
        """Whether its run, running or frozen, would have to be ended to start it there, losing its work."""
        at = record.frozen or record.placement
        if at is None or not record.cannot_save:
            return False
        if record.placement is None and record.run in self.leaving:  # it is ended already
            return False
        if record.frozen is not None:
            return not self._can_go_on_at(record, at, placement)
        return not can_continue_at(self.topology, at, placement)

    def change_topology(self, topology: Topology) -> None:
        """Take nodes in that have come, or are described otherwise: indices stay what they are.

        The occupancy still has those of before: it is to be made again.
        """
        self.topology = topology
        self.has_slots = any(kind.name == SLOT_TYPE for kind in topology.types)
        self.residents += [{} for _ in range(len(topology.nodes) - len(self.residents))]
        self.topology_changed = self.kept_free_stale = self.quotas_stale = True
        self.log.caches_stale = self.log.needs_pass = True

    @property
    def type_speeds(self) -> TypeSpeeds:
        """What is known of the speeds of device types."""
        return TypeSpeeds(self.rates, self.nominal_type, self.stated_speeds)

    def open_node(self, node: int) -> None:
        """Offer a node again, unless another reason keeps it closed."""
        if self.is_closed(node):
            return
        self.occupancy.open(node)
        self.log.note_nodes((node,))
        self.log.needs_pass = True

    def is_closed(self, node: int) -> bool:
        """Whether it takes nothing new."""
        closed = node in self.draining or node in self.away or node in self.set_aside
        is_gone = node in self.forgotten
        return closed or is_gone or node in self.in_maintenance or self.is_all_aside(node)

    def is_all_aside(self, node: int) -> bool:
        """Whether all of its devices are set aside."""
        if not self.gpus_aside:
            return False
        first, count = self.topology.nodes[node].first_gpu, self.topology.nodes[node].gpus
        return count > 0 and all(gpu in self.gpus_aside for gpu in range(first, first + count))

    def note_nodes_of(self, record: JobRecord) -> None:
        """Mark its nodes as changed: its rank may have fallen, so other jobs may now take its place."""
        if record.placement is not None:
            self.log.note_nodes([piece.node for piece in record.placement.slices])

    def freeze(self, record: JobRecord, placement: Placement, may_keep: int | None = None) -> None:
        """Keep its suspended run on its node, and book the memory that it keeps there."""
        kept = kept_memory(self.topology, record, placement)
        if may_keep is not None and kept.gpu > may_keep:
            kept = kept._replace(gpu=FROZEN_GPU_MEMORY)
        record.frozen, record.kept = placement, kept
        self._book_frozen(record, 1)

    def correct_frozen(self, record: JobRecord, kept: KeptMemory) -> None:
        """Book what its frozen run really keeps instead of what was estimated."""
        self._book_frozen(record, -1)
        record.kept = kept
        self._book_frozen(record, 1)

    def forget_frozen(self, record: JobRecord) -> None:
        """Unbook a frozen run that is gone."""
        self._book_frozen(record, -1)
        record.frozen = None

    def _book_frozen(self, record: JobRecord, sign: int) -> None:
        """Book (1) or unbook (-1) what a frozen run keeps on its GPUs and in host memory."""
        assert record.frozen is not None
        self.log.note_nodes([piece.node for piece in record.frozen.slices])
        host, memory, *_ = kept_memory(self.topology, record, record.frozen)
        self.occupancy.book_frozen(record.frozen.gpus(), sign * memory, sign * host)

    def drop_reservation(self, job: str) -> None:
        reservation = self.reservations.pop(job, None) if self.reservations else None
        if reservation is not None:
            self.occupancy.unreserve_gpus(reservation.slices)
            self.log.note_nodes([piece.node for piece in reservation.slices])


def kept_memory(topology: Topology, record: JobRecord, placement: Placement) -> KeptMemory:
    """What its frozen run keeps, or would keep if it were frozen there."""
    kept = record.kept
    if record.frozen is not None and kept is not None:
        return kept
    before = kept if kept is not None and kept.is_reported else None
    return estimated(topology, record.demand, placement, record.measured_memory, before)


def can_continue_at(topology: Topology, old: Placement, new: Placement) -> bool:
    """Whether a run in the old place can go on in the new one without being ended."""
    return old.slices == new.slices or can_rebind(topology, old, new)


def can_rebind(topology: Topology, old: Placement, new: Placement) -> bool:
    """Whether the one can be exchanged for the other under the feet of a run.

    A CPU slot is only a number: any slots of the same nodes are as good, as many on each. On GPUs it stays
    on its own, and others come or go beside it.
    """
    return is_in_place(old, new) or (
        is_on_slots(topology, old)
        and is_on_slots(topology, new)
        and Counter(piece.node for piece in old.slices)
        == Counter(piece.node for piece in new.slices)
    )


def can_move_frozen_to(topology: Topology, old: Placement, new: Placement) -> bool:
    """Whether a run frozen by the CUDA driver could go on on these GPUs, where the driver can map them.

    As many of the same kind on each of its nodes, not by MPS, and not MIG slices. By NVIDIA's documentation
    (drivers from 580 on); not seen on hardware.
    """
    return (
        Sharing.MPS not in (old.sharing, new.sharing)
        and not is_on_slots(topology, old)
        and not _has_slices(topology, old)
        and _kinds_by_node(topology, old) == _kinds_by_node(topology, new)
    )


def _has_slices(topology: Topology, placement: Placement) -> bool:
    """Whether it is on MIG slices, which the driver takes nothing out of."""
    uuids = topology.uuids
    return bool(uuids) and any(uuids[gpu].startswith("MIG-") for gpu in placement.gpus())


def _kinds_by_node(topology: Topology, placement: Placement) -> Counter[tuple[int, str]]:
    kinds = topology.type_of_gpu
    return Counter((piece.node, kinds[piece.gpu].name) for piece in placement.slices)


def is_in_place(old: Placement, new: Placement) -> bool:
    """Whether a run has the same devices in both, shared or not, in a way that its processes do not notice.

    Alone and by turns are the same to the driver. What MPS allows a process is fixed at its launch.
    """
    if [piece.gpu for piece in old.slices] != [piece.gpu for piece in new.slices]:
        return False
    modes = {old.sharing, new.sharing}
    if Sharing.MPS not in modes:
        return True
    memories = [[piece.memory for piece in each.slices] for each in (old, new)]
    return len(modes) == 1 and memories[0] == memories[1]


def in_node_order_of(old: Placement, new: Placement) -> Placement:
    """The new placement with its nodes in the order of the old one: ranks stay on their nodes."""
    if old.nodes == new.nodes:
        return new
    position = {node: number for number, node in enumerate(old.nodes)}
    return replace(new, slices=tuple(sorted(new.slices, key=lambda each: position[each.node])))


def is_on_slots(topology: Topology, placement: Placement) -> bool:
    return topology.type_of_gpu[placement.slices[0].gpu].name == SLOT_TYPE
