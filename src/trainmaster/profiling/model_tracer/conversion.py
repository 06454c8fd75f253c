"""Conversions of models (`.to()`, `.half()`): fake parameters that are watched cannot be swapped as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

CONVERTED = "_trainmaster_converted"


@contextmanager
def without_swapping() -> Iterator[None]:
    """New parameters take the place of those that are converted, while this lasts."""
    swapping = torch.nn.Module._apply
    torch.nn.Module._apply = _apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = swapping  # type: ignore[method-assign]


def _apply(module: torch.nn.Module, function: Callable[..., Any], recurse: bool = True) -> Any:
    if recurse:
        for child in module.children():
            child._apply(function)  # type: ignore[no-untyped-call]
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = _converted(parameter, function)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


def _converted(parameter: torch.nn.Parameter, function: Callable[..., Any]) -> Any:
    """The same one for each module that shares it."""
    if not hasattr(parameter, CONVERTED):
        with torch.no_grad():
            made = function(parameter)
        if made is parameter:
            return parameter
        setattr(parameter, CONVERTED, torch.nn.Parameter(made, parameter.requires_grad))
    return getattr(parameter, CONVERTED)
