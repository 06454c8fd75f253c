"""What `nodes` shows of a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trainmaster.cli.nodes import show_nodes
from trainmaster.cli.support.client import Client

LEFT_OUT = {"name": "gpu13", "why": "Trainmaster is not installed there."}


class Answers:
    """A client whose manager has these nodes."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.answer = {"nodes": list(nodes), "left_out": [LEFT_OUT]}

    def get(self, path: str) -> dict[str, Any]:
        return self.answer


def shown(*nodes: dict[str, Any], devices: bool = False) -> None:
    show_nodes(cast(Client, Answers(*nodes)), devices, False)


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
