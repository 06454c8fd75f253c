"""One hook after optimizer steps, for all of ours that want to hear of them.

torch iterates over its hooks while it calls them, and the program fails if one removes itself meanwhile: the
hook that torch knows stays, and ours come and go behind it. A compiled optimizer step leaves it out of its
graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import Any

Call = Callable[[Any, object, object], None]
"""Given the optimizer, and the arguments of its `step()`."""

_calls: dict[int, Call] = {}
_numbers = count()


class StepHook:
    """One that is called after each `optimizer.step()`, until it is removed."""

    def __init__(self, call: Call) -> None:
        self._number = next(_numbers)
        _calls[self._number] = call

    def remove(self) -> None:
        _calls.pop(self._number, None)


def add(optimizers: ModuleType, call: Call) -> StepHook | None:
    """Call this from now on, given `torch.optim.optimizer`; None: torch before 2.0 has no hook for it."""
    register = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if register is None:
        return None
    if not getattr(optimizers, "_trainmaster_hooks", False):
        optimizers._trainmaster_hooks = True  # type: ignore[attr-defined]
        register(_end_step)
    return StepHook(call)


def is_compiling_of(torch: Any) -> Callable[[], bool]:
    """torch's `is_compiling`, by which what is compiled leaves ours out of its graph."""
    found = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return found if callable(found) else lambda: False


def _end_step(optimizer: Any, args: object, kwargs: object) -> None:
    if not is_compiling_of(sys.modules.get("torch"))():
        for call in [*_calls.values()]:
            call(optimizer, args, kwargs)
