"""The graph of the user's model: operators with measured time and memory, and tensors between them."""

from __future__ import annotations

from typing import Any

from . import graph_module, layers, operator_profile
from .user_model import CannotTrace, at_most, load_module, make_batch, make_model

STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "rmsprop": 1, "adagrad": 1}
"""Numbers that the optimizer keeps of each weight."""


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """Operator by operator where the model can be captured, else layer by layer, with the reason."""
    with at_most(request["import_s"]):
        module = load_module(request["factory"])
    model = make_model(module, request["factory"])
    model.train()
    batch = make_batch(request, module, model)
    inputs = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    device, rounds = request["device"], request["rounds"]
    _check_device(device)
    model.to(device)
    inputs = graph_module.moved(inputs, device)
    copies = 2 + STATES[request["optimizer"]]
    try:
        captured, by = graph_module.captured(model, inputs)
    except graph_module.NotCaptured as why:
        made = layers.profiled(model, inputs, rounds, copies)
        return {**made, "by": "layers", "why": str(why)}
    return {**operator_profile.profiled(captured, inputs, rounds, copies), "by": by, "why": ""}


def _check_device(device: str) -> None:
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CannotTrace(
            "there is no GPU that PyTorch can use here: leave out --on, or say --on cpu"
        )
