"""Measures what each rank of a DDP program takes for itself in a step, which shows whom the others wait for.

Ranks that average their gradients all take the time of the slowest one. What differs is the time that a rank
takes before it has to wait for the others: from the end of its optimizer step to the end of the next forward
pass (loading data, computing), or to its beginning where DDP waits for rank 0's buffers in it. Forward passes
without gradients, or without an exchange of them (`no_sync`), end nothing. On GPUs the times are those of the
stream, not of the program, which runs ahead of it.

Installed by path_entry/sitecustomize.py in every rank. Nothing is told of programs without DDP over all
ranks: where ranks wait elsewhere (pipelines, sharded models), these times would accuse the wrong one.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from trainmaster_sdk import step_hooks, wire
from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.step_hooks import is_compiling_of

REPORT_S = 1.0
"""Times are told as means over this long, at least."""
LOOKS = (2, 20)
"""Steps at which it is looked whether the program is a gang; after the last one it is not measured."""
MOST_UNREAD = 1000
"""Times of a GPU that are kept while it is behind."""

_installed: list[OwnTimes] = []


def install(optimizers: ModuleType) -> None:
    """Measure from now on, given `torch.optim.optimizer`; torch before 2.0 has no hook for it."""
    path = os.environ.get(wire.SOCKET)
    if path is None or _installed:
        return
    measured = OwnTimes(path, sys.modules["torch"])
    measured.handle = step_hooks.add(optimizers, measured.end_step)
    if measured.handle is None:
        return
    _installed.append(measured)
    atexit.register(measured.close)


class OwnTimes:
    """One rank's times. Processes that are forked off it tell nothing."""

    def __init__(self, path: str, torch: Any) -> None:
        self.handle: Any = None
        """Removes the hook."""
        self._path = path
        self._torch = torch
        self._asks_torch: Callable[[], bool] | None = None
        """Whether it is compiling; torch is still being imported."""
        self._owner = os.getpid()
        self._steps = 0
        self._stepped: set[int] = set()
        """Optimizers that have stepped in the present iteration, as in step_counter.py."""
        self._is_watching = False
        self._mark: Any = None
        """When the last optimizer step ended; None after the forward pass that counts."""
        self._stretches: deque[tuple[Any, Any]] = deque(maxlen=MOST_UNREAD)
        """Begin and end of each time that was its own, not yet summed up."""
        self._own_ms = 0.0
        self._began = (0, 0.0)
        """Steps and time at the last report."""
        self._device: Any = None
        """The GPU whose stream is measured."""
        self._client: ControlClient | None = None

    # -- what torch calls ----------------------------------------------------------------------------

    def end_step(self, optimizer: object, args: object, kwargs: object) -> None:
        """After each `optimizer.step()`."""
        if self._is_compiling():
            return
        try:
            number = id(optimizer)
            if number in self._stepped or not self._stepped:
                self._stepped = {number}
                self._steps += 1
                self._end_iteration()
            else:
                self._stepped.add(number)
            if self._is_watching:
                self._mark = self._moment()
        except Exception:
            self.stop()

    def begin_forward(self, ddp: Any) -> None:
        """Before DDP does anything in its forward pass."""
        if self._counts(ddp) and ddp.will_sync_module_buffers():
            self._end_own()

    def end_forward(self, ddp: Any) -> None:
        """After the forward pass of its module."""
        if self._counts(ddp):
            self._end_own()

    def stop(self) -> None:
        """Measure no more."""
        self._is_watching, self._mark = False, None
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.remove()
        self.close()

    def close(self) -> None:
        if self._client is not None and os.getpid() == self._owner:
            self._client.close(0)
        self._client = None

    # -- what is measured ----------------------------------------------------------------------------

    def _is_compiling(self) -> bool:
        """As in step_counter.py: what is compiled leaves this out of its graph."""
        if self._asks_torch is None:
            self._asks_torch = is_compiling_of(self._torch)
        return self._asks_torch()

    def _end_iteration(self) -> None:
        if self._is_watching:
            now = time.monotonic()
            if now >= self._began[1] + REPORT_S:
                self._report(now)
        elif os.getpid() != self._owner or self._steps > LOOKS[-1]:
            self.stop()
        elif self._steps in LOOKS and self._world_size() > 1:
            _watch_ddp(self._torch, self)
            self._is_watching = True
            self._began = (self._steps, time.monotonic())

    def _counts(self, ddp: Any) -> bool:
        """Whether this forward pass ends what is its own: the ranks wait for each other after it."""
        if self._mark is None:
            return False
        if not self._torch.is_grad_enabled() or not ddp.require_backward_grad_sync:
            return False
        if ddp.process_group.size() != self._world_size():
            self.stop()
            return False
        self._device = ddp.device if ddp.device_type == "cuda" else None
        return True

    def _end_own(self) -> None:
        begin, self._mark = self._mark, None
        end = self._moment()
        if type(end) is type(begin):  # else the device has only just become known
            self._stretches.append((begin, end))

    def _moment(self) -> Any:
        """Now, on the clock of what computes: an event in the stream of a GPU, else seconds."""
        if self._device is None:
            return time.monotonic()
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self._device))
        return event

    def _sum_up(self) -> None:
        """Add what is known by now: a GPU may be behind."""
        while self._stretches:
            begin, end = self._stretches[0]
            if isinstance(begin, float):
                self._own_ms += (end - begin) * 1000
            elif end.query():
                self._own_ms += begin.elapsed_time(end)
            else:
                break
            self._stretches.popleft()

    def _report(self, now: float) -> None:
        steps, at = self._began
        self._sum_up()
        own_ms, self._own_ms = self._own_ms, 0.0
        self._began = (self._steps, now)
        if own_ms <= 0 or os.getpid() != self._owner:
            return
        if self._client is None:
            self._client = ControlClient(self._path, None)
        made = self._steps - steps
        said: wire.Message = {
            "say": "own time",
            "rank": self._torch.distributed.get_rank(),
            "ranks": self._world_size(),
            "ms": own_ms / made,
            "step_ms": (now - at) * 1000 / made,
        }
        self._client.say_newest(said, now=True)

    def _world_size(self) -> int:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available():
            return 1
        return int(distributed.get_world_size()) if distributed.is_initialized() else 1


def _watch_ddp(torch: Any, measured: OwnTimes) -> None:
    """Hear of the forward passes of DDP. The class is changed and no module: those are copied and saved."""
    kind = torch.nn.parallel.DistributedDataParallel
    before, after = kind._pre_forward, kind._post_forward
    is_compiling = is_compiling_of(
        torch
    )  # asked before all else, so that no state of ours is part of a graph

    def heard(tell: Callable[[Any], None], ddp: Any) -> None:
        try:
            tell(ddp)
        except Exception:
            measured.stop()

    @wraps(before)
    def pre_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            heard(measured.begin_forward, self)
        return before(self, *args, **kwargs)

    @wraps(after)
    def post_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            heard(measured.end_forward, self)
        return after(self, *args, **kwargs)

    kind._pre_forward, kind._post_forward = pre_forward, post_forward
