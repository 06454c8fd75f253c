"""Which nodes of a cluster are said to take nothing: those that are there, for as long as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.loopback import LoopbackLink, node_of
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.node_link import NodeSilent

REFUSED, NO_GPUS = "Trainmaster is not installed there.", "It has no GPUs."


class Link(LoopbackLink):
    there: tuple[tuple[str, str], ...] = ()

    def alive(self) -> tuple[tuple[str, str], ...]:
        return self.there


@pytest.fixture
def link(tmp_path: Path) -> Link:
    link = Link(tmp_path, [])
    link.there = (("n0", ""), ("gpu13", REFUSED), ("cpu1", NO_GPUS))
    return link


def test_nodes_that_are_left_out_are_stated(link: Link, tmp_path: Path) -> None:
    engine = RayEngine(tmp_path, link, [node_of("n0")])
    engine._hear_of_node(NodeSilent("gpu13", "i1", REFUSED))
    assert engine.abilities.left_out == (("gpu13", REFUSED), ("cpu1", NO_GPUS))
    assert engine.troubles() == (f"The node gpu13 takes nothing: {REFUSED}",)


def test_one_that_takes_nothing_for_the_managers_reason_is_stated_too(
    link: Link, tmp_path: Path
) -> None:
    link.there = (("gpu11", ""),)
    engine = RayEngine(tmp_path, link)
    engine._hear_of_node(NodeSilent("gpu11", "i1", "It does not see the folder."))
    assert engine.abilities.left_out == (("gpu11", "It does not see the folder."),)


def test_nothing_is_said_of_one_that_has_gone(link: Link, tmp_path: Path) -> None:
    engine = RayEngine(tmp_path, link, [node_of("n0")])
    engine._hear_of_node(NodeSilent("gpu13", "i1", REFUSED))
    engine._hear_of_node(NodeSilent("gpu13", "i1", "Ray counts it as dead."))
    link.there = (("n0", ""),)
    assert engine.abilities.left_out == ()
    assert engine.troubles() == ()
