"""Where a run is, by the names of its nodes: a manager with other devices must not mistake them."""

from __future__ import annotations

import pytest

from tests.builders import on
from tests.unit.daemon.test_device_change import devices
from trainmaster.daemon.launch_record import LaunchRecord, placed_nodes
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.store.rows import StoredJob

ROW = StoredJob(
    "7", "nap", "ann", "default", "running", 0, None, None, 1, None, None, None, "{}", "{}"
)
FOUR, TWO_NODES = devices(4), devices(2, 2)
CASES = {
    "the same": (FOUR, on(FOUR, 1), devices(4), 1),
    "more devices": (FOUR, on(FOUR, 1), devices(8), 1),
    "a node before it is smaller": (TWO_NODES, on(TWO_NODES, 2), devices(1, 2), 1),
    "another name": (FOUR, on(FOUR, 1), devices(4, host="other"), None),
    "another type": (FOUR, on(FOUR, 1), devices(4, kind="H100"), None),
    "one node instead of two": (TWO_NODES, on(TWO_NODES, 2), FOUR, None),
}


@pytest.mark.parametrize(("had", "placement", "have", "gpu"), CASES.values(), ids=list(CASES))
def test_a_placement_is_found_by_the_names_and_types_of_its_nodes(
    had: Topology, placement: Placement, have: Topology, gpu: int | None
) -> None:
    written = LaunchRecord(ROW, placement, 3, placed_nodes(placement, had))
    record = LaunchRecord.from_json(written.to_json())
    assert record == written
    found = record.placement_on(have)
    assert (found and [*found.gpus()]) == (gpu if gpu is None else [gpu])


def test_a_record_of_an_earlier_version_has_indices_only() -> None:
    placement = on(FOUR, 1)
    assert LaunchRecord(ROW, placement).placement_on(devices(4, host="other")) == placement
