"""The user's model, its batches and its loss, as the user's module gives them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

INPUT = re.compile(r"(?P<shape>[1-9]\d*(x[1-9]\d*)*)(:(float|(?P<words>int<[1-9]\d*)))?")

FAKE_DATA = (
    "its control flow depends on data (`if`, `.item()`, `.numpy()`, a mask), which fake tensors do not have:"
    " take that out"
)
ONE_EXAMPLE = "BatchNorm cannot be trained with one example: set --batch to 2 or more"
NO_ARGUMENTS = "it must need no arguments: name a function that gives them"
ON_CPU = "it must leave the model on the CPU"
ALL_ON_CPU = (
    "leave the model and its batch on the CPU: ask the batch for its device, as in `to(x.device)`"
)
NOT_LAZY = "give lazy layers (LazyLinear) the sizes of their input"
NOT_SPARSE = "embeddings with sparse gradients are not known here: estimate with `sparse=False`"
WORDS = (
    "where these are words, say so with --input 512:int<50000, or let make_batch return integers"
)
NUMBERS = (
    "let --input, make_batch and the model have numbers of one type, such as float32; words go to an"
    " embedding first"
)
ALL_INPUTS = (
    "define make_batch(batch) that returns all inputs of the model, and compute_loss(model, batch) where"
    " the loss needs more"
)
TOP_LEVEL = (
    "keep training and the use of GPUs out of its top level, under `if __name__ == '__main__'`"
)
CORRECT = "correct that; what belongs to a run goes out of its top level, under `if __name__ == '__main__'`"
SYNTAX = "correct that"
IN_PACKAGE = "name it by its package, as in package.module:function, from the folder of the package"
ENVIRONMENT = "start this where the module is found, or choose its environment with --python"
CHECK_INPUT = "check --input and make_batch against the model"
Remedies = tuple[tuple[str, str], ...]
READS_DATA: Remedies = (
    ("DataDependentOutputException", FAKE_DATA),
    ("DynamicOutputShapeException", FAKE_DATA),
    (".numpy() is not supported", FAKE_DATA),
)
OF_IMPORT: Remedies = (
    ("ModuleNotFoundError", ENVIRONMENT),
    ("cannot import name", ENVIRONMENT),
    ("relative import", IN_PACKAGE),
    ("SyntaxError", SYNTAX),
    ("IndentationError", SYNTAX),
    ("cuda", TOP_LEVEL),
    ("SystemExit", TOP_LEVEL),
    ("TimeoutError", TOP_LEVEL),
    ("memory", TOP_LEVEL),
    ("", CORRECT),
)
OF_FACTORY: Remedies = (
    ("required positional argument", NO_ARGUMENTS),
    ("required keyword-only argument", NO_ARGUMENTS),
    *READS_DATA,
    ("UninitializedParameter", NOT_LAZY),
    ("cuda", ON_CPU),
    ("", "make it work on its own, without a GPU"),
)
OF_STEP: Remedies = (
    *READS_DATA,
    ("more than 1 value per channel", ONE_EXAMPLE),
    ("more than 1 spatial element", "set --input to larger images"),
    ("cuda", ALL_ON_CPU),
    ("SparseTensor", NOT_SPARSE),
    ("scalar types: Long, Int", WORDS),
    ("WrongTypes", NUMBERS),
    ("should be the same", NUMBERS),
    ("positional argument", ALL_INPUTS),
    ("", CHECK_INPUT),
)
OF_BATCH: Remedies = (
    ("cuda", "leave the batch on the CPU"),
    ("", "it takes the number of examples, and returns a batch of so many without a GPU"),
)
"""What to do, by words of the error; the first that fits."""


class CannotTrace(Exception):
    """One sentence that says what to do."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """TimeoutError where it takes longer: a module that trains when it is imported does so for ever."""

    def end(*_: object) -> None:
        raise TimeoutError(f"it still runs after {seconds} s")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def load_module(factory: str) -> Any:
    place, _, _ = factory.rpartition(":")
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(place)
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec = importlib.util.spec_from_file_location("traced_program", place)
        if spec is None or spec.loader is None or not os.path.isfile(place):
            raise CannotTrace(f"there is no file {place}: name it as seen from this folder")
        module = importlib.util.module_from_spec(spec)
        sys.modules["traced_program"] = module
        spec.loader.exec_module(module)
    except CannotTrace:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (place, place.split(".")[0]):
            raise CannotTrace(
                f"there is no module {place}: name package.module:function, or file.py:function, as seen from"
                " this folder"
            ) from error
        raise CannotTrace(
            f"{place} does not import ({first_line(error)}): {remedy_of(error, OF_IMPORT)}"
        ) from error
    return module


def make_model(module: Any, factory: str) -> Any:
    place, _, name = factory.rpartition(":")
    make = getattr(module, name, None)
    if isinstance(make, torch.nn.Module):
        raise CannotTrace(f"{name} is a model: name a function that returns it")
    if not callable(make):
        raise CannotTrace(
            f"{place} has no function `{name}`: name one that returns the model, without parentheses"
        )
    try:
        model = make()
    except (Exception, SystemExit) as error:
        raise CannotTrace(
            f"{name}() fails ({first_line(error)}): {remedy_of(error, OF_FACTORY)}"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise CannotTrace(
            f"{name}() returns {type(model).__name__}: it must return a torch.nn.Module"
        )
    if not any(True for _ in model.parameters()):
        raise CannotTrace(f"the model of {name}() has no parameters: return one that is trained")
    return model


def make_batch(request: dict[str, Any], module: Any, model: Any) -> Any:
    batch = request["batch"]
    if request["input"]:
        found = INPUT.fullmatch(request["input"])
        if found is None:
            raise CannotTrace("--input is a shape such as 3x224x224, or 512:int<50000 for words")
        shape = (batch, *map(int, found["shape"].split("x")))
        if found["words"]:
            return (torch.zeros(shape, dtype=torch.int64),)
        return (torch.zeros(shape),)
    if hasattr(module, "make_batch"):
        return _made_batch(module, batch)
    first = next((each for each in model.modules() if not list(each.children())), None)
    if isinstance(first, torch.nn.Linear):
        return (torch.zeros(batch, first.in_features),)
    raise CannotTrace(
        f"the input's shape cannot be told from the first layer ({type(first).__name__}): say it with"
        " --input 3x224x224 (numbers) or --input 512:int<50000 (words), or define make_batch(batch)"
    )


def _made_batch(module: Any, batch: int) -> Any:
    """That of the module; where it has no loss of its own, the inputs of the model: a tensor, or several."""
    try:
        made = module.make_batch(batch)
    except (Exception, SystemExit) as error:
        raise CannotTrace(
            f"make_batch({batch}) fails ({first_line(error)}): {remedy_of(error, OF_BATCH)}"
        ) from error
    inputs = made if isinstance(made, (tuple, list)) else (made,)
    if not hasattr(module, "compute_loss") and not any(map(torch.is_tensor, tree_leaves(inputs))):
        raise CannotTrace(f"make_batch returns {_kinds(made)}: it must return tensors")
    if not hasattr(module, "compute_loss") and isinstance(made, Mapping):
        raise CannotTrace(
            f"make_batch returns {_kinds(made)}: return the model's inputs in a tuple, or define"
            " compute_loss(model, batch)"
        )
    return made


def _kinds(made: Any) -> str:
    if isinstance(made, (tuple, list)) and made:
        return f"a {type(made).__name__} of {type(made[0]).__name__}"
    return type(made).__name__


def loss_of(module: Any, model: Any, batch: Any) -> Any:
    """A tensor with one number, by the module's own loss where it has one."""
    name = next((each for each in ("compute_loss", "make_loss") if hasattr(module, each)), "model")
    loss = _any_loss(module, model, batch)
    if not torch.is_tensor(loss):
        raise CannotTrace(f"{name} returns {type(loss).__name__}: the loss must be a tensor")
    if loss.numel() != 1:
        raise CannotTrace(
            f"{name} returns a loss of {loss.numel()} numbers: it must have one, such as their mean"
        )
    return loss


def _any_loss(module: Any, model: Any, batch: Any) -> Any:
    if hasattr(module, "compute_loss"):
        return module.compute_loss(model, batch)
    inputs = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    output = model(*inputs)
    if hasattr(module, "make_loss"):
        return module.make_loss(output, *inputs)
    found = getattr(output, "loss", None)
    if found is not None:
        return found
    first = output[0] if isinstance(output, (tuple, list)) else getattr(output, "logits", output)
    if not torch.is_tensor(first):
        raise CannotTrace(
            f"the model returns {type(output).__name__}: define compute_loss(model, batch) beside it"
        )
    return first.float().mean()


def remedy_of(error: BaseException, remedies: Remedies) -> str:
    text = f"{type(error).__name__}: {error}".lower()
    return next(remedy for words, remedy in remedies if words.lower() in text)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
