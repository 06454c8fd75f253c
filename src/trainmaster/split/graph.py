"""The graph of a model: operators with their time and memory, and the tensors between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


class GraphError(ValueError):
    """A graph that cannot be placed: one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A piece of a model that runs as a whole on one device."""

    name: str
    time: int | None
    """Nanoseconds on a device of nominal speed; None: not known, which no placer takes."""
    temporary: int = 0
    """Bytes that it needs while it runs."""
    output: int = 0
    """Bytes that stay until everything that reads them has run."""
    persistent: int = 0
    """Bytes that stay: parameters, their gradients and the optimizer's state, and what backward reads."""
    group: str | None = None
    """Operators with the same name of a group are placed on one device."""

    @property
    def memory(self) -> int:
        """All that must be free where it is placed."""
        return self.temporary + self.output + self.persistent


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that one operator makes and another one reads."""

    source: str
    target: str
    size: int = 0
    tensor: int = 0
    """Edges of one source with the same tensor share its copy on another device."""


@dataclass(frozen=True)
class ModelGraph:
    """Operators and edges, checked, with indices for placers."""

    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        if not self.operators:
            raise GraphError("The graph has no operators: capture a model that computes something.")
        if len(self.index) < len(self.operators):
            names = [each.name for each in self.operators]
            twice = next(name for name in names if names.count(name) > 1)
            raise GraphError(f"Two operators are named {twice!r}: give each a name of its own.")
        for each in self.operators:
            _check_operator(each)
        for edge in self.edges:
            unknown = [name for name in (edge.source, edge.target) if name not in self.index]
            if unknown:
                raise GraphError(
                    f"An edge names the operator {unknown[0]!r}, which is not in the graph."
                )
            if edge.size < 0:
                raise GraphError(f"The edge {edge.source} -> {edge.target} has a negative size.")
        if len(self.order) < len(self.operators):
            cycle = " -> ".join(self._cycle())
            raise GraphError(f"The graph has a cycle, {cycle}: capture a step without its loop.")

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each operator."""
        return {each.name: number for number, each in enumerate(self.operators)}

    @cached_property
    def incoming(self) -> tuple[tuple[tuple[int, Edge], ...], ...]:
        """For each operator the numbers of those that it reads from."""
        return self._ends(reads=True)

    @cached_property
    def outgoing(self) -> tuple[tuple[tuple[int, Edge], ...], ...]:
        """For each operator the numbers of those that read from it."""
        return self._ends(reads=False)

    def _ends(self, *, reads: bool) -> tuple[tuple[tuple[int, Edge], ...], ...]:
        found: list[list[tuple[int, Edge]]] = [[] for _ in self.operators]
        for edge in self.edges:
            here, there = (edge.target, edge.source) if reads else (edge.source, edge.target)
            found[self.index[here]].append((self.index[there], edge))
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Breadth-first topological order (Kahn); shorter than the graph if that has a cycle."""
        missing = [len(each) for each in self.incoming]
        ready = deque(number for number, count in enumerate(missing) if not count)
        found = []
        while ready:
            found.append(ready.popleft())
            for child, _ in self.outgoing[found[-1]]:
                missing[child] -= 1
                if not missing[child]:
                    ready.append(child)
        return tuple(found)

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """The place of each operator in the topological order."""
        found = [0] * len(self.operators)
        for place, number in enumerate(self.order):
            found[number] = place
        return tuple(found)

    @cached_property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The operators of each colocation group."""
        found: dict[str, list[int]] = {}
        for number, each in enumerate(self.operators):
            if each.group is not None:
                found.setdefault(each.group, []).append(number)
        return {name: tuple(numbers) for name, numbers in found.items()}

    def times(self) -> list[int]:
        """The time of each operator."""
        return [each.time or 0 for each in self.operators]

    def _cycle(self) -> Sequence[str]:
        left = set(range(len(self.operators))) - set(self.order)
        at, seen = min(left), list[int]()
        while at not in seen:
            seen.append(at)
            at = next(parent for parent, _ in self.incoming[at] if parent in left)
        around = [*seen[seen.index(at) :], at]
        return [self.operators[number].name for number in reversed(around)]


def _check_operator(each: Operator) -> None:
    if each.time is None:
        raise GraphError(
            f"The operator {each.name} has no cost: profile the model, or state its time."
        )
    amounts = {
        "time": each.time,
        "temporary memory": each.temporary,
        "output": each.output,
        "persistent memory": each.persistent,
    }
    for what, amount in amounts.items():
        if amount < 0:
            raise GraphError(f"The operator {each.name} has a negative {what}.")
