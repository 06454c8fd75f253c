"""How many GPUs fewer: a search by halves whose answer is a bracket."""

from __future__ import annotations

import pytest

from trainmaster.cli.support.fewer_gpus import worded
from trainmaster.config.cluster import cluster_from
from trainmaster.evaluation.capacity_search import (
    Saving,
    fewest_nodes,
    least_nodes,
    nodes_of,
    shrunk,
)
from trainmaster.evaluation.suite import SuiteError


def falling(nodes: int) -> float:
    return 1_000.0 / nodes


def test_the_search_ends_where_one_node_fewer_is_too_few() -> None:
    tried: list[int] = []

    def excess(nodes: int) -> float:
        tried.append(nodes)
        return falling(nodes)

    saving = fewest_nodes(excess, target_s=50.0, nodes=32, least=2, gpus_per_node=4)
    assert (saving.enough, saving.too_few) == (20, 19)
    assert saving.gpus_fewer == 48
    assert saving.excess_s == pytest.approx(50)
    assert saving.too_few_excess_s == pytest.approx(1_000 / 19)
    assert len(tried) == len(set(tried)) <= 7


def test_the_largest_job_bounds_the_search() -> None:
    saving = fewest_nodes(
        falling, target_s=1e9, nodes=32, least=least_nodes(30, 4), gpus_per_node=4
    )
    assert (saving.enough, saving.too_few) == (8, None)
    assert worded(saving, "las", "fifo", "32x4").endswith("The largest job needs as many.")


def test_a_policy_that_is_worse_on_all_of_it_saves_nothing() -> None:
    saving = fewest_nodes(falling, target_s=1.0, nodes=32, least=1, gpus_per_node=4)
    assert (saving.enough, saving.gpus_fewer) == (None, 0)
    assert "does not equal that even with all of it" in worded(saving, "fifo", "las", "32x4")


def test_jobs_that_do_not_end_are_too_few_nodes() -> None:
    saving = fewest_nodes(
        lambda nodes: None if nodes < 10 else 1.0, target_s=2.0, nodes=16, least=1, gpus_per_node=8
    )
    assert (saving.enough, saving.too_few, saving.too_few_excess_s) == (10, 9, None)
    assert worded(saving, "a", "b", "16x8").endswith("With 9 nodes some jobs did not end.")


def test_the_answer_in_words() -> None:
    saving = Saving(32, 4, 3_600.0, 20, 3_000.0, 19, 4_000.0)
    assert worded(saving, "las", "fifo", "32x4") == (
        "fifo on 32x4 has an excess of 60 min. las equals that with 20 nodes (80 GPUs, 48 fewer):"
        " 50 min. With 19 nodes it was 66.7 min."
    )


def test_one_gpu_is_one_gpu() -> None:
    assert "with 1 node (1 GPU, 0 fewer)" in worded(
        Saving(1, 1, 5.0, 1, 5.0, None, None), "a", "b", "1x1"
    )


@pytest.mark.parametrize(
    ("shape", "nodes", "racks"), [("32x4", 20, 1), ("4x15x4", 37, 3), ("4x15x4", 30, 2)]
)
def test_nodes_are_taken_from_the_end(shape: str, nodes: int, racks: int) -> None:
    found = shrunk(shape, nodes)
    if isinstance(found, str):
        assert nodes_of(found) == (nodes, 4)
        return
    topology = cluster_from(found).topology
    assert len(topology.nodes) == nodes
    assert topology.training_gpus == 4 * nodes
    rack = topology.levels.index("rack")
    assert len({node.domains[rack] for node in topology.nodes}) == racks


def test_nodes_cannot_be_taken_from_deeper_shapes() -> None:
    with pytest.raises(
        SuiteError, match="nodes can be taken from 15x4 and 4x15x4, not from 2x4x15x4"
    ):
        shrunk("2x4x15x4", 3)
