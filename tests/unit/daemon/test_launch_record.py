"""Where a run is, by the names of its nodes: a manager with other devices must not mistake them."""

from __future__ import annotations

import pytest

from tests.builders import on
from tests.unit.core.stage import Strings
from tests.unit.daemon.test_device_change import devices
from trainmaster.daemon.launch_record import Beyond, LaunchRecord, placed_nodes
from trainmaster.model import events as e
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.model.units import HOUR, MIB
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


def test_what_a_job_asks_for_after_its_failures_is_known_without_a_store() -> None:
    world = Strings(FOUR).running("a", 1, retries=9)
    run, memory = world.job("a").run, 3 * MIB
    world.tell(e.RunFailed(run, avoid=((0, 1),), memory=memory))
    record = world.job("a")
    assert (record.demand.avoid, record.demand.host_memory) == ((1,), memory)
    written = LaunchRecord(ROW, None, beyond=Beyond.of(record, FOUR))
    read = LaunchRecord.from_json(written.to_json())
    assert read == written
    again, beyond = Strings(devices(8)), read.beyond
    asked = beyond.devices(again.topology)
    again.script.wake_at = HOUR
    again.tell(e.JobSubmitted(record.job, memory=beyond.memory, avoid=asked))
    assert again.job("a").demand == record.demand
    assert again.state.avoiding.keys() == {"a"}
    assert LaunchRecord(ROW, None).beyond.devices(FOUR) == ()


def test_a_record_of_an_earlier_version_has_indices_only() -> None:
    placement = on(FOUR, 1)
    assert LaunchRecord(ROW, placement).placement_on(devices(4, host="other")) == placement
