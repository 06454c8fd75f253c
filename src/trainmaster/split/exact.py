"""The best schedule of a small graph, by branch and bound: the yardstick of the placers.

All orders in which operators can be started are tried on all devices, each as early as it can: among those is
a best one. It grows with the factorial of the operators: a dozen are many.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from trainmaster.split.devices import Device, Link, PlacementError
from trainmaster.split.graph import GraphError, ModelGraph
from trainmaster.split.schedule import Schedule, Timetable

MOST_OPERATORS = 12


def exact(graph: ModelGraph, devices: Sequence[Device], link: Link) -> Schedule:
    """Of graphs of at most a dozen operators."""
    if len(graph.operators) > MOST_OPERATORS:
        raise GraphError(
            f"The exact search takes graphs of at most {MOST_OPERATORS} operators, and this one has"
            f" {len(graph.operators):,}: use m-ETF or m-SCT."
        )
    empty = Timetable(graph, devices, link)
    search = _Search(graph, devices)
    search.extend(empty, frozenset())
    if search.best is None:
        raise PlacementError(
            "The model fits on these devices in no order: use more devices, or larger ones."
        )
    return search.best


class _Search:
    def __init__(self, graph: ModelGraph, devices: Sequence[Device]) -> None:
        self._graph = graph
        self._tails = self._longest_tails(devices)
        self.best: Schedule | None = None

    def _longest_tails(self, devices: Sequence[Device]) -> list[int]:
        """Least time from the start of each operator to the end."""
        quickest = [min(each.time(time) for each in devices) for time in self._graph.times()]
        found = [0] * len(self._graph.operators)
        for number in reversed(self._graph.order):
            after = (found[child] for child, _ in self._graph.outgoing[number])
            found[number] = quickest[number] + max(after, default=0)
        return found

    def extend(self, table: Timetable, done: frozenset[int]) -> None:
        if len(done) == len(self._graph.operators):
            made = table.schedule()
            if self.best is None or made.makespan < self.best.makespan:
                self.best = made
            return
        for number in self._graph.order:
            parents = {parent for parent, _ in self._graph.incoming[number]}
            if number in done or not parents <= done:
                continue
            for device in table.may_use(number):
                self._try(table, done, number, device)

    def _try(self, table: Timetable, done: frozenset[int], number: int, device: int) -> None:
        made = copy.deepcopy(table)
        try:
            start = max(table.start(number, device), made.wait_for_room(number, device))
        except PlacementError:
            return
        if self.best is not None and start + self._tails[number] >= self.best.makespan:
            return
        made.place(number, device, start)
        self.extend(made, done | {number})
