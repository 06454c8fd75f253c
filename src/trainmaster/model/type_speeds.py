"""How fast the types of devices are, relative to the nominal one, by what was measured on nodes of each.

Before a job has run on a type, this is the speed that it is expected to have there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from trainmaster.model.topology import CPU_TYPE, SLOT_TYPE, Topology
from trainmaster.model.units import NOMINAL

NOTICEABLE_PART = 10
"""The speed of a type is changed when it differs by more than a tenth: measurements vary by that."""


class MeasuredRate(NamedTuple):
    """What a device of a node computed: millions of operations per second, of a matrix product."""

    type: str
    rate: int


class TypeSpeeds(NamedTuple):
    """All that is known of the speeds of types; `of` makes relative speeds of it."""

    rates: Mapping[str, MeasuredRate]
    """By the name of the node."""
    nominal: str
    """The type whose speed is 1; empty: none was measured."""
    stated: Mapping[str, int]
    """Speeds that somebody stated, in parts per million: they win over measured ones."""

    def by_type(self) -> Mapping[str, int]:
        """In parts per million of the nominal type's, to two digits."""
        usual = usual_rates(self.rates.values())
        unit = usual.get(self.nominal)
        measured = {name: _rounded(rate * NOMINAL // unit) for name, rate in usual.items() if unit}
        return measured | dict(self.stated)


def usual_rates(rates: Iterable[MeasuredRate]) -> Mapping[str, int]:
    """Of each type the median over its nodes."""
    by_type: dict[str, list[int]] = {}
    for each in rates:
        by_type.setdefault(each.type, []).append(each.rate)
    return {name: max(1, int(median(found))) for name, found in by_type.items()}


def fastest_type(rates: Iterable[MeasuredRate]) -> str:
    """The fastest type of GPU; CPU slots only where nothing else was measured."""
    usual = usual_rates(rates)
    order = lambda name: (name != CPU_TYPE, name != SLOT_TYPE, usual[name], name)  # noqa: E731
    return max(usual, key=order, default="")


def with_speeds(topology: Topology, speeds: Mapping[str, int]) -> Topology:
    """The same devices at these speeds; the same topology where none differs."""
    changed = {
        kind.name: replace(kind, speed_ppm=speeds[kind.name])
        for kind in topology.types
        if speeds.get(kind.name, kind.speed_ppm) != kind.speed_ppm
    }
    if not changed:
        return topology
    nodes = (
        replace(node, type=changed[node.type.name]) if node.type.name in changed else node
        for node in topology.nodes
    )
    return replace(topology, nodes=tuple(nodes))


def noticeable(topology: Topology, speeds: Mapping[str, int], stated: Iterable[str]) -> bool:
    """Whether a type is a tenth faster or slower than it counts as; a stated speed always counts."""
    for kind in topology.types:
        speed = speeds.get(kind.name, kind.speed_ppm)
        least = 0 if kind.name in stated else kind.speed_ppm // NOTICEABLE_PART
        if abs(speed - kind.speed_ppm) > least:
            return True
    return False


def _rounded(speed_ppm: int) -> int:
    """To two digits, so that figures can be read and small differences change nothing."""
    unit: int = 10 ** max(0, len(str(speed_ppm)) - 2)
    return max(1, (speed_ppm + unit // 2) // unit * unit)
