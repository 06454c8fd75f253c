"""Numbers the storages of tensors on the GPU, and notes in which order they appear and go."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from .operators import LIBRARIES, Library, extra

_dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
tree_iter: Any = importlib.import_module("torch.utils._pytree").tree_iter


class Recorder(_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator below autograd. What is made `on_host` does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "parameters"
        self.events: list[int] = []
        self.sizes: dict[int, int] = {}
        self.parts: dict[int, str] = {}
        self._numbers: Any = weakref.WeakKeyDictionary()
        self.workspaces: dict[tuple[Library, bool], int] = {}
        """Of the matrix libraries, by whether it is that of the thread for the way back."""
        self._is_on_host = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if self._is_on_host:
            return made
        for library in LIBRARIES.get(func, ()):
            thread = library, torch._C._current_graph_task_id() >= 0
            if thread not in self.workspaces:
                self.workspaces[thread] = self._add(0)
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
            weakref.finalize(storage, self.events.append, -name).atexit = False
        return int(self._numbers[storage])

    def keep(self, part: str, tensors: Iterable[torch.Tensor]) -> None:
        """Say what these tensors are for."""
        for each in tensors:
            self.parts[self.see(each)] = part

    def _use(self, size: int) -> None:
        """Take memory and give it back."""
        if size:
            self.events.append(-self._add(size))

    def _add(self, size: int) -> int:
        name = len(self.sizes) + 1
        self.sizes[name], self.parts[name] = size, self.phase
        self.events.append(name)
        return name
