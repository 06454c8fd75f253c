"""Close enough: limits by level, and the kindest of the nodes that fit."""

from __future__ import annotations

import pytest

from tests.builders import a_job, cluster, on
from tests.policies.cases import where
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import gpus
from trainmaster.placement.placers import RELAXING, Placer
from trainmaster.policies.trainmaster.gang_placers import BoundedSpread, ContentionAware

RACKS = "rack a: n1[4] n2[4]  rack b: n3[4] n4[4]"


def placed(text: str, taken: dict[str, int], size: int, placer: Placer) -> str | None:
    """Where a job goes while so many GPUs of each node are taken."""
    topology = cluster(text)
    space = Occupancy(topology)
    for name, number in taken.items():
        first = topology.node_by_name[name].first_gpu
        space.book(on(topology, *range(first, first + number)), gpus(number))
    found = placer.place(space, JobRecord(a_job("j", size), 0, 0, None, None))
    return None if found is None else where(found.slices, topology)


@pytest.mark.parametrize(
    ("taken", "size", "limits", "want"),
    [
        ({"n1": 2}, 4, (0, 0), "n2"),
        ({"n1": 2, "n2": 2, "n3": 1, "n4": 1}, 4, (0, 0), None),
        ({"n1": 2, "n2": 2, "n3": 4, "n4": 4}, 4, (0, 2), "n1:2 n2:2"),
        ({"n1": 2, "n2": 4, "n3": 2, "n4": 4}, 4, (0, 2), None),
        ({"n1": 2, "n2": 4, "n3": 2, "n4": 4}, 4, (2, 2), "n1:2 n3:2"),
        ({"n1": 3, "n2": 3, "n3": 2, "n4": 4}, 4, (2, 2), None),
        ({"n1": 3, "n2": 3, "n3": 2, "n4": 4}, 4, (3, 2), "n1:1 n2:1 n3:2"),
    ],
)
def test_no_further_and_on_no_more_nodes_than_the_limits_say(
    taken: dict[str, int], size: int, limits: tuple[int, int], want: str | None
) -> None:
    assert placed(RACKS, taken, size, BoundedSpread(limits, is_strict=False)) == want


def kind(harms: dict[int, int], inner: Placer = RELAXING) -> Placer:
    return ContentionAware(inner, lambda record, node: harms.get(node, 0), empty_node_harm=5)


@pytest.mark.parametrize(
    ("taken", "harms", "want"),
    [
        ({"n1": 2, "n2": 1}, {}, "n1:2"),
        ({"n1": 2, "n2": 1}, {0: 1}, "n2:2"),
        ({"n1": 2, "n2": 1}, {0: 1, 1: 1}, "n1:2"),
        ({"n1": 2}, {0: 4}, "n1:2"),
        ({"n1": 2}, {0: 6}, "n2:2"),
        ({"n1": 2, "n2": 3}, {0: 9}, "n1:2"),
    ],
)
def test_the_node_with_least_harm_then_the_best_fit(
    taken: dict[str, int], harms: dict[int, int], want: str
) -> None:
    """Beginning an empty node counts as a harm of 5."""
    assert placed("n1[4] n2[4]", taken, 2, kind(harms)) == want


def test_whole_nodes_and_several_are_left_to_the_other_placer() -> None:
    assert placed("n1[4] n2[4]", {}, 4, kind({0: 9})) == "n1"
    assert placed("n1[4] n2[4]", {"n1": 2, "n2": 2}, 4, kind({0: 9})) == "n1:2 n2:2"
    strict = BoundedSpread((0, 0), is_strict=True)
    assert placed("n1[4] n2[4]", {"n1": 3, "n2": 3}, 2, kind({}, strict)) is None
