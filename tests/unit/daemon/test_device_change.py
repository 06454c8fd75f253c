"""A standby's devices, and how the sentence about them names what the leader has."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from trainmaster.daemon.device_change import refuse_other_devices
from trainmaster.daemon.request_errors import BadStart
from trainmaster.model import codec
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.store.rows import SnapshotRow


def devices(*counts: int, kind: str = SLOT_TYPE, host: str = "vm", uuids: str = "") -> Topology:
    names = [host] if len(counts) == 1 else [f"{host}-{index}" for index in range(len(counts))]
    nodes = [
        NodeSpec(name, count, (0,), GpuType(kind), uuids=tuple(uuids))
        for name, count in zip(names, counts, strict=True)
    ]
    return build(("cluster", "node", "gpu"), nodes)


@dataclass(frozen=True)
class StoreOf:
    """A store whose leader has these devices; None: it has not stored anything."""

    topology: Topology | None

    def snapshot(self) -> SnapshotRow | None:
        if self.topology is None:
            return None
        return SnapshotRow(1, 0, json.dumps({"topology": codec.encode(self.topology)}))


OTHERS = {
    "other slots": (devices(2), devices(3), "has 2 slots, .* have 3 slots: start with --slots 2"),
    "nodes": (devices(2, 2), devices(4), "has 2x2 slots, .* have 4 slots: start with --slots 2x2"),
    "slots": (
        devices(4, kind="H100"),
        devices(4),
        "has 4 H100s, .* 4 slots: start with --slots auto",
    ),
    "gpus": (
        devices(4, kind="H100"),
        devices(2, kind="H100"),
        r"start with the GPUs of last time visible \(4 H100s\)",
    ),
    "other gpus": (
        devices(2, kind="H100", uuids="ab"),
        devices(2, kind="H100", uuids="ac"),
        r"start with the GPUs of last time visible \(2 H100s\)",
    ),
    "name": (devices(2), devices(2, host="new"), "give the machine its name vm again"),
}


@pytest.mark.parametrize(("leader", "own", "words"), OTHERS.values(), ids=list(OTHERS))
def test_a_standby_with_other_devices_is_told_how_to_have_the_leaders(
    leader: Topology, own: Topology, words: str
) -> None:
    with pytest.raises(BadStart, match=words):
        refuse_other_devices(StoreOf(leader), own)  # type: ignore[arg-type]


def test_a_standby_may_find_the_gpus_in_another_order() -> None:
    leader, own = (devices(2, kind="H100", uuids=order) for order in ("ab", "ba"))
    assert refuse_other_devices(StoreOf(leader), own)  # type: ignore[arg-type]


@pytest.mark.parametrize("leader", [None, devices(2)])
def test_a_standby_with_the_same_devices_stands_by(leader: Topology | None) -> None:
    is_known = refuse_other_devices(StoreOf(leader), devices(2))  # type: ignore[arg-type]
    assert is_known == (leader is not None), "else it is asked again"


@pytest.mark.parametrize("own", [devices(2), None])
def test_a_standby_with_another_engine_is_told_which(own: Topology | None) -> None:
    said = (
        "runs jobs by the local engine, and this standby would by ray: start it with --engine local"
    )
    with pytest.raises(BadStart, match=said):
        refuse_other_devices(StoreOf(devices(2)), own, "ray")  # type: ignore[arg-type]
