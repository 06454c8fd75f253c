"""Runs training steps of a model with fake tensors, and writes down what memory they take and give back.

It is run as a program by the Python of the training environment, which has torch but perhaps not Trainmaster:
it imports the standard library, torch and the user's module only. Tensors are fake ones of the CPU; what CUDA
does otherwise (dropout masks, fused attention, precision under autocast, grouped optimizers) is put in place.

    python memory_tracer.py '{"factory": "train.py:make_model", ...}' RESULT_FILE
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

FULL_PRECISION = (
    "layer_norm",
    "group_norm",
    "softmax",
    "log_softmax",
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "softplus",
)
"""Functions that CUDA's autocast computes in 32 bits."""
LOWER = {"bf16": "bfloat16", "fp16": "float16"}
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
}
INPUT = re.compile(r"(?P<shape>\d+(x\d+)*)(:(?P<kind>float|int<(?P<most>\d+)))?")
STEPS = 3
"""Optimizer state appears at the end of the first; the next ones reuse what it left."""
ON_HOST = "host"
"""Counters of steps, which optimizers for CUDA keep on the host."""


class CannotTrace(Exception):
    """One sentence that says what to do."""


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """The storages of a few training steps, and when each appears and goes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    _act_as_cuda(torch, request["dtype"] in LOWER)
    module = _module(request["factory"])
    recorder = _recorder(torch)
    with FakeTensorMode(allow_non_fake_inputs=True), recorder:
        model = _model(torch, module, request["factory"])
        parameters = [each for each in model.parameters() if each.requires_grad]
        optimizer = _optimizer(torch, request["optimizer"], parameters)
        model.train()
        recorder.keep("parameters", [*model.parameters(), *model.buffers()])
        for _ in range(STEPS):
            _step(torch, request, module, model, optimizer, recorder)
    is_unsure = any(isinstance(each, torch.nn.RNNBase) for each in model.modules())
    parts = {name: part for name, part in recorder.parts.items() if part != ON_HOST}
    return {
        "storages": {name: [recorder.sizes[name], part] for name, part in parts.items()},
        "events": [each for each in recorder.events if abs(each) in parts],
        "is_unsure": is_unsure,
    }


def _step(
    torch: Any, request: dict[str, Any], module: Any, model: Any, optimizer: Any, recorder: Any
) -> None:
    recorder.phase = "activations"
    inputs = _inputs(torch, request, module, model)
    lower = LOWER.get(request["dtype"])
    with torch.autocast("cpu", getattr(torch, lower)) if lower else nullcontext():
        loss = _loss(torch, module, model(*inputs), inputs)
    recorder.phase = "temporaries and workspace"
    if not loss.requires_grad:
        raise CannotTrace("no output of the model depends on a weight that is trained")
    loss.backward()
    held = [each.grad for each in model.parameters() if each.grad is not None]
    recorder.keep("gradients", held)
    optimizer.step()
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value):
                recorder.keep(ON_HOST if name == "step" else "optimizer state", [value])
    optimizer.zero_grad()


def _recorder(torch: Any) -> Any:
    dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
    tree_iter: Any = importlib.import_module("torch.utils._pytree").tree_iter

    class Recorder(dispatch.TorchDispatchMode):  # type: ignore[misc]
        """Numbers storages as they appear."""

        def __init__(self) -> None:
            super().__init__()
            self.phase = "parameters"
            self.events: list[int] = []
            self.sizes: dict[int, int] = {}
            self.parts: dict[int, str] = {}
            self.names: Any = weakref.WeakKeyDictionary()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            for each in tree_iter(made):
                if torch.is_tensor(each):
                    self.see(each)
            return made

        def see(self, tensor: Any) -> int:
            storage = tensor.untyped_storage()
            if storage not in self.names:
                name = len(self.sizes) + 1
                self.names[storage] = name
                self.sizes[name] = storage.nbytes()
                self.parts[name] = self.phase
                self.events.append(name)
                weakref.finalize(storage, self.events.append, -name).atexit = False
            return int(self.names[storage])

        def keep(self, part: str, tensors: Iterable[Any]) -> None:
            for each in tensors:
                self.parts[self.see(each)] = part

    return Recorder()


def _act_as_cuda(torch: Any, half: bool) -> None:
    """Replace functions whose memory on the CPU is not that on CUDA."""
    functional = torch.nn.functional
    attention = functional.scaled_dot_product_attention

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    def fused_attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        named.pop("dropout_p", None)
        rest = (rest[0], 0.0, *rest[2:]) if len(rest) > 1 else rest
        return attention(query, key, value, *rest, **named)

    functional.dropout = dropout
    functional.scaled_dot_product_attention = fused_attention
    if half:
        for place in (functional, torch, torch.Tensor):
            for name in FULL_PRECISION:
                if hasattr(place, name):
                    setattr(place, name, _in_full_precision(torch, getattr(place, name)))


def _in_full_precision(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def cast(value: Any) -> Any:
        is_half = torch.is_tensor(value) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if is_half else value

    def called(*args: Any, **named: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **named)
        return function(*map(cast, args), **{name: cast(value) for name, value in named.items()})

    return called


def _module(factory: str) -> Any:
    place, _, _ = factory.rpartition(":")
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(place)
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec = importlib.util.spec_from_file_location("traced_program", place)
        if spec is None or spec.loader is None:
            raise CannotTrace(f"{place} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules["traced_program"] = module
        spec.loader.exec_module(module)
    except CannotTrace:
        raise
    except (Exception, SystemExit) as error:
        raise CannotTrace(
            f"{place} does not import ({_said(error)}): keep training and the use of GPUs out of its top"
            " level, under `if __name__ == '__main__'`, or choose the environment with --python"
        ) from error
    return module


def _model(torch: Any, module: Any, factory: str) -> Any:
    place, _, name = factory.rpartition(":")
    make = getattr(module, name, None)
    if not callable(make):
        raise CannotTrace(f"{place} has no function `{name}`: name one that returns the model")
    try:
        model = make()
    except Exception as error:
        raise CannotTrace(
            f"{name}() fails ({_said(error)}): it must need no arguments, and leave the model on the CPU"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise CannotTrace(
            f"{name}() returns {type(model).__name__}: it must return a torch.nn.Module"
        )
    if not any(True for _ in model.parameters()):
        raise CannotTrace(f"the model of {name}() has no parameters: nothing is trained")
    return model


def _optimizer(torch: Any, name: str, parameters: list[Any]) -> Any:
    if not parameters:
        raise CannotTrace("all weights of the model are frozen: nothing is trained")
    kind, settings = OPTIMIZERS[name]
    return getattr(torch.optim, kind)(parameters, lr=0.001, foreach=True, **settings)


def _inputs(torch: Any, request: dict[str, Any], module: Any, model: Any) -> tuple[Any, ...]:
    batch = request["batch"]
    if request["input"]:
        found = INPUT.fullmatch(request["input"])
        if found is None:
            raise CannotTrace("--input is a shape such as 3x224x224, or 512:int<50000 for words")
        shape = (batch, *map(int, found["shape"].split("x")))
        if found["most"]:
            return (torch.zeros(shape, dtype=torch.int64),)
        return (torch.zeros(shape),)
    if hasattr(module, "make_batch"):
        made = module.make_batch(batch)
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)
    first = next((each for each in model.modules() if not list(each.children())), None)
    if isinstance(first, torch.nn.Linear):
        return (torch.zeros(batch, first.in_features),)
    raise CannotTrace(
        f"the input's shape cannot be told from the first layer ({type(first).__name__}): say it with"
        " --input 3x224x224 (numbers) or --input 512:int<50000 (words), or define make_batch(batch)"
    )


def _loss(torch: Any, module: Any, output: Any, inputs: tuple[Any, ...]) -> Any:
    if hasattr(module, "make_loss"):
        return module.make_loss(output, *inputs)
    found = getattr(output, "loss", None)
    if found is not None:
        return found
    first = output[0] if isinstance(output, (tuple, list)) else getattr(output, "logits", output)
    if not torch.is_tensor(first):
        raise CannotTrace(
            f"the model returns {type(output).__name__}: define make_loss(output, *inputs) beside it"
        )
    return first.float().mean()


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def main(request: str, result: str) -> None:
    """Write what was traced, or one sentence, into the result's file."""
    try:
        answer = trace(json.loads(request))
    except CannotTrace as trouble:
        answer = {"trouble": str(trouble)}
    except Exception as error:
        if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            said = "its control flow depends on data, which fake tensors do not have: take that out"
        else:
            said = "check --input and make_batch against the model"
        answer = {"trouble": f"a training step fails ({_said(error)}): {said}"}
    with open(result, "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    sys.path[:1] = []  # this file's folder, whose other files are no modules of the user's
    main(*sys.argv[1:])
