"""What devices are called does not change when others join their cluster."""

from __future__ import annotations

from dataclasses import replace

from tests.fake_cluster import a_node
from trainmaster.daemon.device_names import device_key, device_name, devices_named
from trainmaster.model.topology import CPU_TYPE, GpuType
from trainmaster.model.topology_growth import grown, topology_of
from trainmaster.model.units import GIB


def test_a_gpu_keeps_its_name_when_a_node_without_gpus_joins() -> None:
    before = topology_of([replace(a_node("n1"), uuids=("GPU-a", "GPU-b"))])
    after = grown(before, [a_node("n2", 2, GpuType(CPU_TYPE, GIB))])
    assert [device_key(before, gpu) for gpu in range(2)] == ["GPU-a", "GPU-b"]
    assert [device_key(after, gpu) for gpu in range(4)] == ["GPU-a", "GPU-b", "n2:0", "n2:1"]
    assert [device_name(after, gpu) for gpu in (1, 3)] == ["n1:1", "n2:1"]
    assert devices_named(after, ["GPU-b", "n2:0"]) == [(0, 1), (1, 2)]
