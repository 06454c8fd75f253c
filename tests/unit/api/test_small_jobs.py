"""What a job states beside a part of a GPU is for all of it: booked so, and refused where it never fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import cluster
from trainmaster.api.submission import demand_of
from trainmaster.config.job_file import JobFile
from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand
from trainmaster.model.topology import Topology
from trainmaster.model.units import GIB
from trainmaster.placement.placers import RELAXING, ever_fits


def machine() -> Topology:
    """Two slots, four cores and 24 GiB."""
    made = cluster("1x2")
    return replace(made, nodes=(replace(made.nodes[0], cpus=4000, memory=24 * GIB),))


def demand(**fields: object) -> Demand:
    return demand_of(JobFile.model_validate({"command": "true", **fields}))


@pytest.mark.parametrize("part", [0.1, 0.333, 0.9])
def test_what_is_stated_beside_a_part_is_booked_whole(part: float) -> None:
    space, asked = Occupancy(machine()), demand(gpus=part, cpus=2, memory="2G")
    placement = RELAXING.shaped(space, asked, asked.nominal)
    assert placement is not None
    space.book(placement, asked)
    assert space.free_cpus[0] == 2000
    assert space.free_host[0] == 22 * GIB
    assert space.host_part(0, asked.nominal.share, asked) == 2 * GIB
    space.unbook(placement, asked)
    assert (space.free_cpus[0], space.free_host[0]) == (4000, 24 * GIB)


def test_so_small_jobs_wait_for_cores_that_others_have() -> None:
    space, asked = Occupancy(machine()), demand(gpus=0.1, cpus=2)
    for _ in range(2):
        placement = RELAXING.shaped(space, asked, asked.nominal)
        assert placement is not None
        space.book(placement, asked)
    assert RELAXING.shaped(space, asked, asked.nominal) is None


@pytest.mark.parametrize("fields", [{"cpus": 16}, {"memory": "30G"}], ids=str)
def test_what_the_machine_does_not_have_never_fits(fields: dict[str, object]) -> None:
    space = Occupancy(machine())
    assert not ever_fits(space, demand(gpus=0.1, **fields))
    assert ever_fits(space, demand(gpus=0.1, cpus=4, memory="24G"))


def test_beside_whole_gpus_it_is_for_each() -> None:
    space, asked = Occupancy(machine()), demand(gpus=2, cpus=2, memory="12G")
    placement = RELAXING.shaped(space, asked, asked.nominal)
    assert placement is not None
    space.book(placement, asked)
    assert (space.free_cpus[0], space.free_host[0]) == (0, 0)
    assert not ever_fits(Occupancy(machine()), demand(gpus=2, cpus=3))


def test_a_node_can_carry_small_jobs_that_ask_for_much_beside() -> None:
    space = Occupancy(machine())
    assert space.most_on(space.topology.nodes[0], demand(gpus=0.1, cpus=2)) == 2
    assert space.most_on(space.topology.nodes[0], demand(gpus=0.1, memory="13G")) == 1


def test_what_is_expected_of_a_small_job_is_for_all_of_it() -> None:
    asked = demand(gpus=0.25)
    assert asked.for_whole_gpu(2 * GIB) == 8 * GIB
    assert asked.for_piece(8 * GIB) == 2 * GIB
    assert demand(gpus=2).for_whole_gpu(GIB) == GIB
