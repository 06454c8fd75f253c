"""Makes one operator of neighbours in a group, so that placers have fewer to place.

An edge is fused unless its source has other consumers and its target other inputs: that alone could close a
cycle. Times and persistent bytes are added; of temporary bytes the larger counts, as in Baechi.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from trainmaster.split.graph import Edge, ModelGraph, Operator


class _Fusing:
    """The graph while it shrinks: an operator is named by the number of the last one that is in it."""

    def __init__(self, graph: ModelGraph) -> None:
        self.operators: dict[int, Operator] = dict(enumerate(graph.operators))
        self.members = {number: [number] for number in self.operators}
        self.reads = {number: {p for p, _ in each} for number, each in enumerate(graph.incoming)}
        self.read_by = {number: {c for c, _ in each} for number, each in enumerate(graph.outgoing)}

    def can_fuse(self, source: int, target: int) -> bool:
        one, other = self.operators[source], self.operators[target]
        is_one_group = one.group is not None and one.group == other.group
        return is_one_group and (len(self.read_by[source]) == 1 or len(self.reads[target]) == 1)

    def fuse(self, source: int, target: int) -> None:
        """Into the target."""
        one, other = self.operators.pop(source), self.operators[target]
        self.members[target] = self.members.pop(source) + self.members[target]
        read_by, reads = self.read_by.pop(source) - {target}, self.reads.pop(source)
        self.operators[target] = replace(
            other,
            name=f"{one.name}+{other.name}",
            time=(one.time or 0) + (other.time or 0),
            temporary=max(one.temporary, other.temporary),
            output=other.output + (one.output if read_by else 0),
            persistent=one.persistent + other.persistent,
        )
        self.reads[target] = (self.reads[target] - {source}) | reads
        self.read_by[target] |= read_by
        for parent in reads:
            self.read_by[parent] = (self.read_by[parent] - {source}) | {target}
        for child in read_by:
            self.reads[child] = (self.reads[child] - {source}) | {target}


def fused(graph: ModelGraph) -> tuple[ModelGraph, dict[str, tuple[str, ...]]]:
    """The smaller graph, and the operators that each of its operators stands for."""
    fusing = _Fusing(graph)
    waiting = deque(graph.order)
    while waiting:
        number = waiting.popleft()
        if number not in fusing.operators:
            continue
        target = next(
            (each for each in sorted(fusing.read_by[number]) if fusing.can_fuse(number, each)), None
        )
        if target is None:
            continue
        near = fusing.reads[number] | fusing.reads[target]
        fusing.fuse(number, target)
        waiting.extend(each for each in (target, *sorted(near)) if each in fusing.operators)
    return _rebuilt(graph, fusing)


def _rebuilt(graph: ModelGraph, fusing: _Fusing) -> tuple[ModelGraph, dict[str, tuple[str, ...]]]:
    inside = {each: number for number, members in fusing.members.items() for each in members}
    edges: dict[tuple[str, str, int, int], Edge] = {}
    """Several tensors of one operator are told apart by whose they were."""
    for edge in graph.edges:
        source, target = graph.index[edge.source], graph.index[edge.target]
        if inside[source] != inside[target]:
            one, other = fusing.operators[inside[source]], fusing.operators[inside[target]]
            tensor = fusing.members[inside[source]].index(source) * len(graph.edges) + edge.tensor
            edges[one.name, other.name, tensor, edge.size] = Edge(
                one.name, other.name, edge.size, tensor
            )
    names = {
        fusing.operators[number].name: tuple(graph.operators[each].name for each in members)
        for number, members in fusing.members.items()
    }
    kept = tuple(fusing.operators[number] for number in sorted(fusing.operators))
    return ModelGraph(kept, tuple(edges.values())), names
