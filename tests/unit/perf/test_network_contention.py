"""Gangs on the same server, PCIe switch or NIC, as Philly and Gandiva measured them, in a simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import (
    a_job,
    a_policy,
    a_scenario,
    at,
    cluster,
    finishes,
    on,
    outcome_of,
    traced,
)
from tests.property.drive import Drive
from trainmaster.config.cluster import cluster_from
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Shape
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.perf.network_contention import Wire
from trainmaster.perf.perf_model import DEFAULT, IDEAL, Speeds

WORLD = replace(IDEAL, name="neighbours", interferes=True, neighbours=DEFAULT.neighbours)
"""Nothing but neighbours."""
SERVER = 0.85
"""What a model that nobody measured keeps on one server beside another job."""


def ended(jobs: list[object], topology: str | Topology, **more: object) -> dict[str, float | None]:
    scenario = a_scenario(jobs, topology, WORLD, **more)  # type: ignore[arg-type]
    return finishes(outcome_of(scenario, a_policy("fifo")))


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("resnet50", {1: 1, 2: 0.765, 3: 0.6475, 4: 0.53, 9: 0.53}),
        ("InceptionV3", {1: 1, 2: 0.835, 4: 0.70}),
        ("DeepSpeech", {2: 0.95, 4: 0.95}),
        ("my-own", {2: 0.85}),
        ("resnet152", {2: 1, 4: 1}),
    ],
)
def test_jobs_on_one_nic(model: str, kept: dict[int, float]) -> None:
    table = DEFAULT.neighbours
    found = {gangs: table.remaining_speed(model, Wire.NIC, gangs) / NOMINAL for gangs in kept}
    assert found == pytest.approx(kept)


def test_two_gangs_on_one_server() -> None:
    """Both at 0.85 until the short one ends; then the other is alone again."""
    found = ended([traced("a", 2, 20), traced("b", 2, 10)], "1x4")
    short = 10 / SERVER
    assert found["b"] == pytest.approx(short, abs=0.01)
    assert found["a"] == pytest.approx(short + (20 - 10), abs=0.01)


def test_a_neighbour_that_comes_later_is_felt_from_then_on() -> None:
    found = ended([traced("a", 2, 20), traced("b", 2, 100, at_s=5)], "1x4")
    assert found["a"] == pytest.approx(5 + 15 / SERVER, abs=0.01)


def test_jobs_on_one_gpu_neither_suffer_nor_cause_suffering() -> None:
    found = ended([traced("a", 2, 20), traced("one", 1, 20), traced("two", 1, 20)], "1x4")
    assert found == {"a": 20, "one": 20, "two": 20}


def test_gangs_on_different_servers_do_not_feel_each_other() -> None:
    assert ended([traced("a", 2, 20), traced("b", 2, 20)], "2x2") == {"a": 20, "b": 20}


def test_gangs_under_different_pcie_switches_do_not_feel_each_other() -> None:
    switches = cluster_from({"nodes": {"gpus": 4, "pcie_switches": 2}}).topology
    assert ended([traced("a", 2, 20), traced("b", 2, 20)], switches) == {"a": 20, "b": 20}
    crossing = [
        traced("a", 1, 20),
        traced("b", 2, 20),
        traced("c", 1, 5),
        traced("d", 2, 20, at_s=5),
    ]
    # a on 0, b under the second switch, c on 1; when c is gone d has only GPU 1: it waits for 0.
    assert ended(crossing, switches)["b"] == 20


def test_gangs_across_nodes_share_nics_and_not_servers() -> None:
    topology = cluster("2x4")
    speeds = Speeds(WORLD, topology)
    far, near, single = on(topology, 0, 4), on(topology, 1, 2), on(topology, 3)
    assert len(speeds.wires(far)) == 2
    assert len(speeds.wires(near)) == 1
    assert not speeds.wires(single)
    assert not set(speeds.wires(far)) & set(speeds.wires(near))
    assert set(speeds.wires(far)) == set(speeds.wires(on(topology, 1, 5)))


def test_two_gangs_across_the_same_nodes() -> None:
    """Three GPUs each on nodes of two: a on n0 and half of n1, b on the rest of n1 and n2."""
    world = replace(WORLD, locality=IDEAL.locality)
    jobs = [traced("a", 3, 30, model="resnet50"), traced("b", 3, 30, model="resnet50")]
    found = finishes(outcome_of(a_scenario(jobs, "3x2", world), a_policy("fifo")))
    assert found == pytest.approx({"a": 30 / 0.765, "b": 30 / 0.765}, abs=0.01)


def test_cpu_slots_have_no_gradients_to_exchange() -> None:
    slots = Demand(Shape(2), 2, 2, gpu_type="cpu")
    topology = cluster("n1[4cpu] n2[1]")
    assert not Speeds(WORLD, topology).wires(on(topology, 0, 1))
    assert ended([traced("a", slots, 20), traced("b", slots, 20)], topology) == {"a": 20, "b": 20}


def test_a_suspended_or_lost_neighbour_is_felt_no_more() -> None:
    jobs = [traced("a", 2, 20), traced("b", 2, 100)]
    changes = (at(10, e.NodeLeft(0)), at(30, e.NodeJoined(0)))
    found = ended(jobs, "1x4", node_changes=changes)
    assert found["a"] == pytest.approx(30 + 20 / SERVER, abs=0.01), "both start again at 30"


def test_the_ideal_world_keeps_no_company_at_all() -> None:
    from trainmaster.sim.driver import Simulation

    scenario = a_scenario([traced("a", 2, 20), traced("b", 2, 20)], "1x4")
    simulation = Simulation(scenario, a_policy("fifo"))
    assert simulation.engine.interference is None
    simulation.run()
    assert simulation.events == 6, "submitted, started, ended: no word about speeds"


def test_the_books_close_while_neighbours_come_and_go() -> None:
    jobs = [traced(f"j{n}", 2, 10 + n, at_s=n) for n in range(12)]
    drive = Drive(a_scenario(jobs, "2x8", WORLD), a_policy("srtf"))
    drive.run()


def test_a_job_feels_a_neighbour_on_its_gpu_and_one_on_its_wire() -> None:
    world = replace(WORLD, shared_gpu=DEFAULT.shared_gpu)
    half = Demand(Shape(2, 500), 2, 2)
    jobs = [traced(name, half, 10, gpu_util_ppm=250_000) for name in "ab"]
    found = finishes(outcome_of(a_scenario(jobs, "1x2", world), a_policy("fifo")))
    longer = (1 + 0.2 * 0.25 * 0.6) / SERVER
    assert found == pytest.approx({"a": 10 * longer, "b": 10 * longer}, rel=1e-3)


def test_a_model_is_known_by_its_table_name() -> None:
    job = a_job("a", 2, model="Inception_v3")
    topology = cluster("1x4")
    left = Speeds(WORLD, topology).network_slowdown(job, on(topology, 0, 1), 2)
    assert left == 835_000
