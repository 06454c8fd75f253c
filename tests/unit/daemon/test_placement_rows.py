"""Where a job is, as it is drawn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.daemon.test_memory_watch import a_driver, two_halves
from trainmaster.daemon.placement_rows import innermost, placement_rows
from trainmaster.daemon.response_models import PlacedDevice
from trainmaster.model.topology import NodeSpec, build
from trainmaster.store.store import Store


def test_a_half_beside_another_one_is_drawn_with_its_neighbour(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        await two_halves(driver)
        state = driver.controller.state
        found = placement_rows(state, "1")
        (node,) = found.nodes
        assert (node.name, found.span, found.is_frozen) == ("vm", "gpu", False)
        assert node.islands == [[PlacedDevice("vm:0", 0.5, 1)]]
        assert placement_rows(state, "9").nodes == []

    asyncio.run(scenario())


def test_every_device_is_drawn_once_whatever_the_islands() -> None:
    spec = NodeSpec("n", 6, (0,), sockets=2, switches=4)
    node = build(("cluster", "node", "socket", "pcie", "gpu"), [spec]).nodes[0]
    drawn = [local for island in innermost(node) for local in island]
    assert sorted(drawn) == list(range(6))
    assert len(innermost(node)) > 1
