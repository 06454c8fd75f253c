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
