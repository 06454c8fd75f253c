"""Graphs for the tests of placers."""

from __future__ import annotations

import random

from trainmaster.split.devices import Device, Link
from trainmaster.split.graph import Edge, ModelGraph, Operator

UNIT = Link(per_byte=1.0)
"""A transfer takes as long as it has bytes."""
G5 = ModelGraph(
    tuple(
        Operator(name, time, persistent=1)
        for name, time in zip("ABCDE", (2, 3, 4, 2, 1), strict=True)
    ),
    (Edge("A", "B", 1), Edge("A", "C", 1), Edge("B", "D", 1), Edge("C", "E", 2), Edge("D", "E", 2)),
)
"""Five operators, with the transfer times of their edges as sizes."""


def devices(*memory: int) -> list[Device]:
    return [Device(f"d{number}", each) for number, each in enumerate(memory)]


def random_graph(count: int, seed: int, *, most_time: int = 9, most_size: int = 4) -> ModelGraph:
    """Each operator reads one to three of those shortly before it."""
    chance = random.Random(seed)
    operators = tuple(
        Operator(
            f"o{number}",
            chance.randint(1, most_time),
            temporary=chance.randint(0, 2),
            output=chance.randint(0, 3),
            persistent=chance.randint(0, 3),
        )
        for number in range(count)
    )
    edges = []
    for number in range(1, count):
        parents = {
            max(0, number - chance.randint(1, 3)) for _ in range(chance.randint(1, min(3, number)))
        }
        edges += [
            Edge(f"o{parent}", f"o{number}", chance.randint(0, most_size), tensor=number)
            for parent in sorted(parents)
        ]
    return ModelGraph(operators, tuple(edges))
