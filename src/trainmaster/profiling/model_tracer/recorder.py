"""Numbers the storages of tensors on the GPU, and notes in which order they appear and go."""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .operators import LIBRARIES, Library, extra, refuse_wrong_types

_dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
tree_iter: Any = importlib.import_module("torch.utils._pytree").tree_iter

aten = torch.ops.aten
ENGINE = "torch.autograd.graph"
BETWEEN = (__name__, "torch._dynamo", "torch._compile", "torch.utils._python_dispatch")
"""Modules on the stack between autograd and what looks at its operators."""
TEMPORARIES = "temporaries and workspace"
HELD_BY_TRACE = 4, 2
"""References to a tensor and to its storage that are there because it is looked at."""


class Recorder(_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator below autograd. What is made `on_host` does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "parameters"
        self.events: list[int] = []
        self.sizes: dict[int, int] = {}
        self.parts: dict[int, str] = {}
        self._numbers: Any = weakref.WeakKeyDictionary()
        self._ends: dict[int, Any] = {}
        self.workspaces: dict[tuple[Library, bool], int] = {}
        """Of the matrix libraries, by whether it is that of the thread for the way back."""
        self._is_on_host = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.add.Tensor and _is_accumulation(*args):
            func = aten.add_.Tensor
        refuse_wrong_types(func, args)
        made = func(*args, **(kwargs or {}))
        if self._is_on_host:
            return made
        for library in LIBRARIES.get(func, ()):
            thread = library, torch._C._current_graph_task_id() >= 0
            if thread not in self.workspaces:
                self.workspaces[thread] = self._add(0, TEMPORARIES)
        more = extra(func, args, made)
        scratch = iter(more.scratch)
        for place, each in enumerate(tree_iter(made)):
            if torch.is_tensor(each):
                self.see(each, more.result if place == 0 else 0)
            self._use(next(scratch, 0))
        return made

    @contextmanager
    def on_host(self) -> Iterator[None]:
        was, self._is_on_host = self._is_on_host, True
        yield
        self._is_on_host = was

    def see(self, tensor: torch.Tensor, least: int = 0) -> int:
        """The number of its storage."""
        storage = tensor.untyped_storage()
        if storage not in self._numbers:
            name = self._numbers[storage] = self._add(max(storage.nbytes(), least))
            gone = weakref.finalize(storage, self.events.append, -name)
            gone.atexit = False
            self._ends[name] = gone
        return int(self._numbers[storage])

    def keep(self, part: str, tensors: Iterable[torch.Tensor]) -> None:
        """Say what these tensors are for."""
        for each in tensors:
            self.parts[self.see(each)] = part

    def join(self, tensors: Iterable[torch.Tensor]) -> None:
        """Move tensors into one storage, as cuDNN wants the weights of a recurrent layer."""
        storages = list(
            {id(each): each for each in (t.untyped_storage() for t in tensors)}.values()
        )
        whole = self._add(sum(each.nbytes() for each in storages))
        for each in storages:
            name = self._numbers[each]
            if name in self._ends:
                self._ends.pop(name).detach()
                self.events.append(-name)
            self._numbers[each] = whole

    def _use(self, size: int) -> None:
        """Take memory and give it back."""
        if size:
            self.events.append(-self._add(size, TEMPORARIES))

    def _add(self, size: int, part: str | None = None) -> int:
        name = len(self.sizes) + 1
        self.sizes[name], self.parts[name] = size, part or self.phase
        self.events.append(name)
        return name


def _is_accumulation(total: Any, more: Any) -> bool:
    """Whether autograd sums two gradients of a tensor, and may do it in place.

    It may where nothing else holds the first; it never does so with fake tensors.
    """
    if torch._C._current_graph_task_id() < 0 or not torch.is_tensor(more):
        return False
    caller = sys._getframe()
    while caller.f_back is not None and caller.f_globals["__name__"].startswith(BETWEEN):
        caller = caller.f_back
    storage = total.untyped_storage()
    held = total._use_count(), torch._C._storage_Use_Count(storage._cdata)
    return (
        caller.f_globals["__name__"] == ENGINE
        and held[0] <= HELD_BY_TRACE[0]
        and held[1] <= HELD_BY_TRACE[1]
        and storage.nbytes() >= total.numel() * total.element_size()
    )
