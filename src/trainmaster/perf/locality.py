"""How much slower a gang trains the further apart its GPUs are, by model.

Three things are known from publications, each for the gangs that it was measured with: how far apart
(the span), over how many nodes a gang lies that would fit into one, and how much wider than needed a
gang lies that fits into none. Speeds are parts per million of the best placement of the same gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from trainmaster.model.topology import INSIDE_NODE
from trainmaster.model.units import NOMINAL
from trainmaster.perf.interpolation import Table, between
from trainmaster.perf.model_zoo import DEFAULT_MODEL, table_name

PER_DOUBLING = 100
"""Resolution of a gang's width, relative to the fewest nodes: hundredths."""


@dataclass(frozen=True, slots=True)
class Locality:
    """Tables by model; what a table does not say costs nothing inside a node."""

    spans: Mapping[str, int] = field(default_factory=dict)
    """Speed of an unknown model by span."""
    models: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same for known models; spans that a model does not name are those of unknown ones."""
    node_counts: Mapping[str, Mapping[int, Table]] = field(default_factory=dict)
    """By model and GPUs: speed by number of nodes, for gangs that would fit into one node."""
    widths: Mapping[str, Table] = field(default_factory=dict)
    """By model: speed by hundredths of the fewest nodes possible, for gangs that need several."""
    error_ppm: int = 0
    """True speeds between nodes differ from the tables by up to this much, per model and span."""

    def at_span(self, model: str, span: str, seed: int = 0) -> int:
        """Speed at a span, in parts per million of the speed at the nearest span."""
        name = table_name(model)
        table = self.models.get(name, self.spans)
        factor = table.get(span, self.spans.get(span))
        if span in INSIDE_NODE:
            return NOMINAL if factor is None else factor
        if factor is None:
            factor = min(
                (self.spans[each] for each in self.spans if each not in INSIDE_NODE), default=0
            )
            factor = factor or NOMINAL
        if self.error_ppm:
            error = self.error_ppm * _noise(f"{seed}/{name}/{span}") // NOMINAL
            factor = max(1, factor * (NOMINAL + error) // NOMINAL)
        return factor

    def at_nodes(self, model: str, gpus: int, nodes: int) -> int | None:
        """Speed of a gang on this many nodes instead of one; None if gangs of its size were not measured."""
        sizes = self.node_counts.get(table_name(model), {})
        size = max((each for each in sizes if each <= gpus), default=None)
        return None if size is None else between({1: NOMINAL, **sizes[size]}, nodes)

    def at_width(self, model: str, nodes: int, fewest: int) -> int:
        """Speed of a gang on more nodes than it needs, where it needs several."""
        table = self.widths.get(table_name(model)) or self.widths.get(DEFAULT_MODEL)
        if nodes <= fewest or not table:
            return NOMINAL
        return between({PER_DOUBLING: NOMINAL, **table}, PER_DOUBLING * nodes // fewest)


def _noise(key: str) -> int:
    """A pseudo-random number in [-10^6, 10^6] that depends only on the key."""
    digest = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
    return digest % (2 * NOMINAL + 1) - NOMINAL
