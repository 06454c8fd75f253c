"""What is held on Ray for the devices of a node, and how many of them others hold."""

from __future__ import annotations

import pytest

from trainmaster.engines.ray.held_devices import CPU, GPU, taken, wanted
from trainmaster.engines.ray.node_facts import SLOTS_LABEL, TYPE_LABEL, NodeFacts
from trainmaster.model.units import WHOLE

WITH_GPUS = NodeFacts("g", "i1", "h1", gpus=4, cpus=8, memory=0)
SLOTS = NodeFacts("s", "i2", "h2", gpus=0, cpus=8, memory=0, labels={SLOTS_LABEL: "3"})
CPUS = NodeFacts("c", "i3", "h3", 0, 2, 0, {SLOTS_LABEL: "4", TYPE_LABEL: "cpu"})
INVENTED = NodeFacts("f", "i4", "h4", gpus=3, cpus=8, memory=0, labels={SLOTS_LABEL: "3"})


def test_gpus_are_held_as_such_with_the_cores_that_a_job_asks_for() -> None:
    assert wanted([WITH_GPUS], {"g": 2 * WHOLE}, {"g": 3000}) == {
        ("i1", GPU): 2000,
        ("i1", CPU): 3000,
    }
    assert wanted([INVENTED], {"f": WHOLE}, {}) == {("i4", GPU): 1000}


@pytest.mark.parametrize(
    ("node", "slots", "held"), [(SLOTS, 1, 2666), (SLOTS, 3, 8000), (CPUS, 1, 500), (CPUS, 4, 2000)]
)
def test_slots_are_their_part_of_the_cores_and_all_of_them_fit(
    node: NodeFacts, slots: int, held: int
) -> None:
    devices = {node.name: slots * WHOLE}
    assert wanted([node], devices, {node.name: 8000}) == {(node.incarnation, CPU): held}
    assert taken(node, {CPU: held / 1000, GPU: 0.0}.__getitem__) == slots


def test_a_part_of_a_device_that_others_hold_counts_as_one() -> None:
    assert taken(WITH_GPUS, {GPU: 1.5, CPU: 8.0}.__getitem__) == 2
    assert taken(SLOTS, {CPU: 3.0}.__getitem__) == 2
    assert taken(SLOTS, {CPU: 0.0}.__getitem__) == 0
