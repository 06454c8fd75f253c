"""Profiles a PyTorch program by its first optimizer steps: what predicts its speed on more GPUs.

Bytes of the parameters that it trains (as many gradients travel in each step), CPU time of its process for a
step, and on a GPU the memory that a step takes and gives back. Where TRAINMASTER_STEP_PROFILE names a file,
also the examples of a step: the first dimension of what the first model with parameters is called with. That
takes hooks on every module, and jobs do without.

Installed by path_entry/sitecustomize.py, and gone after the last look. The file gets one object of JSON; the
supervisor is told the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

from trainmaster_sdk import step_hooks, wire
from trainmaster_sdk.control_client import ControlClient

LOOKS = (5, 25)
"""Steps after which the profile is told; after the last one nothing is measured any more."""
CLOSE_S = 0.2

_installed: list[StepProfile] = []


def install(optimizers: ModuleType) -> None:
    """Profile from now on, given `torch.optim.optimizer`; torch before 2.0 has no hook for it."""
    is_wanted = os.environ.get(wire.SOCKET) or os.environ.get(wire.STEP_PROFILE)
    if not is_wanted or _installed:
        return
    profile = StepProfile(sys.modules["torch"])
    handle = step_hooks.add(optimizers, profile.end_step)
    if handle is not None:
        profile.handles.append(handle)
        _installed.append(profile)


class StepProfile:
    """One program's. Processes that are forked off it tell nothing."""

    def __init__(self, torch: Any) -> None:
        self.handles: list[Any] = []
        """They remove the hooks."""
        self._torch = torch
        self._owner = os.getpid()
        self._known: set[int] = set()
        """Optimizers whose parameters have been counted."""
        self._sizes: dict[int, int] = {}
        """Bytes of each parameter: several optimizers may train it, one after another."""
        self._stepped: set[int] = set()
        """Optimizers that have stepped in the present iteration, as in step_counter.py."""
        self._steps = 0
        self._cpu_s = 0.0
        """CPU time of the process after the first step."""
        self._passes = ForwardPasses(torch)

    def end_step(self, optimizer: Any, args: object, kwargs: object) -> None:
        """After each `optimizer.step()`."""
        try:
            number = id(optimizer)
            if number not in self._known:
                self._known.add(number)
                self._sizes |= parameter_bytes(optimizer)
            if number in self._stepped or not self._stepped:
                self._stepped = {number}
                self._end_iteration()
            else:
                self._stepped.add(number)
        except Exception:
            self.stop()

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def _end_iteration(self) -> None:
        self._steps += 1
        if os.getpid() != self._owner:
            self.stop()
        elif self._steps == 1:
            self._cpu_s = time.process_time()
            if os.environ.get(wire.STEP_PROFILE):
                self.handles += self._passes.watch()
        elif self._steps in LOOKS:
            self._tell(self._said())
            if self._steps == LOOKS[-1]:
                self.stop()
        self._passes.end_step()

    def _said(self) -> wire.Message:
        cpu_us = round((time.process_time() - self._cpu_s) * 1e6 / (self._steps - 1))
        said: wire.Message = {"sync_bytes": sum(self._sizes.values()), "cpu_us": cpu_us}
        activations = activation_bytes(self._torch)
        if activations:
            said["activation_bytes"] = activations
        if self._passes.batch:
            said["batch"] = self._passes.batch
        return said

    def _tell(self, said: wire.Message) -> None:
        file, socket = os.environ.get(wire.STEP_PROFILE), os.environ.get(wire.SOCKET)
        if file:
            with open(file + ".new", "w", encoding="utf-8") as new:
                json.dump(said, new)
            os.replace(file + ".new", file)
        elif socket:
            client = ControlClient(socket, None)
            client.say_newest({"say": "profile", **said}, now=True)
            client.close(CLOSE_S)


class ForwardPasses:
    """The examples of one step, by what models are called with."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.batch = 0
        """Of the last step."""
        self._model: int | None = None
        """The first outermost module of this step that has parameters."""
        self._depth = 0
        self._is_counted = False
        """Whether the present pass has been counted."""
        self._examples = 0

    def watch(self) -> list[Any]:
        """Begin; what removes the hooks."""
        module = self._torch.nn.modules.module
        return [
            module.register_module_forward_pre_hook(self._begin),
            module.register_module_forward_hook(self._end),
        ]

    def end_step(self) -> None:
        if self._examples:
            self.batch = self._examples
        self._model, self._depth, self._is_counted, self._examples = None, 0, False, 0

    def _begin(self, module: Any, args: tuple[Any, ...]) -> None:
        with contextlib.suppress(Exception):
            self._note(module, args)

    def _note(self, module: Any, args: tuple[Any, ...]) -> None:
        if self._depth == 0:
            self._is_counted = not self._counts(module)
        self._depth += 1
        if self._is_counted:
            return
        first = next((each for each in args if self._torch.is_tensor(each) and each.dim()), None)
        if first is not None:
            self._examples += int(first.shape[0])
            self._is_counted = True

    def _end(self, module: Any, args: object, output: object) -> None:
        self._depth = max(0, self._depth - 1)

    def _counts(self, module: Any) -> bool:
        """Whether this outermost call is one of the model that is trained, not of a loss or for a test."""
        if not self._torch.is_grad_enabled() or next(module.parameters(), None) is None:
            return False
        if self._model is None:
            self._model = id(module)
        return self._model == id(module)


def parameter_bytes(optimizer: Any) -> dict[int, int]:
    """Bytes of each of the parameters that it trains."""
    return {
        id(each): each.numel() * each.element_size()
        for group in optimizer.param_groups
        for each in group["params"]
        if each.requires_grad
    }


def activation_bytes(torch: Any) -> int:
    """What a step takes and gives back on this process's GPU; 0 without one."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return 0
    return max(0, int(cuda.max_memory_allocated()) - int(cuda.memory_allocated()))
