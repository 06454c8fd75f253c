"""A model as a graph of operators that can be run one by one: by `torch.export`, else by `torch.fx`."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map


class NotCaptured(Exception):
    """Why a model has no graph: one sentence."""


def captured(model: Any, inputs: tuple[Any, ...]) -> tuple[fx.GraphModule, str]:
    """The graph, and what made it; it has the model's own parameters."""
    said = []
    for by, capture in (("torch.export", _exported), ("torch.fx", _symbolic)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return capture(model, inputs), by
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            said.append(f"{by}: {type(error).__name__}: {lines[0][:160]}")
    raise NotCaptured("; ".join(said))


def _exported(model: Any, inputs: tuple[Any, ...]) -> fx.GraphModule:
    made = torch.export.export(model, inputs, strict=False).module(check_guards=False)
    assert isinstance(made, fx.GraphModule)
    return made


def _symbolic(model: Any, inputs: tuple[Any, ...]) -> fx.GraphModule:
    made = fx.symbolic_trace(model)
    made(*inputs)  # what it depends on of the inputs' values shows here, if anything
    return made


def moved(value: Any, device: str) -> Any:
    return tree_map(lambda each: each.to(device) if torch.is_tensor(each) else each, value)
