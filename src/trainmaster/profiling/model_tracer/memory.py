"""A few training steps of the user's model, recorded."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_map

from . import cuda_kernels
from .conversion import without_swapping
from .recorder import TEMPORARIES, Recorder
from .user_model import (
    CannotTrace,
    at_most,
    load_module,
    loss_of,
    make_batch,
    make_model,
)

LOWER = {"bf16": "bfloat16", "fp16": "float16"}
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
}
STEPS = 3
"""Optimizer state appears at the end of the first; the next ones reuse what it left."""
UNKNOWN, EARLY, LATE = "unknown", "early", "late"
"""When gradients are cleared: before the forward pass or after the step, or between forward and backward."""
ON_HOST = "host"
"""Counters of steps, which optimizers for CUDA keep on the host."""


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """The storages of a few training steps, and when each appears and goes."""
    installed = cuda_kernels.install()
    with at_most(request["import_s"]):
        module = load_module(request["factory"])
    recorder = Recorder()
    with FakeTensorMode(allow_non_fake_inputs=True), recorder, without_swapping():
        with recorder.on_host():
            model = make_model(module, request["factory"])
            if request["is_compiled"]:
                _lay_channels_last(model)
        model.train()
        for each in model.modules():
            own = (*each.parameters(recurse=False), *each.buffers(recurse=False))
            recorder.keep("parameters", own)
            if isinstance(each, torch.nn.RNNBase):
                recorder.join(each.parameters(recurse=False))
        sure = _train(request, module, model, recorder)
    del installed
    parts = {name: part for name, part in recorder.parts.items() if part != ON_HOST}
    return {
        "storages": {name: [recorder.sizes[name], part] for name, part in parts.items()},
        "events": [each for each in recorder.events if abs(each) in parts],
        "sure": sum(abs(each) in parts for each in recorder.events[:sure]),
        "workspaces": {
            str(name): library.value for (library, _), name in recorder.workspaces.items()
        },
        "doubts": [doubt for doubt, is_there in _doubts(request, model) if is_there],
    }


def _lay_channels_last(model: Any) -> None:
    """Convolutions as the compiler lays them out, where cuDNN copies nothing."""
    for each in model.parameters():
        if each.dim() == 4:
            each.data = each.data.contiguous(memory_format=torch.channels_last)


def _doubts(request: dict[str, Any], model: Any) -> list[tuple[str, bool]]:
    """What makes an estimate less sure, and whether it is there."""
    kinds = [type(each) for each in model.modules()]
    return [
        ("convolution", any(issubclass(each, _ConvNd) for each in kinds)),
        ("recurrent", any(issubclass(each, torch.nn.RNNBase) for each in kinds)),
        ("compiled", request["is_compiled"]),
    ]


def _train(request: dict[str, Any], module: Any, model: Any, recorder: Recorder) -> int:
    """A plain loop, in which the last batch and loss live until the next ones are there.

    Returns how many events belong to the steps that are assumed; where the program does not say when it
    clears its gradients, one more step shows what it takes to keep them until the way back.
    """
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = _optimizer(request["optimizer"], trained)
    lower = LOWER.get(request["dtype"])
    clears, sure = request["zero_grad"], 0
    turns = [clears] * STEPS if clears != UNKNOWN else [EARLY] * STEPS + [LATE]
    for number, clears in enumerate(turns):
        for turn in range(request["accumulate"]):
            recorder.phase = "activations"
            with recorder.on_host():
                made = make_batch(request, module, model)
            batch = tree_map(_moved, made)
            with torch.autocast("cpu", getattr(torch, lower)) if lower else nullcontext():
                loss = loss_of(module, model, batch)
            if not loss.requires_grad:
                raise CannotTrace(
                    "the loss does not depend on a weight that is trained: define compute_loss(model, batch),"
                    " without `no_grad` and `detach`"
                )
            if clears == LATE and turn == 0:
                optimizer.zero_grad()
            recorder.phase = TEMPORARIES
            loss.backward()
            recorder.keep("gradients", [each.grad for each in trained if each.grad is not None])
        optimizer.step()
        for state in optimizer.state.values():
            for name, value in state.items():
                if torch.is_tensor(value):
                    recorder.keep(ON_HOST if name == "step" else "optimizer state", [value])
        if number < STEPS:
            sure = len(recorder.events)
        if LATE not in (clears, *turns[number + 1 : number + 2]):
            optimizer.zero_grad()
    return sure


def _moved(value: Any) -> Any:
    """Its copy on the GPU."""
    return value.clone() if torch.is_tensor(value) else value


def _optimizer(name: str, parameters: list[Any]) -> Any:
    if not parameters:
        raise CannotTrace("all weights of the model are frozen: leave some to be trained")
    kind, settings = OPTIMIZERS[name]
    return getattr(torch.optim, kind)(parameters, lr=0.001, foreach=True, **settings)
