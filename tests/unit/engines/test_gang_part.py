"""What the ranks of one node are told where their gang is on several machines."""

from __future__ import annotations

from dataclasses import replace

from tests.live.stage import placed
from trainmaster.engines.local.rank_places import rank_places
from trainmaster.engines.local.runfile import CgroupPlan, RunFile
from trainmaster.engines.local.worker_environment import Host, run_file
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import GangPart, LaunchSpec, Ranks
from trainmaster.model.topology import parse_shorthand

SECOND = GangPart(first_rank=2, world=5, node_rank=1, nodes=2, host="10.0.0.7", port=4711)
"""The second of two nodes, which have two ranks and three."""


def file_of(spec: LaunchSpec, ranks: int) -> RunFile:
    host = Host(parse_shorthand("1x4"), (), CgroupPlan())
    return run_file(Run("12", 1), placed(ranks), spec, host, "/tmp/socket", 0)


def test_ranks_of_a_part_are_counted_over_the_whole_gang() -> None:
    found = rank_places(placed(3), Ranks.PER_GPU, SECOND)
    assert [(place.rank, place.world, place.node_rank) for place in found] == [
        (2, 5, 1),
        (3, 5, 1),
        (4, 5, 1),
    ]
    assert [(place.local_rank, place.local_world) for place in found] == [(0, 3), (1, 3), (2, 3)]


def test_all_parts_of_a_gang_meet_on_its_first_node() -> None:
    spec = LaunchSpec(("train",), "/", "/c", part=SECOND)
    file = file_of(spec, 3)
    assert (file.env["MASTER_ADDR"], file.env["MASTER_PORT"]) == ("10.0.0.7", "4711")
    assert [rank.env["RANK"] for rank in file.ranks] == ["2", "3", "4"]
    assert {(rank.env["WORLD_SIZE"], rank.env["GROUP_RANK"]) for rank in file.ranks} == {("5", "1")}
    assert file.first_rank == 2


def test_torchrun_is_told_the_nodes_of_the_gang_and_where_they_meet() -> None:
    part = GangPart(first_rank=1, world=2, node_rank=1, nodes=2, host="10.0.0.7", port=4711)
    (rank,) = file_of(LaunchSpec(("x",), "/", "/c", ranks=Ranks.PER_NODE, part=part), 3).ranks
    told = {name: value for name, value in rank.env.items() if name.startswith("PET_")}
    assert told == {
        "PET_NPROC_PER_NODE": "3",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.7",
        "PET_MASTER_PORT": "4711",
    }


def test_accelerate_is_told_which_machine_it_is_on() -> None:
    part = GangPart(first_rank=1, world=2, node_rank=1, nodes=2, host="10.0.0.7", port=4711)
    spec = LaunchSpec(
        ("accelerate", "launch", "t.py"),
        *("/", "/c"),
        ranks=Ranks.PER_NODE,
        launcher="accelerate",
        part=part,
    )
    (rank,) = file_of(spec, 2).ranks
    words = " ".join(rank.argv)
    assert "--num_processes 4 --num_machines 2 --machine_rank 1" in words
    assert "--main_process_ip 10.0.0.7 --main_process_port 4711" in words


def test_a_gang_of_another_size_counts_as_started_again() -> None:
    file = file_of(LaunchSpec(("x",), "/", "/c", part=replace(SECOND, generation=2)), 3)
    assert file.env["TRAINMASTER_RESTART_COUNT"] == "2"
