"""Which part of which GPU is taken: flat integer arrays beside the topology.

Whole free GPUs are kept as one bit mask per node, and nodes as one bit mask per (type, number of
whole free GPUs): finding the best-fitting node is a few machine words, whatever the cluster's size.
What is booked here is what jobs are *entitled* to; GPUs that a suspended run has not physically left
yet are in `State.releasing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trainmaster.core.topology_index import TopologyIndex
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import Topology
from trainmaster.model.units import WHOLE

SHARED = (Sharing.MPS, Sharing.TIME)

Undo = tuple[Callable[..., None], tuple[Any, ...]]
"""A method of the occupancy and its arguments."""


class Occupancy(TopologyIndex):
    """Bookings of slices, CPUs and host memory; every change has an exact inverse."""

    def __init__(
        self, topology: Topology, *, can_freeze: bool = False, can_move_frozen: bool = False
    ) -> None:
        super().__init__(topology, can_freeze=can_freeze)
        self.can_move_frozen = can_move_frozen
        """Whether a frozen run can go on on other GPUs of its kind, on its nodes."""
        gpus, nodes = topology.gpu_count, topology.nodes
        self.free_share = [WHOLE] * gpus
        """What guaranteed runs leave of each GPU; 0 while it is reserved."""
        self.free_spare = [WHOLE] * gpus
        """What opportunistic runs leave of the idle cycles of each shared GPU."""
        self.free_memory = [kind.memory for kind in topology.type_of_gpu]
        self.mode: list[Sharing | None] = [None] * gpus
        self.whole = [(1 << node.gpus) - 1 for node in nodes]
        """Per node: a bit for each unused GPU."""
        self.free_cpus = [node.cpus for node in nodes]
        self.free_host = [node.memory for node in nodes]
        largest = max(self.largest, default=0)
        self.by_free = [[0] * (largest + 1) for _ in topology.types]
        """Per type, per number of whole free GPUs: a bit for each open node."""
        self.free_gpus = [0] * len(topology.types)
        """Whole free GPUs on open nodes, per type."""
        self.domain_free = [
            [[0] * len(masks) for masks in topology.domain_masks[: topology.node_level]]
            for _ in topology.types
        ]
        """The same per type, level above `node`, and domain there."""
        self.above = [
            list(zip(self.domain_free[self.node_type[node.index]], node.domains, strict=False))
            for node in nodes
        ]
        """Per node: the counters of the domains around it."""
        self.partial: list[dict[int, int]] = [{} for _ in topology.types]
        """Per type, per free share: a bit for each partly used, shareable GPU on an open node."""
        self.on_one_node: list[dict[int, Placement]] = [{} for _ in nodes]
        """A cache: per node, the exclusive placement on the GPUs of a bit mask."""
        self.closed: set[int] = set()
        self.aside: set[int] = set()
        """GPUs that are set aside: nothing is offered of them; what is booked there stays booked."""
        self.reserved_gpus: dict[int, bool] = {}
        """GPUs that are reserved, and whether opportunistic runs may use them meanwhile."""
        self.shared_gpus = 0
        """GPUs that are shared now, by fractions or in turns."""
        self.undo_log: list[Undo] = []
        """How to undo the bookings of drafts, the last one at the end."""
        for node in nodes:
            self._list(node.index, 1)

    def undo(self, length: int = 0) -> None:
        """Undo, last first, what drafts have booked since the log had this length."""
        log = self.undo_log
        while len(log) > length:
            inverse, args = log.pop()
            inverse(*args)

    # -- nodes ---------------------------------------------------------------------------------

    def close(self, node: int) -> None:
        """Offer nothing on this node any more; what is booked there stays booked."""
        if node not in self.closed:
            self._list(node, -1)
            self.closed.add(node)

    def open(self, node: int) -> None:
        if node in self.closed:
            self.closed.discard(node)
            self._list(node, 1)

    def set_gpu_aside(self, gpu: int) -> None:
        """Offer nothing of this GPU any more; what is booked there stays booked."""
        if gpu not in self.aside:
            self._change_offer(gpu, self.aside.add, -1)

    def return_gpu(self, gpu: int) -> None:
        if gpu in self.aside:
            self._change_offer(gpu, self.aside.discard, 1)

    def forget_nodes(self, nodes: Iterable[int]) -> None:
        """Offer nothing of these nodes, and let nothing count as fitting there."""
        for node in nodes:
            first = self.first_gpu[node]
            for gpu in range(first, first + self.topology.nodes[node].gpus):
                self.set_gpu_aside(gpu)

    def _change_offer(self, gpu: int, change: Callable[[int], None], sign: int) -> None:
        node = self.node_of[gpu]
        kind, is_open = self.node_type[node], node not in self.closed
        if is_open:
            self._unlist_partial(gpu, kind)
        change(gpu)
        self.usable[node] += sign
        self._fewest.clear()
        self._show_whole(gpu)
        if is_open:
            self._list_partial(gpu, kind)

    def is_offered(self, gpu: int) -> bool:
        """Whether jobs may be started on this GPU, if they find room there."""
        return gpu not in self.aside and self.node_of[gpu] not in self.closed

    def is_open(self, placement: Placement) -> bool:
        """Whether all of its GPUs would be offered to others."""
        if not (self.closed or self.aside):
            return True
        return self.closed.isdisjoint(placement.nodes) and self.aside.isdisjoint(placement.gpus())

    def _list(self, node: int, sign: int) -> None:
        """Offer what is free on a node (1), or no longer (-1)."""
        kind, free = self.node_type[node], self.whole[node].bit_count()
        self.by_free[kind][free] ^= 1 << node
        self.free_gpus[kind] += sign * free
        for counts, domain in self.above[node]:
            counts[domain] += sign * free
        first = self.first_gpu[node]
        move = self._list_partial if sign > 0 else self._unlist_partial
        for gpu in range(first, first + self.topology.nodes[node].gpus):
            move(gpu, kind)

    def _list_partial(self, gpu: int, kind: int) -> None:
        free = self.free_share[gpu]
        if free and self.mode[gpu] in SHARED and gpu not in self.aside:
            table = self.partial[kind]
            table[free] = table.get(free, 0) | 1 << gpu

    def _unlist_partial(self, gpu: int, kind: int) -> None:
        free, table = self.free_share[gpu], self.partial[kind]
        mask = table.get(free, 0) & ~(1 << gpu)
        if mask:
            table[free] = mask
        else:
            table.pop(free, None)

    # -- booking -------------------------------------------------------------------------------

    def refusal(
        self, placement: Placement, demand: Demand, *, is_there: bool = False
    ) -> Refused | None:
        """Why this cannot be booked now; None if it can.

        What is there already may be on a closed node, or on a GPU that is set aside.
        """
        nodes: dict[int, int] = {}
        sharing, mode = placement.sharing, self.mode
        exclusive = sharing is Sharing.EXCLUSIVE
        is_spare = is_opportunistic(placement)
        free_share = self.free_spare if is_spare else self.free_share
        seen: set[int] = set()
        for node, gpu, share, memory, _ in placement.slices:
            if node in self.closed and not is_there:
                return Refused.NODE_UNAVAILABLE
            if gpu in self.aside and not is_there:
                return Refused.GPU_SET_ASIDE
            if self.node_of[gpu] != node or gpu in seen:
                return Refused.NOT_ADMISSIBLE
            seen.add(gpu)
            if exclusive:
                share = WHOLE
            elif mode[gpu] is not None and mode[gpu] is not sharing:
                return Refused.GPU_TAKEN
            if is_spare and not self.reserved_gpus.get(gpu, True):
                return Refused.RESERVED
            if free_share[gpu] < share or (exclusive and mode[gpu] is not None):
                return Refused.GPU_TAKEN
            if memory > self.free_memory[gpu]:
                return Refused.MEMORY_TAKEN
            nodes[node] = nodes.get(node, 0) + share
        for node, share in nodes.items():
            if not self.has_host_room(node, share, demand, is_spare=is_spare):
                return Refused.HOST_TAKEN
        return None

    def has_host_room(
        self, node: int, share: int, demand: Demand, *, is_spare: bool = False, kept: int = 0
    ) -> bool:
        """Whether the node's CPUs and host memory can carry that much share of this job.

        Opportunistic runs use what is idle, so they book only what they state. `kept` is host memory
        that a frozen run of the job holds there and releases when it is thawed.
        """
        cpus, host = demand.cpus, demand.host_memory
        if cpus is None:
            cpus = 0 if is_spare else self.cpus_per_gpu[node]
        if host is None:
            host = 0 if is_spare else self.host_per_gpu[node]
        return (
            cpus * share <= self.free_cpus[node] * WHOLE
            and host * share <= (self.free_host[node] + kept) * WHOLE
        )

    def host_part(self, node: int, share: int, demand: Demand) -> int:
        """Host memory that goes with a share of this node's GPUs."""
        host = self.host_per_gpu[node] if demand.host_memory is None else demand.host_memory
        return host * share // WHOLE

    def booked_host(self, node: int, share: int, demand: Demand, placement: Placement) -> int:
        """Host memory that was booked with such a share of a placement."""
        if demand.host_memory is None and is_opportunistic(placement):
            return 0
        return self.host_part(node, share, demand)

    def room_on(self, node: int, free: int, demand: Demand) -> int:
        """How many of the node's free GPUs its CPUs and host memory can carry for this job."""
        while free and not self.has_host_room(node, free * WHOLE, demand):
            free -= 1
        return free

    def book(self, placement: Placement, demand: Demand) -> None:
        """Book the slices; the caller has made sure that they are free."""
        if placement.sharing is Sharing.EXCLUSIVE:
            self._move_whole(placement.slices, demand, 1)
        else:
            self._move_shared(placement, demand, 1)

    def unbook(self, placement: Placement, demand: Demand) -> None:
        if placement.sharing is Sharing.EXCLUSIVE:
            self._move_whole(placement.slices, demand, -1)
        else:
            self._move_shared(placement, demand, -1)

    def _move_whole(self, slices: tuple[Slice, ...], demand: Demand, sign: int) -> None:
        """Book (sign 1) or unbook (-1) whole GPUs, one index update per node."""
        free_share, modes = self.free_share, self.mode
        share, mode = (0, Sharing.EXCLUSIVE) if sign > 0 else (WHOLE, None)
        bits, last = 0, slices[0].node
        first = self.first_gpu[last]
        for node, gpu, _, memory, _ in slices:
            free_share[gpu] = share
            modes[gpu] = mode
            if memory:
                self.free_memory[gpu] -= sign * memory
            if node != last:
                self._flip(last, bits, demand)
                bits, last, first = 0, node, self.first_gpu[node]
            if gpu in self.aside:
                self._move_host(node, WHOLE, demand, sign, is_spare=False)
            else:
                bits |= 1 << (gpu - first)
        self._flip(last, bits, demand)

    def _flip(self, node: int, bits: int, demand: Demand | None) -> None:
        """Mark free GPUs of a node as taken, or taken ones as free, with the demand's part of the host."""
        mask = self.whole[node]
        old = mask.bit_count()
        mask ^= bits
        self.whole[node] = mask
        new = mask.bit_count()
        change = new - old
        if demand is not None:
            cpus, host = demand.cpus, demand.host_memory
            self.free_cpus[node] += change * (self.cpus_per_gpu[node] if cpus is None else cpus)
            self.free_host[node] += change * (self.host_per_gpu[node] if host is None else host)
        if node not in self.closed:
            kind, bit = self.node_type[node], 1 << node
            row = self.by_free[kind]
            row[old] ^= bit
            row[new] ^= bit
            self.free_gpus[kind] += change
            for counts, domain in self.above[node]:
                counts[domain] += change

    def _move_host(
        self, node: int, share: int, demand: Demand, sign: int, *, is_spare: bool
    ) -> None:
        cpus, host = demand.cpus, demand.host_memory
        if cpus is None:
            cpus = 0 if is_spare else self.cpus_per_gpu[node]
        if host is None:
            host = 0 if is_spare else self.host_per_gpu[node]
        self.free_cpus[node] -= sign * (cpus * share // WHOLE)
        self.free_host[node] -= sign * (host * share // WHOLE)

    def _move_shared(self, placement: Placement, demand: Demand, sign: int) -> None:
        """Book (sign 1) or unbook (-1) parts of GPUs."""
        is_spare = is_opportunistic(placement)
        shares = self.free_spare if is_spare else self.free_share
        for piece in placement.slices:
            node, gpu = piece.node, piece.gpu
            kind, is_open = self.node_type[node], node not in self.closed
            if is_open:
                self._unlist_partial(gpu, kind)
            was_used = self.mode[gpu] is not None
            shares[gpu] -= sign * piece.share
            self.free_memory[gpu] -= sign * piece.memory
            is_used = self._is_used(gpu)
            self.mode[gpu] = placement.sharing if is_used else None
            if was_used != is_used:
                self.shared_gpus += sign
                self._show_whole(gpu)
            if is_open:
                self._list_partial(gpu, kind)
            self._move_host(node, piece.share, demand, sign, is_spare=is_spare)

    def _is_used(self, gpu: int) -> bool:
        """Whether some run shares it, even if another job has reserved it."""
        is_guaranteed = gpu not in self.reserved_gpus and self.free_share[gpu] < WHOLE
        return is_guaranteed or self.free_spare[gpu] < WHOLE

    def _show_whole(self, gpu: int) -> None:
        """List a GPU among the whole free ones if it is unused, not reserved and not set aside."""
        node = self.node_of[gpu]
        bit = 1 << (gpu - self.first_gpu[node])
        is_hidden = gpu in self.reserved_gpus or gpu in self.aside
        is_whole = self.mode[gpu] is None and not is_hidden
        if bool(self.whole[node] & bit) != is_whole:
            self._flip(node, bit, None)

    # -- what frozen runs and reservations hold --------------------------------------------------

    def book_frozen(self, gpus: Iterable[int], memory: int, host: int) -> None:
        """Book what a frozen run keeps: `memory` on each GPU, `host` bytes per GPU on its node."""
        for gpu in gpus:
            self.free_memory[gpu] -= memory
            self.free_host[self.node_of[gpu]] -= host

    def refusal_without(
        self, gpus: Sequence[int], memory: int, host: int, placement: Placement, demand: Demand
    ) -> Refused | None:
        """Why this could not be booked if a frozen run did not keep so much on these GPUs."""
        self.book_frozen(gpus, -memory, -host)
        why = self.refusal(placement, demand)
        self.book_frozen(gpus, memory, host)
        return why

    def reserve_gpus(self, slices: Iterable[Slice], open_to_spare: bool = False) -> None:
        """Hide GPUs that no guaranteed run uses from all jobs, or from all but opportunistic ones."""
        for piece in slices:
            self._reserve(piece, 0, open_to_spare)

    def unreserve_gpus(self, slices: Iterable[Slice]) -> None:
        """Make reserved GPUs available again."""
        for piece in slices:
            self._reserve(piece, WHOLE, None)

    def _reserve(self, piece: Slice, free: int, open_to_spare: bool | None) -> None:
        gpu, kind = piece.gpu, self.node_type[piece.node]
        is_open = piece.node not in self.closed
        if is_open:
            self._unlist_partial(gpu, kind)
        self.free_share[gpu] = free
        if open_to_spare is None:
            self.reserved_gpus.pop(gpu, None)
        else:
            self.reserved_gpus[gpu] = open_to_spare
        self._show_whole(gpu)
        if is_open:
            self._list_partial(gpu, kind)

    @contextmanager
    def without(self, gpus: Iterable[int]) -> Iterator[None]:
        """Hide these GPUs within this block, where they are whole and free: nothing may be booked in it."""
        hidden: list[tuple[int, int]] = []
        for gpu in gpus:
            node = self.node_of[gpu]
            bit = 1 << (gpu - self.first_gpu[node])
            if self.whole[node] & bit:
                self._flip(node, bit, None)
                hidden.append((node, bit))
        try:
            yield
        finally:
            for node, bit in hidden:
                self._flip(node, bit, None)

    # -- queries -------------------------------------------------------------------------------

    def total_free(self) -> int:
        """Whole free GPUs on open nodes, CPU slots included."""
        return sum(self.free_gpus)

    def has_too_few(self, demand: Demand) -> bool:
        """Whether fewer whole GPUs are free in all than the nominal shape needs."""
        free = 0
        for kind in self.kinds_for(demand):
            free += self.free_gpus[kind]
        return free < demand.nominal.count


def is_opportunistic(placement: Placement) -> bool:
    """Whether it uses only idle cycles of shared GPUs; shares of such runs are counted separately."""
    return placement.role is Role.OPPORTUNISTIC and placement.sharing is not Sharing.EXCLUSIVE
