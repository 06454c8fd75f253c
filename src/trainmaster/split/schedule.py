"""When each operator runs on which device: built up operator by operator, in the order of their starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from trainmaster.split.devices import Device, Link, PlacementError, check_devices
from trainmaster.split.graph import ModelGraph
from trainmaster.text.formatting import size

_Copy = tuple[int, int, int, int]
"""Of a tensor on another device: operator, tensor, size, device."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operator's run."""

    operator: str
    device: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor on its way to another device."""

    operator: str
    """What made it."""
    source: int
    target: int
    size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A placement of all operators, with the time that a step is expected to take."""

    steps: tuple[Step, ...]
    transfers: tuple[Transfer, ...]
    peaks: tuple[int, ...]
    """Most bytes in use on each device at once; virtual devices of a GPU all have the GPU's.

    Received tensors are not among them, as in Baechi.
    """
    received: tuple[int, ...]
    """Bytes that each device is sent in a step; virtual devices of a GPU all have the GPU's."""

    @property
    def makespan(self) -> int:
        return max(each.end for each in self.steps)

    @property
    def device_of(self) -> dict[str, int]:
        return {each.operator: each.device for each in self.steps}


class Timetable:
    """A schedule that is being made: what is free when, and what is in memory."""

    def __init__(self, graph: ModelGraph, devices: Sequence[Device], link: Link) -> None:
        check_devices(devices)
        self.graph = graph
        self.devices = tuple(devices)
        self._link = link
        pools = list(dict.fromkeys(each.pool for each in devices))
        self._pool = [pools.index(each.pool) for each in devices]
        limits: dict[int, int] = {}
        for pool, device in zip(self._pool, devices, strict=True):
            limits[pool] = min(device.memory, limits.get(pool, device.memory))
        self._limit = [limits[pool] for pool in range(len(pools))]
        self._used = [0] * len(pools)
        self._peak = [0] * len(pools)
        self._free_at = [0] * len(devices)
        self._sends_at = [0] * len(devices)
        self._receives_at = [0] * len(devices)
        self._copies: dict[_Copy, int] = {}
        """When each is there."""
        self._releases: list[tuple[int, int, int]] = []
        """(time, pool, bytes)."""
        self._readers = [len(each) for each in graph.outgoing]
        self._readers_end = [0] * len(graph.operators)
        self._group_device: dict[str, int] = {}
        self.device: list[int | None] = [None] * len(graph.operators)
        self.end = [0] * len(graph.operators)
        self.last: list[int | None] = [None] * len(devices)
        """The operator that was last placed on each device."""
        self._steps: list[Step] = []
        self._transfers: list[Transfer] = []

    # -- looking ----------------------------------------------------------------------------------------

    def may_use(self, operator: int) -> Sequence[int]:
        """The devices that its colocation group leaves it."""
        group = self.graph.operators[operator].group
        fixed = None if group is None else self._group_device.get(group)
        return range(len(self.devices)) if fixed is None else (fixed,)

    def start(self, operator: int, device: int) -> int:
        """When it could start there, memory aside: its inputs have come, and the device is free."""
        return self._arrival(operator, device)[0]

    def _arrival(self, operator: int, device: int) -> tuple[int, dict[_Copy, Transfer]]:
        """When all its inputs are there and the device is free, and the transfers that this takes."""
        ready, sent = self._free_at[device], dict[_Copy, Transfer]()
        sends, receives = dict[int, int](), self._receives_at[device]
        for source, edge in self.graph.incoming[operator]:
            there = self.device[source]
            assert there is not None
            if self._pool[there] == self._pool[device]:
                ready = max(ready, self.end[source])
                continue
            copy = (source, edge.tensor, edge.size, device)
            arrived = sent[copy].end if copy in sent else self._copies.get(copy)
            if arrived is None:
                begin = max(self.end[source], sends.get(there, self._sends_at[there]), receives)
                arrived = begin + self._link.time(edge.size)
                sends[there] = receives = arrived
                name = self.graph.operators[source].name
                sent[copy] = Transfer(name, there, device, edge.size, begin, arrived)
            ready = max(ready, arrived)
        return ready, sent

    def fits(self, operator: int, device: int) -> bool:
        """Whether there is memory for it now; for the first of a group, for what the whole group keeps."""
        pool = self._pool[device]
        return self._needs(operator) <= self._limit[pool] - self._used[pool]

    def _needs(self, operator: int) -> int:
        each = self.graph.operators[operator]
        if each.group is None:
            return each.memory
        if each.group in self._group_device:
            return each.temporary + each.output
        return each.temporary + each.output + self._kept_by(each.group)

    def _kept_by(self, group: str) -> int:
        return sum(self.graph.operators[number].persistent for number in self.graph.groups[group])

    def next_release(self) -> int | None:
        """When memory is given back next."""
        return self._releases[0][0] if self._releases else None

    # -- placing ----------------------------------------------------------------------------------------

    def release(self) -> int:
        """Give back what is due next; the memory pool that has more now."""
        _, pool, amount = heappop(self._releases)
        self._used[pool] -= amount
        return pool

    def wait_for_room(self, operator: int, device: int) -> int:
        """Give back what it takes until the operator fits there: from when on it does."""
        at = 0
        while not self.fits(operator, device):
            release = self.next_release()
            if release is None:
                raise self.refusal(operator)
            at = max(at, release)
            self.release()
        return at

    def in_pool(self, pool: int) -> list[int]:
        """Devices that use this memory."""
        return [device for device, own in enumerate(self._pool) if own == pool]

    def place(self, operator: int, device: int, not_before: int = 0) -> Sequence[int]:
        """Run it there as soon as it can; the operators whose output this sends to the device."""
        each = self.graph.operators[operator]
        ready, sent = self._arrival(operator, device)
        start = max(not_before, ready)
        end = start + self.devices[device].time(each.time or 0)
        for copy, transfer in sent.items():
            self._sends_at[transfer.source] = max(self._sends_at[transfer.source], transfer.end)
            self._receives_at[device] = max(self._receives_at[device], transfer.end)
            self._copies[copy] = transfer.end
        self._take_memory(operator, device)
        self.device[operator], self.end[operator] = device, end
        self._free_at[device] = end
        self.last[device] = operator
        self._steps.append(Step(each.name, device, start, end))
        self._transfers += sent.values()
        self._give_back_inputs(operator, end)
        return [source for source, *_ in sent]

    def _take_memory(self, operator: int, device: int) -> None:
        each, pool = self.graph.operators[operator], self._pool[device]
        needs = self._needs(operator)
        self._peak[pool] = max(self._peak[pool], self._used[pool] + needs)
        self._used[pool] += needs - each.temporary
        if each.group is not None:
            self._group_device.setdefault(each.group, device)

    def _give_back_inputs(self, operator: int, end: int) -> None:
        for source, _ in self.graph.incoming[operator]:
            self._readers[source] -= 1
            self._readers_end[source] = max(self._readers_end[source], end)
            if not self._readers[source]:
                self._give_back(source, self._readers_end[source])
        if not self._readers[operator]:
            self._give_back(operator, end)

    def _give_back(self, operator: int, at: int) -> None:
        amount, device = self.graph.operators[operator].output, self.device[operator]
        if amount and device is not None:
            heappush(self._releases, (at, self._pool[device], amount))

    # -- its result ---------------------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        peaks = tuple(self._peak[pool] for pool in self._pool)
        received = [0] * len(self._peak)
        for each in self._transfers:
            received[self._pool[each.target]] += each.size
        sent = tuple(received[pool] for pool in self._pool)
        return Schedule(tuple(self._steps), tuple(self._transfers), peaks, sent)

    def refusal(self, operator: int) -> PlacementError:
        """Why an operator fits nowhere."""
        each = self.graph.operators[operator]
        needs, most = self._needs(operator), max(self._limit)
        what = f"The operator {each.name} needs {size(needs)}"
        if each.group is not None and each.group not in self._group_device:
            what = f"{what} with its colocation group {each.group}"
        if needs > most:
            return PlacementError(
                f"{what}, and the largest device has {size(most)}: use a larger device, or split it further."
            )
        free = max(limit - used for limit, used in zip(self._limit, self._used, strict=True))
        return PlacementError(
            f"{what}, and at most {size(free)} are left on any device: use more devices, or larger ones."
        )
