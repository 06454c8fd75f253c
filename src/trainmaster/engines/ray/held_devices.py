"""What stands on Ray for the devices of a node: its GPUs, or where CPU slots stand in for them, its cores.

Each slot is an equal part of the node's cores, so that other stores and users of the cluster see it taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from trainmaster.engines.ray.node_facts import NodeFacts

GPU, CPU = "GPU", "CPU"


def wanted(
    nodes: Iterable[NodeFacts], devices: Mapping[str, int], cpus: Mapping[str, int]
) -> Counter[tuple[str, str]]:
    """Thousandths by incarnation of a node and resource, for those of devices and of cores by its name."""
    found: Counter[tuple[str, str]] = Counter()
    for facts in nodes:
        much = devices.get(facts.name, 0)
        if facts.gpus > 0:
            found[(facts.incarnation, GPU)] = much
            found[(facts.incarnation, CPU)] = cpus.get(facts.name, 0)
        elif facts.slots:  # rounded down, so that all slots fit
            part = much * int(facts.cpus * 1000) // (1000 * facts.slots)
            found[(facts.incarnation, CPU)] = part
    return +found


def taken(facts: NodeFacts, of_others: Callable[[str], float]) -> int:
    """Devices that others hold, each counted even if they hold a part of it."""
    if facts.gpus > 0:
        held = of_others(GPU)
    elif facts.slots and facts.cpus > 0:
        held = of_others(CPU) * facts.slots / facts.cpus
    else:
        return 0
    return round(held + 0.499)
