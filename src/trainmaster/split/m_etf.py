"""m-ETF (Baechi, SoCC'20): the operator that can start earliest goes next, where its memory fits.

The operators that can run are in a heap under the time at which each could start on each device. What was
placed since may have made that later, which is seen when it comes up, or earlier (a tensor has been sent
there), for which it is added again.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from trainmaster.split.devices import Device, Link
from trainmaster.split.graph import ModelGraph
from trainmaster.split.schedule import Schedule, Timetable


def m_etf(graph: ModelGraph, devices: Sequence[Device], link: Link) -> Schedule:
    return EarliestFirst(Timetable(graph, devices, link)).schedule()


class EarliestFirst:
    """The list scheduler; m-SCT adds who waits for whom."""

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        self._graph = timetable.graph
        self._heap: list[tuple[int, int, int, int]] = []
        """(start, place in the topological order, device, operator)."""
        self._missing = [len(each) for each in self._graph.incoming]
        self._short: list[list[int]] = [[] for _ in timetable.devices]
        """Operators that wait for memory on each device."""
        self._now = 0

    def schedule(self) -> Schedule:
        for operator, missing in enumerate(self._missing):
            if not missing:
                self._offer(operator)
        left = len(self._missing)
        while left:
            if self._next():
                left -= 1
        return self.timetable.schedule()

    def delayed(self, operator: int, device: int, start: int) -> int:
        """When a device takes an operator that could start then."""
        return start

    def placed(self, operator: int, device: int) -> None:
        """Called after each placement."""

    def _offer(self, operator: int) -> None:
        for device in self.timetable.may_use(operator):
            self.offer_on(operator, device)

    def offer_on(self, operator: int, device: int) -> None:
        start = max(self._now, self.timetable.start(operator, device))
        heappush(self._heap, (start, self._graph.rank[operator], device, operator))

    def is_ready(self, operator: int) -> bool:
        """Whether all that it reads has been placed, and it has not."""
        return not self._missing[operator] and self.timetable.device[operator] is None

    def _next(self) -> bool:
        """Place one operator, or learn why the first one cannot be placed yet."""
        release = self.timetable.next_release()
        if not self._heap or (release is not None and release <= self._heap[0][0]):
            self._release(release)
            return False
        start, place, device, operator = heappop(self._heap)
        if not self.is_ready(operator) or device not in self.timetable.may_use(operator):
            return False
        true = max(self._now, self.timetable.start(operator, device))
        true = self.delayed(operator, device, true)
        if true > start:
            heappush(self._heap, (true, place, device, operator))
            return False
        if not self.timetable.fits(operator, device):
            self._short[device].append(operator)
            return False
        self._place(operator, device, true)
        return True

    def _release(self, at: int | None) -> None:
        if at is None:
            short = (each for every in self._short for each in every if self.is_ready(each))
            raise self.timetable.refusal(min(short, key=self._graph.rank.__getitem__))
        self._now = max(self._now, at)
        for device in self.timetable.in_pool(self.timetable.release()):
            waiting, self._short[device] = self._short[device], []
            for operator in waiting:
                self.offer_on(operator, device)

    def _place(self, operator: int, device: int, start: int) -> None:
        self._now = max(self._now, start)
        for source in self.timetable.place(operator, device, start):
            for reader, _ in self._graph.outgoing[source]:
                if self.is_ready(reader):
                    self.offer_on(reader, device)
        for reader, _ in self._graph.outgoing[operator]:
            self._missing[reader] -= 1
        for reader in dict.fromkeys(reader for reader, _ in self._graph.outgoing[operator]):
            if self.is_ready(reader):
                self._offer(reader)
        self.placed(operator, device)
