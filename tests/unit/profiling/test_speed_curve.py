"""Curves of predicted speed: what is exact, and where the topology shows."""

from __future__ import annotations

import pytest

from trainmaster.estimators.allocation import Allocation
from trainmaster.estimators.interconnect import GB, Links
from trainmaster.model.profile import Profile
from trainmaster.model.topology import GpuType, Link, NodeSpec, build, parse_shorthand
from trainmaster.model.units import GIB, NOMINAL
from trainmaster.profiling.speed_curve import predicted, setbacks, speed_curve

SMALL = Profile(step_us=100_000, batch=32, sync_bytes=1_000_000, per_gpu=True)
LARGE = Profile(step_us=100_000, batch=32, sync_bytes=550_000_000, per_gpu=True)
SLOW = Links(by_level=(("node", Link(10 * GB, 10)), ("cluster", Link(GB, 50))))


def test_one_device_is_as_fast_as_measured() -> None:
    point = predicted(SMALL, Allocation.plain(1), SLOW)
    assert point.samples_per_s == pytest.approx(320)
    assert point.efficiency_ppm == NOMINAL


def test_a_step_keeps_its_time_and_only_the_exchange_is_added() -> None:
    """Each device keeps its batch: the computing of eight is that of one."""
    free = Links(by_level=(("node", Link(10**15, 0)), ("cluster", Link(10**15, 0))))
    assert predicted(SMALL, Allocation.plain(8), free).efficiency_ppm >= 0.999 * NOMINAL


def test_two_on_one_node_are_faster_than_three_over_two() -> None:
    curve = speed_curve(LARGE, parse_shorthand("2x2"), SLOW)
    assert [each.allocation.per_node for each in curve] == [(1,), (2,), (2, 1), (2, 2)]
    [(before, after)] = setbacks(curve[1:3])
    assert (before.allocation.count, after.allocation.count) == (2, 3)
    assert list(setbacks(speed_curve(SMALL, parse_shorthand("2x2"), SLOW))) == []


def test_a_slower_type_has_a_curve_of_its_own() -> None:
    types = {"A100": NOMINAL, "V100": NOMINAL // 2}
    topology = build(
        ("cluster", "rack", "node", "gpu"),
        [
            NodeSpec(name=name, gpus=2, path=(0, 0), type=GpuType(name, 16 * GIB, speed))
            for name, speed in types.items()
        ],
    )
    fast, slow = (speed_curve(SMALL, topology, SLOW, name)[0].samples_per_s for name in types)
    assert slow == pytest.approx(fast / 2)


def test_a_large_cluster_is_predicted_at_full_nodes_and_at_its_end() -> None:
    counts = [each.allocation.count for each in speed_curve(SMALL, parse_shorthand("20x8"), SLOW)]
    assert counts == [*range(1, 18), 32, 33, 64, 65, 128, 129, 160]


def test_a_batch_that_is_unknown_counts_as_one_sample() -> None:
    unknown = Profile(step_us=100_000, sync_bytes=1_000_000, per_gpu=True)
    assert predicted(unknown, Allocation.plain(1), SLOW).samples_per_s == pytest.approx(10)
