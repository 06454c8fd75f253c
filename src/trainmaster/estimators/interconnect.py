"""The wires between GPUs, and what a step spends on them: bandwidth and latency by level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainmaster.estimators.allocation import Allocation
from trainmaster.model.topology import CPU_TYPE, INSIDE_NODE, SLOT_TYPE, Link, Topology

GB = 1_000_000_000
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Links:
    """The system's own figures, measured once, without any job."""

    by_level: tuple[tuple[str, Link], ...] = (
        # NVLink of a P100 or V100 pair: 2 x 20-25 GB/s each way, of which rings reach about 35.
        ("island", Link(35 * GB, 10)),
        # One PCIe 3.0 switch: peers reach 12 of its 15.75 GB/s.
        ("pcie", Link(12 * GB, 10)),
        ("socket", Link(10 * GB, 15)),
        # PCIe 3.0 x16: 15.75 GB/s raw, about 10 reached by rings that cross the CPU's root.
        ("node", Link(10 * GB, 15)),
        # CoDDL's cluster: 40 Gb/s RoCEv2, 5 GB/s raw, 80 % of it.
        ("rack", Link(4 * GB, 30)),
        # No source measured it; 2:1 oversubscription above the rack is usual.
        ("fabric", Link(2 * GB, 50)),
        ("cluster", Link(2 * GB, 50)),
    )
    bucket_bytes: int = 25 * MB
    """Gradients travel in buckets of this size (PyTorch's default); the last one hides behind nothing."""
    overlap_ppm: int = 500_000
    """The part of the backward pass behind which an exchange can hide."""
    update_bytes_per_s: int = 100 * GB
    """Parameters that a GPU updates per second: gradients, weights and momentum are read and written."""

    def at(self, level: str) -> Link:
        """The link of a level; a level of the user's own counts as the outermost."""
        known = dict(self.by_level)
        return known.get(level) or known["cluster"]

    def with_level(self, level: str, gbytes_per_s: float, latency_us: int) -> Links:
        """The same with another link at one level."""
        return self.over([(level, Link(round(gbytes_per_s * GB), latency_us))])

    def over(self, measured: Iterable[tuple[str, Link]]) -> Links:
        """The same with these links in the place of its own."""
        return replace(self, by_level=tuple({**dict(self.by_level), **dict(measured)}.items()))

    def inside_ns(self, allocation: Allocation, size: int) -> int:
        """Time to add up the gradients of the GPUs within each node: a ring on the fullest."""
        level = allocation.span if allocation.span in INSIDE_NODE else "node"
        return self._ring_ns(allocation.per_node[0], size, self.at(level))

    def between_ns(self, allocation: Allocation, size: int) -> int:
        """Time to add up what the nodes have: a ring of nodes, each with one wire."""
        nodes = len(allocation.per_node)
        return self._ring_ns(nodes, size, self.at(allocation.span)) if nodes > 1 else 0

    def update_ns(self, size: int) -> int:
        return round(size * 1e9 / self.update_bytes_per_s)

    def _ring_ns(self, members: int, size: int, link: Link) -> int:
        """Ring all-reduce: 2(n-1) hops, each with 1/n of the bytes, for every bucket."""
        if members == 1:
            return 0
        hops = 2 * (members - 1)
        buckets = max(1, -(-size // self.bucket_bytes))
        travel = hops * size * 1e9 / (members * link.bytes_per_s)
        return round(travel + hops * buckets * link.latency_us * 1e3)


DEFAULT_LINKS = Links()


def links_of(topology: Topology, usual: Links = DEFAULT_LINKS) -> Links:
    """The links of a cluster: those that were measured there, and usual ones.

    CPU slots exchange gradients on the cores that compute, so that nothing hides behind the computing.
    """
    links = usual.over(topology.links)
    has_gpus = any(each.name not in (CPU_TYPE, SLOT_TYPE) for each in topology.types)
    return links if has_gpus else replace(links, overlap_ppm=0)


def fit_link(ranks: int, seconds_by_size: Mapping[int, float]) -> Link:
    """The bandwidth and latency that explain all-reduces of several sizes between so many ranks.

    A ring takes 2(n-1) hops, each with the latency and 1/n of the bytes: a line over the sizes, fitted so
    that relative errors are small. ValueError where larger ones take no longer.
    """
    # least squares of (hop + byte * size) / span - 1 over all sizes
    ones = sum(1 / span**2 for span in seconds_by_size.values())
    sizes = sum(size / span**2 for size, span in seconds_by_size.items())
    squares = sum(size**2 / span**2 for size, span in seconds_by_size.items())
    right, right_sizes = (
        sum(1 / span for span in seconds_by_size.values()),
        sum(size / span for size, span in seconds_by_size.items()),
    )
    determinant = ones * squares - sizes**2
    if determinant <= 0:
        raise ValueError("all-reduces of at least two sizes are needed")
    per_byte = (ones * right_sizes - sizes * right) / determinant
    base = (right - per_byte * sizes) / ones
    if per_byte <= 0:
        raise ValueError("larger all-reduces took no longer than small ones: measure for longer")
    hops = 2 * (ranks - 1)
    return Link(round(hops / ranks / per_byte), max(0, round(base / hops * 1e6)))
