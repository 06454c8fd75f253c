"""m-SCT (Baechi, SoCC'20): m-ETF with favourite children, which a device waits for.

A linear program finds for each operator the child that should run right after it on its device: without the
time of their transfer (small communication times: Hanen and Munier's relaxation).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from trainmaster.split.devices import Device, Link, PlacementError
from trainmaster.split.graph import ModelGraph
from trainmaster.split.m_etf import EarliestFirst
from trainmaster.split.schedule import Schedule, Timetable

THRESHOLD = 0.1
"""A child is a favourite where the relaxed variable of its edge is below."""


def m_sct(
    graph: ModelGraph, devices: Sequence[Device], link: Link, threshold: float = THRESHOLD
) -> Schedule:
    timetable = Timetable(graph, devices, link)
    favourites = favourite_children(graph, link, threshold)
    return _FavouritesFirst(timetable, favourites).schedule()


def favourite_children(
    graph: ModelGraph, link: Link, threshold: float = THRESHOLD
) -> list[int | None]:
    """For each operator the child that should follow it on its device; each is the favourite of one."""
    found: list[int | None] = [None] * len(graph.operators)
    parents: dict[int, int] = {}
    _, relaxed = relaxation(graph, link)
    for edge, part in zip(graph.edges, relaxed, strict=True):
        if part >= threshold:
            continue
        source, target = graph.index[edge.source], graph.index[edge.target]
        if target in parents:  # where rounding gives two, the later one counts
            found[parents[target]] = None
        former = found[source]
        if former is not None:
            del parents[former]
        found[source], parents[target] = target, source
    return found


def relaxation(graph: ModelGraph, link: Link) -> tuple[float, Sequence[float]]:
    """The makespan of the linear program, a bound on any schedule with enough devices; and its edges'
    variables, 0 where the child follows its parent on one device, 1 where the tensor is sent."""
    operators, edges = len(graph.operators), len(graph.edges)
    times, unit = np.array(graph.times(), float), float(max(graph.times()) or 1)
    sources = np.array([graph.index[each.source] for each in graph.edges], int)
    targets = np.array([graph.index[each.target] for each in graph.edges], int)
    costs = np.array([link.time(each.size) for each in graph.edges], float)
    # Variables: starts of operators, parts of edges, makespan. Times are in units of the longest operator.
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    bounds: list[np.ndarray] = []
    at = 0

    def add(
        count: int, *terms: tuple[np.ndarray, np.ndarray, np.ndarray], least: np.ndarray
    ) -> None:
        nonlocal at
        rows.extend((row + at, column, value) for row, column, value in terms)
        bounds.append(least)
        at += count

    each_edge, each_operator = np.arange(edges), np.arange(operators)
    one_edge, one_operator = np.ones(edges), np.ones(operators)
    add(  # an operator starts when its inputs have come
        edges,
        (each_edge, sources, one_edge),
        (each_edge, targets, -one_edge),
        (each_edge, operators + each_edge, costs / unit),
        least=-times[sources] / unit,
    )
    add(  # the makespan is when all have ended
        operators,
        (each_operator, each_operator, one_operator),
        (each_operator, np.full(operators, operators + edges), -one_operator),
        least=-times / unit,
    )
    for ends in (sources, targets):  # at most one favourite child, and of one parent at most
        degrees = np.bincount(ends, minlength=operators)
        add(operators, (ends, operators + each_edge, -one_edge), least=1.0 - np.maximum(degrees, 1))
    row, column, value = (np.concatenate([each[part] for each in rows]) for part in range(3))
    count = operators + edges + 1
    solved = linprog(
        np.eye(1, count, count - 1)[0],
        A_ub=coo_array((value, (row, column)), shape=(at, count)).tocsr(),
        b_ub=np.concatenate(bounds),
        bounds=[(0, None)] * operators + [(0, 1)] * edges + [(0, None)],
        method="highs",
    )
    if not solved.success:
        raise PlacementError(f"The linear program of m-SCT was not solved: {solved.message}")
    return float(solved.fun) * unit, [
        float(part) for part in solved.x[operators : operators + edges]
    ]


class _FavouritesFirst(EarliestFirst):
    def __init__(self, timetable: Timetable, favourites: Sequence[int | None]) -> None:
        super().__init__(timetable)
        self._favourites = favourites
        self._put_off: list[list[int]] = [[] for _ in timetable.devices]
        """Operators that each device did not take because it waits for a favourite."""

    def delayed(self, operator: int, device: int, start: int) -> int:
        """While a device waits for a favourite it takes others only when they are urgent: when they could
        start on any device."""
        favourite = self._awaited(device, start)
        if favourite is None or favourite == operator:
            return start
        self._put_off[device].append(operator)
        return max(self._starts(operator).values())

    def placed(self, operator: int, device: int) -> None:
        for each, waiting in enumerate(self._put_off):
            if waiting and (each == device or self._awaited(each, 0) is None):
                self._put_off[each] = []
                for put_off in dict.fromkeys(waiting):
                    if self.is_ready(put_off):
                        self.offer_on(put_off, each)

    def _awaited(self, device: int, now: int) -> int | None:
        """The favourite child of what ran last there, if it is ready, and best there."""
        last = self.timetable.last[device]
        favourite = None if last is None else self._favourites[last]
        if favourite is None or not self.is_ready(favourite):
            return None
        ends = [
            self.timetable.end[parent] for parent, _ in self.timetable.graph.incoming[favourite]
        ]
        if max(ends) > now:
            return None
        starts = self._starts(favourite)
        return favourite if starts and min(starts, key=starts.__getitem__) == device else None

    def _starts(self, operator: int) -> dict[int, int]:
        """When it could start on each device where it fits."""
        table = self.timetable
        return {
            device: table.start(operator, device)
            for device in table.may_use(operator)
            if table.fits(operator, device)
        }
