"""What is placed together: groups that a framework states, and operators whose output one other reads."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.split.graph import ModelGraph


def colocated(graph: ModelGraph, most_memory: int | None = None) -> ModelGraph:
    """An operator with exactly one consumer joins its consumer's group (Baechi's co-placement).

    A chain becomes one group, so that groups of more than `most_memory` bytes are not made.
    """
    root = list(range(len(graph.operators)))
    amount = [each.memory for each in graph.operators]

    def find(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    def join(one: int, other: int) -> None:
        one, other = find(one), find(other)
        if one != other:
            root[one] = other
            amount[other] += amount[one]

    for members in graph.groups.values():
        for each in members[1:]:
            join(each, members[0])
    for number in reversed(graph.order):
        consumers = {child for child, _ in graph.outgoing[number]}
        if len(consumers) != 1:
            continue
        one, other = find(number), find(consumers.pop())
        if one != other and (most_memory is None or amount[one] + amount[other] <= most_memory):
            join(one, other)
    members_of: dict[int, list[int]] = {}
    for number in range(len(root)):
        members_of.setdefault(find(number), []).append(number)
    names = {
        each: graph.operators[members[0]].group or graph.operators[members[0]].name
        for members in members_of.values()
        if len(members) > 1
        for each in members
    }
    operators = (
        replace(each, group=names.get(number)) for number, each in enumerate(graph.operators)
    )
    return ModelGraph(tuple(operators), graph.edges)
