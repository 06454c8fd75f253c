"""DDP on devices of unequal speed: each rank gets as many samples of a global batch as it can do in time.

    with trainmaster_sdk.run() as tm, gang(tm) as device:
        net, optimiser = ...
        model = DistributedDataParallel(net)
        shares = BalancedShares(tm, net)
        batches = StepBatches(tm, len(data), GLOBAL_BATCH, first, steps, shares=shares)
        for step, (inputs, wanted) in enumerate(DataLoader(data, batch_sampler=batches), first + 1):
            loss = global_mean(tm, criterion(model(inputs), wanted), GLOBAL_BATCH)
            ...
            optimiser.step()
            shares.update()

`global_mean` weighs each sample alike, so that the gradients are those of the whole batch, however it is
divided. The samples of each global batch stay the same; only who computes them changes.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from trainmaster_sdk import wire
from trainmaster_sdk.batch_shares import Division, Divisions, divided, saves_enough
from trainmaster_sdk.session import Session
from trainmaster_sdk.step_hooks import is_compiling_of

EVERY = 10
"""Steps between two looks at the speeds."""
GAIN = 0.05
"""Other shares must make steps faster by this part."""
WARM_UP = 2
"""First steps of a division that are not measured: kernels are chosen, and compiled, for new sizes."""
KEPT = 256
"""Steps of which the times are kept, at most."""


class BalancedShares:
    """Divides each global batch by the speeds that the ranks show; made by all ranks alike.

    `most` is how many samples this rank has memory for at most. Before anything is measured, batches are
    divided equally, and after the first step by what Trainmaster says of the devices' speed.
    """

    def __init__(
        self,
        tm: Session,
        module: torch.nn.Module,
        *,
        every: int = EVERY,
        gain: float = GAIN,
        most: int | None = None,
    ) -> None:
        self._tm = tm
        self._every = every
        self._gain = gain
        self._most = most or 0
        self._stated = stated_speed(os.environ)
        self._times = ComputeTimes(module)
        self._divisions = Divisions()
        self._drawn = 0
        """Samples of the global batches that have been divided."""
        self._batch = 0
        """Samples of the last of them."""
        self._steps = 0
        """Since the gang was formed."""
        self._gang: Any = None
        self._group: Any = None
        """Where speeds are exchanged: on CPUs, in the present gang."""

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of each rank in the batch that was divided last."""
        return self._divisions.shares_at(
            self._drawn - self._batch, self._batch, self._tm.world_size
        )

    @property
    def next_shares(self) -> tuple[int, ...]:
        """The same of the first batch that no rank has drawn yet, right after a change."""
        return self._divisions.shares_at(sys.maxsize, self._batch, self._tm.world_size)

    def restart(self) -> None:
        """Batches are drawn anew, by all ranks: at first in equal parts."""
        self._divisions, self._drawn = Divisions(), 0

    def part_at(self, begin: int, total: int) -> slice:
        """This rank's part of the global batch that begins with that sample."""
        shares = self._divisions.shares_at(begin, total, self._tm.world_size)
        self._drawn, self._batch = max(self._drawn, begin + total), total
        first = sum(shares[: self._tm.rank])
        return slice(first, first + shares[self._tm.rank])

    def update(self) -> bool:
        """After each step, on all ranks: agree on other shares where that pays. Whether they have changed.

        They hold from the first batch on that no rank has drawn yet, as loaders draw some ahead.
        """
        self._times.end_step()
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return False
        self._join()
        is_due = self._steps % self._every == 0
        self._steps += 1
        return is_due and self._agree()

    def _join(self) -> None:
        """Speeds are exchanged, and steps counted, anew in each gang."""
        if self._gang is not dist.group.WORLD:
            self._gang, self._group = dist.group.WORLD, dist.new_group(backend="gloo")
            self._steps = 0
            self._times.forget()

    def _agree(self) -> bool:
        said = self._exchanged()
        speeds = _known(said[0]) or _known(said[1])
        if speeds is None:
            return False
        begin, batch, most = max(said[2]), max(said[3]), said[4]
        now = self._divisions.shares_at(begin, batch, len(speeds))
        then = divided(batch, speeds, most)
        if now == then or not saves_enough(now, then, speeds, self._gain):
            return False
        self._divisions.forget_before(begin - 2 * batch * KEPT)
        self._divisions.add(Division(begin, speeds, most))
        self._times.forget()
        return True

    def _exchanged(self) -> list[tuple[int, ...]]:
        """Of all ranks: the measured speed, the stated one, how far they have drawn, the batch, the most."""
        own = (self._times.speed(), self._stated, self._drawn, self._batch, self._most)
        mine = torch.tensor(own, dtype=torch.int64)
        found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(found, mine, group=self._group)
        return [tuple(column) for column in torch.stack(found).T.tolist()]


def _known(speeds: tuple[int, ...]) -> tuple[int, ...] | None:
    """None where one of them is not known."""
    return speeds if all(speeds) else None


def stated_speed(environ: Mapping[str, str]) -> int:
    """This rank's speed as Trainmaster knows it of its devices, in millionths; 0 where it says nothing."""
    said = environ.get(wire.SPEED, "")
    return int(said) if said.isdecimal() else 0


class ComputeTimes:
    """What one rank computes for itself in each step, and waits for nobody.

    From the beginning of a module's forward pass to the last of its gradients: DDP begins to wait for the
    other ranks' after that. On GPUs it is the time of the stream.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        trained = [each for each in module.parameters() if each.requires_grad]
        if not trained:
            raise ValueError("BalancedShares needs a module with parameters that are trained.")
        on_gpu = trained[0].is_cuda
        self._mark = _StreamMark if on_gpu else _ClockMark
        self._begin: _Mark | None = None
        self._end: _Mark | None = None
        self._samples = 0
        self._pending: list[tuple[_Mark, _Mark, int]] = []
        """Passes of the present step."""
        self._unread: deque[list[tuple[_Mark, _Mark, int]]] = deque(maxlen=KEPT)
        """Steps that the GPU may not have ended yet."""
        self._per_sample_s: deque[float] = deque(maxlen=KEPT)
        self._skips = WARM_UP
        module.register_forward_pre_hook(self._begin_pass, with_kwargs=True)
        for each in trained:
            each.register_post_accumulate_grad_hook(self._note_gradient)  # type: ignore[no-untyped-call]

    def speed(self) -> int:
        """Samples in a thousand seconds, by the median step; 0 where nothing was measured."""
        self._read()
        return 0 if not self._per_sample_s else max(1, round(1000 / median(self._per_sample_s)))

    def forget(self) -> None:
        """What was measured is out of date, and so are the next steps."""
        self._unread.clear()
        self._per_sample_s.clear()
        self._skips = WARM_UP

    def end_step(self) -> None:
        """All passes since the last call are one step."""
        self._end_pass()
        passes, self._pending = self._pending, []
        if self._skips:
            self._skips -= 1
        elif passes:
            self._unread.append(passes)

    def _begin_pass(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not torch.is_grad_enabled() or is_compiling_of(torch)():
            return
        self._end_pass()
        self._samples = _samples_of(args, kwargs)
        self._begin = self._mark()

    def _note_gradient(self, parameter: torch.Tensor) -> None:
        """The last one of a pass counts."""
        if self._begin is None:
            return
        if self._end is None:
            self._end = self._mark()
        else:
            self._end.renew()

    def _end_pass(self) -> None:
        if self._begin is not None and self._end is not None and self._samples:
            self._pending.append((self._begin, self._end, self._samples))
        self._begin = self._end = None

    def _read(self) -> None:
        while self._unread and all(end.has_passed() for _, end, _ in self._unread[0]):
            passes = self._unread.popleft()
            spent_s = sum(end.seconds_since(begin) for begin, end, _ in passes)
            self._per_sample_s.append(max(1e-9, spent_s) / sum(samples for _, _, samples in passes))


class _ClockMark:
    """A moment of a program on CPUs."""

    def __init__(self) -> None:
        self.at_s = time.perf_counter()

    def renew(self) -> None:
        self.at_s = time.perf_counter()

    def has_passed(self) -> bool:
        return True

    def seconds_since(self, other: Any) -> float:
        return float(self.at_s - other.at_s)


class _StreamMark:
    """A moment of a GPU's stream, of which the program is ahead. Not seen on hardware."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.event.record()

    def renew(self) -> None:
        self.event.record()

    def has_passed(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def seconds_since(self, other: Any) -> float:
        return float(other.event.elapsed_time(self.event)) / 1000


_Mark = _ClockMark | _StreamMark


def _samples_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Of a pass: the first dimension of the first tensor that it is given."""
    return next((each.shape[0] for each in _tensors((*args, *kwargs.values())) if each.ndim), 0)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, Mapping):
            yield from _tensors(each.values())
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)
