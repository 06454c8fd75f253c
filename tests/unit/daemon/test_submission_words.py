"""Why a job cannot run here, as those who submit it read it."""

from __future__ import annotations

from trainmaster.daemon.submission_checks import _capacity
from trainmaster.model.topology import CPU_TYPE, SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB


def of_types(*kinds: str) -> Topology:
    specs = [
        NodeSpec(f"n{at}", 2, (0,), GpuType(kind), memory=15 * GIB, cpus=2_000)
        for at, kind in enumerate(kinds)
    ]
    return build(("cluster", "node", "gpu"), specs)


def test_devices_are_counted_by_their_type() -> None:
    said = _capacity(of_types(SLOT_TYPE, CPU_TYPE).nodes, False, True)
    assert said == (
        "this cluster has 2 slots and 2 cpus, and a job has devices of one type; its largest node has"
        " 2 slots, 2 cores and 15 GiB"
    )
    said = _capacity(of_types(SLOT_TYPE, SLOT_TYPE).nodes, False, True)
    assert said == "this cluster has 4 slots; its largest node has 2 slots, 2 cores and 15 GiB"
