"""Captures the graph of a user's model, with what each operator takes on the device at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainmaster.profiling.tracer import traced
from trainmaster.split.graph import Edge, ModelGraph, Operator
from trainmaster.split.ralp import Layer


@dataclass(frozen=True, slots=True)
class CaptureSetup:
    """Which model, and how it is measured."""

    factory: str
    """`package.module:function` or `file.py:function`; it returns the model."""
    batch: int = 1
    optimizer: str = "adamw"
    input: str = ""
    """Shape of one example, such as 3x224x224; empty: from `make_batch` or the first layer."""
    device: str = "cpu"
    """Where operators are measured: cpu or cuda."""
    rounds: int = 5
    import_s: int = 60


@dataclass(frozen=True, slots=True)
class CapturedModel:
    graph: ModelGraph
    layer_of: Mapping[str, str]
    """The module of the model that each operator is part of; empty: of none."""
    layers: tuple[Layer, ...]
    """Its modules in the order in which they begin, for RALP."""
    by: str
    """torch.export, torch.fx or layers."""
    why: str
    """Why it is layers; empty: it is not."""


def captured_model(setup: CaptureSetup, python: str) -> CapturedModel:
    """CannotTrace where the model does not run."""
    answer = traced({"what": "graph", **asdict(setup)}, python, sees_gpus=setup.device != "cpu")
    operators = tuple(
        Operator(
            each["name"],
            each["time"],
            temporary=each["temporary"],
            persistent=each["persistent"],
            group=each["group"],
        )
        for each in answer["operators"]
    )
    edges = tuple(Edge(each["source"], each["target"], each["size"]) for each in answer["edges"])
    layers = {each["name"]: each["layer"] for each in answer["operators"]}
    graph = ModelGraph(operators, edges)
    return CapturedModel(
        graph,
        layers,
        _in_order(graph, answer["operators"], setup.batch),
        answer["by"],
        answer["why"],
    )


def _in_order(
    graph: ModelGraph, operators: Sequence[Mapping[str, Any]], batch: int
) -> tuple[Layer, ...]:
    """Operators of one module are one layer, whose output is that of the last one."""
    found: dict[str, Layer] = {}
    for number in graph.order:
        each = operators[number]
        if not each["layer"]:
            continue
        before = found.get(each["layer"], Layer(each["layer"], 0, 0))
        found[each["layer"]] = Layer(
            each["layer"],
            before.parameters + each["parameters"],
            each["output"] // batch,
            before.time + each["time"] // batch,
        )
    return tuple(found.values())
