"""What a raylet that has another name now left running ends, and nothing else does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.local import journal
from trainmaster.engines.local.engine import LIVE
from trainmaster.engines.ray import fence, former_nodes
from trainmaster.engines.ray.former_nodes import FormerNode, Raylet, end_former, note, raylet_of
from trainmaster.engines.ray.node_facts import NodeFacts, UnusableNode

GPUS = ("GPU-1", "GPU-2")


@pytest.fixture
def raylet() -> Iterator[Raylet]:
    """A process that stands in for the raylet of n1."""
    process = subprocess.Popen(["sleep", "600"])
    yield raylet_of(NodeFacts("n1", "i1", "h1", 2, 8, 1 << 30), process.pid, GPUS)
    process.kill()
    process.wait()


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What is left of n1: a run."""
    folder = tmp_path / "n1"
    (folder / "runs" / LIVE).mkdir(parents=True)
    (folder / "runs" / LIVE / "12.1").touch()
    return folder


def dead(raylet: Raylet) -> Raylet:
    """It had the number of a process that is another one now."""
    return replace(raylet, born="1")


def again(raylet: Raylet, name: str = "m1", devices: tuple[str, ...] = GPUS) -> Raylet:
    return replace(raylet, name=name, incarnation="i2", devices=devices)


def test_runs_of_the_old_name_end_and_are_lost_by_the_new_one(left: Path, raylet: Raylet) -> None:
    note(left, dead(raylet))
    new = left.with_name("m1")
    assert end_former(new, again(raylet)) == (FormerNode("n1", "i1"),)
    assert fence.live_runs(left) == []
    newest = journal.last(str(left / "runs" / "12" / "1"))
    assert newest is not None
    assert (newest["what"], newest["why"]) == ("lost", former_nodes.WHY)
    assert end_former(new, again(raylet)) == (FormerNode("n1", "i1"),)


@pytest.mark.parametrize("left_alone", ["alive", "other devices", "other machine", "itself"])
def test_what_may_be_anothers_is_left_alone(left: Path, raylet: Raylet, left_alone: str) -> None:
    note(left, raylet if left_alone == "alive" else dead(raylet))
    if left_alone == "other machine":
        note(left, replace(dead(raylet), boot="another"))
    devices = ("GPU-3",) if left_alone == "other devices" else GPUS
    folder = left if left_alone == "itself" else left.with_name("m1")
    assert end_former(folder, again(raylet, devices=devices)) == ()
    assert len(fence.live_runs(left)) == 1


def test_a_node_that_has_its_name_again_meanwhile_is_left_alone(
    left: Path, raylet: Raylet, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(left, dead(raylet))
    take_over = former_nodes.node_folder.take_over

    def taken(folder: Path) -> int:
        note(left, replace(raylet, incarnation="i3"))
        return take_over(folder)

    monkeypatch.setattr(former_nodes.node_folder, "take_over", taken)
    assert end_former(left.with_name("m1"), again(raylet)) == ()
    assert len(fence.live_runs(left)) == 1


def test_a_node_is_not_used_while_what_is_left_there_cannot_be_ended(
    left: Path, raylet: Raylet, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(left, dead(raylet))
    monkeypatch.setattr(former_nodes, "PATIENCE_S", 0.0)
    monkeypatch.setattr(fence, "end_runs", lambda folder, why: None)
    with pytest.raises(UnusableNode, match="cannot be ended"):
        end_former(left.with_name("m1"), again(raylet))


def test_slots_of_one_address_are_the_same_ones(raylet: Raylet) -> None:
    facts = NodeFacts("n1", "i1", "h1", 2, 8, 1 << 30)
    assert raylet_of(facts, 1, ()).devices == raylet_of(replace(facts, name="m1"), 1, ()).devices
    assert raylet_of(facts, 1, ()).devices != raylet_of(replace(facts, host="h2"), 1, ()).devices
