"""How many GPUs fewer would serve the same jobs at the same excess, under a better policy?

Nodes are taken away from the end of the cluster, until the policy's excess is that of the other policy
on the whole cluster. The search halves the range, and takes excess to fall with every node added; that
holds within the noise of placement, so the answer is a bracket: a number of nodes that is enough, and one
fewer, which was seen to be too few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil

from trainmaster.evaluation.suite import SuiteError
from trainmaster.model.topology import parse_shorthand

Excess = Callable[[int], float | None]
"""Mean excess in seconds on this number of nodes; None where some job did not end or cannot fit."""


@dataclass(frozen=True, slots=True)
class Saving:
    """The fewest nodes that were seen to be enough, and what one fewer does."""

    nodes_in_all: int
    gpus_per_node: int
    target_s: float
    """The other policy's excess on the whole cluster."""
    enough: int | None
    """None where not even the whole cluster is."""
    excess_s: float | None
    """With that many nodes."""
    too_few: int | None
    """None where the largest job needs all of `enough`."""
    too_few_excess_s: float | None
    """With one node fewer; None where jobs did not end."""

    @property
    def gpus_fewer(self) -> int:
        return 0 if self.enough is None else (self.nodes_in_all - self.enough) * self.gpus_per_node


def fewest_nodes(
    excess: Excess, target_s: float, nodes: int, least: int, gpus_per_node: int
) -> Saving:
    """Search between the nodes that the largest job needs and all nodes."""
    found = cache(excess)

    def is_enough(count: int) -> bool:
        excess_s = found(count)
        return excess_s is not None and excess_s <= target_s

    if not is_enough(nodes):
        return Saving(nodes, gpus_per_node, target_s, None, found(nodes), None, None)
    enough = least + bisect_left(range(least, nodes), True, key=is_enough)
    below = enough - 1 if enough > least else None
    return Saving(
        nodes_in_all=nodes,
        gpus_per_node=gpus_per_node,
        target_s=target_s,
        enough=enough,
        excess_s=found(enough),
        too_few=below,
        too_few_excess_s=None if below is None else found(below),
    )


def nodes_of(shape: str) -> tuple[int, int]:
    """Number of nodes and GPUs per node of a shorthand."""
    topology = parse_shorthand(shape)
    return len(topology.nodes), topology.nodes[0].gpus


def least_nodes(largest_gpus: int, gpus_per_node: int) -> int:
    return max(1, ceil(largest_gpus / gpus_per_node))


def shrunk(shape: str, nodes: int) -> str | Mapping[str, object]:
    """The shorthand's cluster cut to its first `nodes` nodes; only the last rack may be incomplete."""
    counts = [int(part) for part in shape.lower().split("x")]
    if len(counts) == 2:
        return f"{nodes}x{counts[1]}"
    if len(counts) > 3:
        raise SuiteError(f"nodes can be taken from 15x4 and 4x15x4, not from {shape}.")
    _, per_rack, gpus = counts
    full, rest = divmod(nodes, per_rack)
    sizes = [*([per_rack] * full), *([rest] if rest else [])]
    return {"racks": [{"nodes": [{"count": size, "gpus": gpus}]} for size in sizes]}
