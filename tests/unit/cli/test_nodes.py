"""What `nodes` shows of a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest
import typer

from trainmaster.cli.node import forget
from trainmaster.cli.nodes import show_nodes
from trainmaster.client.manager_api import ManagerApi, RequestRefused

LEFT_OUT = {"name": "gpu13", "why": "Trainmaster is not installed there."}


class Answers:
    """A client whose manager has these nodes."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.answer = {"nodes": list(nodes), "left_out": [LEFT_OUT]}

    def get(self, path: str) -> dict[str, Any]:
        return self.answer

    def post(self, path: str) -> dict[str, Any]:
        if "n1" in path:
            raise RequestRefused("node n1 is there.", 409)
        return {}


def shown(*nodes: dict[str, Any], devices: bool = False) -> None:
    show_nodes(cast(ManagerApi, Answers(*nodes)), devices, False)


def test_nodes_that_are_left_out_are_named_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown()
    said = " ".join(capsys.readouterr().err.split())
    assert said == "Left out: gpu13: Trainmaster is not installed there."


def node(name: str, rack: str, host: str | None) -> dict[str, Any]:
    devices = [{"name": f"{name}:0", "jobs": [], "gpu": None, "set_aside": None}]
    row = {"name": name, "type": "slot", "state": "up", "devices": devices, "remarks": []}
    return row | {"host": host, "domains": {"rack": rack} if rack else {}}


def test_devices_are_shown_with_the_host_and_the_rack_of_their_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(node("n0", "r1", "10.0.0.1"), node("n1", "", None), devices=True)
    headings, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert headings[-2:] == ["host", "rack"]
    assert (first[-2:], second[-2:]) == (["10.0.0.1", "r1"], ["-", "-"])


def test_what_is_true_of_several_nodes_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    low, own = "Jobs have a low priority.", "It is away."
    shown(
        node("n0", "", None) | {"remarks": [low]},
        node("n1", "", None) | {"remarks": [own, low]},
        devices=True,
    )
    said = capsys.readouterr().err
    assert said.count(low) == 1
    assert f"n0, n1: {low}" in said
    assert f"n1: {own}" in said


def test_nodes_are_forgotten_together_as_far_as_they_may_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit):
        forget(cast(ManagerApi, Answers()), ["n0", "n1", "n2"])
    said = capsys.readouterr()
    assert said.out == "Node n0 is forgotten.\nNode n2 is forgotten.\n"
    assert "node n1 is there" in said.err
