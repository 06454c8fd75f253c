"""Speeds of device types follow from what was measured on nodes; what somebody stated wins."""

from __future__ import annotations

import pytest

from tests.builders import a_policy
from tests.unit.core.stage import Strings
from tests.unit.core.test_growth import a_node, added, grown_stage
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import events as e
from trainmaster.model.codec import decode, encode
from trainmaster.model.job import Run
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.units import GIB, NOMINAL


def mixed() -> Strings:
    nodes = (a_node("n0", 2, "V100"), a_node("n1", 2, "H100"), a_node("n2", 4, CPU_TYPE))
    return grown_stage(*nodes)


def speeds(stage: Strings) -> dict[str, float]:
    return {name: ppm / NOMINAL for name, ppm in stage.state.topology.speed_by_type.items()}


def measured(stage: Strings, *rates: tuple[int, int]) -> dict[str, float]:
    stage.tell(*(e.NodeMeasured(node, rate) for node, rate in rates))
    return speeds(stage)


def test_the_fastest_gpu_is_nominal_and_the_others_are_relative_to_it() -> None:
    stage = mixed()
    assert measured(stage, (2, 400)) == {"V100": 1.0, "H100": 1.0, "cpu": 1.0}
    assert measured(stage, (0, 10_000)) == {"V100": 1.0, "H100": 1.0, "cpu": 0.04}
    assert measured(stage, (1, 30_000)) == {"H100": 1.0, "V100": 0.33, "cpu": 0.013}
    assert [kind.name for kind in stage.controller.view.topology.types] == ["H100", "V100", "cpu"]
    fastest_first = stage.state.occupancy.topology.types
    assert fastest_first[0].name == "H100", "placers look there first"


def test_what_is_nominal_stays_so_once_a_job_has_run() -> None:
    stage = mixed()
    measured(stage, (0, 10_000))
    stage.running("x", 0)
    assert measured(stage, (1, 30_000))["H100"] == 3.0
    stage.tell(e.RunSucceeded(Run("x", 1)))
    assert not stage.state.jobs
    assert measured(stage, (1, 40_000))["H100"] == 4.0, "also when all have ended"


@pytest.mark.parametrize("ends", [False, True])
def test_a_snapshot_knows_that_a_job_has_run(*, ends: bool) -> None:
    stage = mixed().running("x", 0)
    stage.tell(*[e.RunSucceeded(Run("x", 1))] * ends)
    body = snapshot_of(stage.controller)
    if not ends:  # an earlier version does not say it
        body["state"] = encode(
            {key: each for key, each in decode(body["state"]).items() if key != "has_run"}
        )
    back = restored(body, stage.topology, a_policy("fifo"), can_freeze=False).controller.state
    assert back.has_run


def test_a_type_is_as_fast_as_the_median_of_its_nodes_and_small_differences_are_ignored() -> None:
    stage = mixed()
    measured(stage, (1, 30_000), (0, 10_000))
    added(stage, a_node("n3", 2, "V100"), a_node("n4", 2, "V100"))
    before = stage.state.topology
    measured(stage, (3, 10_500))
    assert stage.state.topology is before
    assert measured(stage, (4, 15_000), (3, 14_000))["V100"] == 0.47


def test_a_stated_speed_wins_until_it_is_taken_back() -> None:
    stage = mixed()
    measured(stage, (0, 10_000), (1, 30_000))
    stage.tell(e.SpeedsStated((("V100", 400_000), ("cpu", 20_000))))
    assert speeds(stage) == {"H100": 1.0, "V100": 0.4, "cpu": 0.02}
    assert measured(stage, (0, 20_000))["V100"] == 0.4
    stage.tell(e.SpeedsStated(()))
    assert speeds(stage) == {"H100": 1.0, "V100": 0.67, "cpu": 1.0}


def test_a_node_that_comes_later_has_the_speed_of_its_type() -> None:
    stage = mixed()
    stage.tell(e.SpeedsStated((("T4", 100_000),)))
    measured(stage, (0, 10_000), (1, 30_000))
    added(stage, a_node("n3", 8, "V100"), a_node("n4", 8, "T4"), a_node("n5", 1, "A100"))
    assert speeds(stage) == {"H100": 1.0, "A100": 1.0, "V100": 0.33, "T4": 0.1, "cpu": 1.0}
    stage.tell(e.NodeForgotten(3))
    assert "n3" not in stage.state.rates


def test_a_job_has_its_own_speed_where_it_has_run() -> None:
    stage = mixed()
    measured(stage, (0, 10_000), (1, 30_000))
    stage.running("x", 0)
    v100, h100 = stage.state.topology.type_of_gpu[0], stage.state.topology.type_of_gpu[2]
    stage.tell(e.RunSpeedChanged(Run("x", 1), 0, 700_000))
    assert stage.job("x").speed_on(v100) == 700_000
    assert stage.job("x").speed_on(h100) == NOMINAL


def test_a_snapshot_keeps_all_of_it_also_on_a_topology_that_is_found_anew() -> None:
    stage = mixed()
    measured(stage, (0, 10_000), (1, 30_000))
    stage.tell(e.SpeedsStated((("cpu", 20_000),)))
    found = grown_stage(
        a_node("n0", 2, "V100"), a_node("n1", 2, "H100"), a_node("n2", 4, CPU_TYPE, 8 * GIB)
    )
    body = snapshot_of(stage.controller)
    back = restored(body, found.topology, a_policy("fifo"), can_freeze=False).controller.state
    assert back.topology.speed_by_type == {"H100": NOMINAL, "V100": 330_000, "cpu": 20_000}
    assert back.type_speeds == stage.state.type_speeds
    assert back.nominal_type == "H100"
    assert "speeds" in body
    del body["speeds"]
    old = restored(body, found.topology, a_policy("fifo"), can_freeze=False).controller.state
    assert old.topology == found.topology, "an earlier version has none"
