"""A model that has no graph, layer by layer: what each takes, in the order in which they are called."""

from __future__ import annotations

from typing import Any

import torch

from .operator_profile import Measured, size, tensors
from .user_model import CannotTrace

CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


def profiled(model: Any, inputs: tuple[Any, ...], rounds: int, copies: int) -> dict[str, Any]:
    """Layers that are called twice are one; an edge is a tensor that one made and another one was given."""
    calls = _calls(model, inputs)
    if not calls:
        raise CannotTrace("the model calls no layers of its own: it cannot be split")
    makers: dict[int, str] = {}
    operators: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str], int] = {}
    before = ""
    for name, layer, given, made in calls:
        sources = {makers[id(each)] for each in tensors(given) if id(each) in makers}
        for source in (sources or {before}) - {"", name}:
            given_bytes = sum(size(each) for each in tensors(given))
            edges.setdefault((source, name), given_bytes)
        measured = Measured(lambda args, kwargs, run=layer: run(*args, **kwargs), given, rounds)
        weights = sum(
            size(each) * (copies if each.requires_grad else 1)
            for each in (*layer.parameters(), *layer.buffers())
        )
        output = sum(size(each) for each in tensors(made))
        operator = operators.setdefault(
            name,
            {
                "name": name,
                "time": 0,
                "temporary": 0,
                "persistent": weights,
                "parameters": sum(map(size, layer.parameters())),
                "output": output,
                "group": None,
                "layer": name,
            },
        )
        operator["time"] += measured.time_ns
        operator["temporary"] = max(operator["temporary"], measured.gradients)
        operator["persistent"] += measured.output
        makers.update((id(each), name) for each in tensors(made))
        before = name
    found = [{"source": one, "target": two, "size": bytes} for (one, two), bytes in edges.items()]
    return {"operators": list(operators.values()), "edges": _forward(found, list(operators))}


def _forward(edges: list[dict[str, Any]], order: list[str]) -> list[dict[str, Any]]:
    """A layer that is called again reads what comes after it: its loop is inside of it."""
    place = {name: number for number, name in enumerate(order)}
    return [each for each in edges if place[each["source"]] < place[each["target"]]]


def _calls(model: Any, inputs: tuple[Any, ...]) -> list[tuple[str, Any, Any, Any]]:
    found: list[tuple[str, Any, Any, Any]] = []
    hooks = [
        layer.register_forward_hook(_noting(found, name), with_kwargs=True)
        for name, layer in _layers(model)
    ]
    model(*inputs)
    for hook in hooks:
        hook.remove()
    return found


def _noting(found: list[tuple[str, Any, Any, Any]], name: str) -> Any:
    def note(layer: Any, args: Any, kwargs: Any, made: Any) -> None:
        found.append((name, layer, (args, kwargs), made))

    return note


def _layers(model: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Its children; those of containers instead of the containers."""
    found = []
    for name, child in model.named_children():
        path = f"{prefix}{name}"
        is_container = isinstance(child, CONTAINERS)
        found += _layers(child, f"{path}.") if is_container else [(path, child)]
    return found
