"""Whole GPUs: consolidated on the fewest nodes, relaxing outwards, or wherever some are free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain
from operator import or_

from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import WHOLE

NodesByFree = Sequence[int]
"""Per number of whole free GPUs: a bit for each node that has just that many."""
Share = tuple[int, int]
"""(node, GPUs to take there)."""


def bits(mask: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def by_warmth(mask: int, demand: Demand) -> tuple[int, ...]:
    """Nodes that are as good as each other: first those that have the job's files already."""
    if not demand.warm:
        return (mask,)
    warm = mask & sum(1 << node for node in demand.warm)
    return warm, mask ^ warm


def warm_first(mask: int, demand: Demand) -> Iterator[int]:
    """The same one by one, by their number."""
    return chain.from_iterable(map(bits, by_warmth(mask, demand)))


def rows_for(
    space: Occupancy, kinds: tuple[int, ...], count: int
) -> list[tuple[NodesByFree, tuple[int, ...]]]:
    """Rows to search, fastest type first, all types together last; only those with enough free."""
    found: list[tuple[NodesByFree, tuple[int, ...]]] = []
    in_all = 0
    for kind in kinds:
        free = space.free_gpus[kind]
        in_all += free
        if free >= count:
            found.append((space.by_free[kind], (kind,)))
    if len(kinds) > 1 and in_all >= count:
        rows = [space.by_free[kind] for kind in kinds]
        found.append(([reduce(or_, masks) for masks in zip(*rows, strict=True)], kinds))
    return found


def one_node(
    space: Occupancy, row: NodesByFree, demand: Demand, count: int, within: int = -1
) -> list[Share] | None:
    """The node that fits best: the fewest free GPUs that are enough; of those a warm one, then by number."""
    for free in range(count, len(row)):
        for mask in by_warmth(row[free] & within, demand):
            while mask:
                low = mask & -mask
                node = low.bit_length() - 1
                if space.has_host_room(node, count * WHOLE, demand):
                    return [(node, count)]
                mask ^= low
    return None


def fewest_nodes(
    space: Occupancy, row: NodesByFree, demand: Demand, count: int, within: int, limit: int | None
) -> list[Share] | None:
    """Few nodes of a domain: the emptiest whole, the rest where it fits best.

    Where hosts are too small for that, each node gives what it can carry.
    """
    shares = _emptiest(space, row, demand, count, within)
    if shares is None:
        shares = _carried(space, row, demand, count, within, range(len(row) - 1, 0, -1))
    if shares is None or (limit is not None and len(shares) > limit):
        return None
    return shares


def _emptiest(
    space: Occupancy, row: NodesByFree, demand: Demand, count: int, within: int
) -> list[Share] | None:
    chosen: list[Share] = []
    left = count
    for free in range(len(row) - 1, 0, -1):
        for node in warm_first(row[free] & within, demand):
            if left < free:
                break
            if space.has_host_room(node, free * WHOLE, demand):
                chosen.append((node, free))
                within &= ~(1 << node)
                left -= free
                if not left:
                    return chosen
        rest = one_node(space, row, demand, left, within)
        if rest is not None:
            return [*chosen, *rest]
    return None


def _carried(
    space: Occupancy, row: NodesByFree, demand: Demand, count: int, within: int, frees: range
) -> list[Share] | None:
    """From each node what its host can carry, nodes in the given order of free GPUs."""
    chosen: list[Share] = []
    left = count
    for free in frees:
        for node in warm_first(row[free] & within, demand):
            take = space.room_on(node, min(free, left), demand)
            if take:
                chosen.append((node, take))
                left -= take
                if not left:
                    return chosen
    return None


def anywhere(space: Occupancy, row: NodesByFree, demand: Demand, count: int) -> list[Share] | None:
    """The fullest nodes first, so that empty nodes stay free for gangs that need them."""
    everywhere = (1 << len(space.topology.nodes)) - 1
    return _carried(space, row, demand, count, everywhere, range(1, len(row)))


def by_domain(
    space: Occupancy,
    row: NodesByFree,
    demand: Demand,
    count: int,
    kinds: Sequence[int],
    limit: int | None,
) -> list[Share] | None:
    """The innermost domain that can hold it, and there the fewest nodes; ties: the fuller domain."""
    for level in range(space.topology.node_level - 1, -1, -1):
        found = in_domains(space, row, demand, count, kinds, level, limit)
        if found is not None:
            return found
    return None


def in_domains(
    space: Occupancy,
    row: NodesByFree,
    demand: Demand,
    count: int,
    kinds: Sequence[int],
    level: int,
    limit: int | None,
) -> list[Share] | None:
    """In one domain of this level, on the fewest nodes; ties: the fuller domain, then more warm nodes."""
    best: tuple[int, int, int, list[Share]] | None = None
    counts = [space.domain_free[kind][level] for kind in kinds]
    for domain, mask in enumerate(space.topology.domain_masks[level]):
        free = sum(per_domain[domain] for per_domain in counts)
        if free < count:
            continue
        shares = fewest_nodes(space, row, demand, count, mask, limit)
        if shares is None:
            continue
        cold = sum(node not in demand.warm for node, _ in shares)
        if best is None or (len(shares), free, cold) < best[:3]:
            best = (len(shares), free, cold, shares)
    return None if best is None else best[3]


def slices_of(space: Occupancy, shares: Sequence[Share], memory: int) -> tuple[Slice, ...]:
    """Concrete GPUs on the chosen nodes: within one island where possible, lowest numbers first."""
    chosen: list[Slice] = []
    for node, count in shares:
        first, free = space.first_gpu[node], _island(space, node, count)
        while count:
            low = free & -free
            gpu = first + low.bit_length() - 1
            chosen.append(Slice(node, gpu, WHOLE, memory) if memory else space.whole_slices[gpu])
            free ^= low
            count -= 1
    return tuple(chosen)


def _island(space: Occupancy, node: int, count: int) -> int:
    """The free GPUs to choose from: the best-fitting island's, innermost first, or all of the node's."""
    free = space.whole[node]
    for islands in space.island_masks[node]:
        fitting = [mask & free for mask in islands if (mask & free).bit_count() >= count]
        if fitting:
            return min(fitting, key=int.bit_count)
    return free


def placement_of(space: Occupancy, shares: Sequence[Share], shape: Shape, role: Role) -> Placement:
    """Exclusive slices on the chosen nodes."""
    if len(shares) == 1 and not shape.memory and role is Role.GUARANTEED:
        return _on_one_node(space, *shares[0])
    slices = slices_of(space, shares, shape.memory)
    topology = space.topology
    if len(slices) == 1:
        span = len(topology.levels) - 1
    elif len(shares) > 1:
        span = topology.span_of_nodes([node for node, _ in shares])
    else:
        span = topology.span_of_gpus([piece.gpu for piece in slices])
    return Placement(slices, span, Sharing.EXCLUSIVE, role)


def _on_one_node(space: Occupancy, node: int, count: int) -> Placement:
    """The usual placement; all jobs that ever have these GPUs share one value."""
    chosen = _lowest(_island(space, node, count), count)
    known = space.on_one_node[node].get(chosen)
    if known is None:
        first = space.first_gpu[node]
        gpus = [first + local for local in bits(chosen)]
        slices = tuple([space.whole_slices[gpu] for gpu in gpus])
        known = Placement(slices, space.topology.span_of_gpus(gpus))
        space.on_one_node[node][chosen] = known
    return known


def _lowest(mask: int, count: int) -> int:
    """The lowest `count` set bits."""
    rest = mask
    while count:
        rest &= rest - 1
        count -= 1
    return mask ^ rest


def could_carry(space: Occupancy, node: int, demand: Demand, count: int) -> bool:
    """Whether the node alone could hold that many GPUs of the job if it were empty."""
    return count <= space.most_on(space.topology.nodes[node], demand)
