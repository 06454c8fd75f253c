"""What PyTorch programs need on top: a gang that starts itself, data by step, sharded checkpoints.

Imported only by programs that use torch. Restart rules: the data and the random numbers of a step depend
only on the seed and the step. With the same number of ranks a restarted program continues exactly; with
another number it sees the same global batches, split differently and summed in another order.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.utils.data import Sampler

from trainmaster_sdk import stop_requests
from trainmaster_sdk.offload import can_release
from trainmaster_sdk.session import Session

__all__ = [
    "ShardedCheckpoints",
    "StepBatches",
    "any_rank",
    "batch_of",
    "can_release",
    "gang",
    "global_mean",
    "outlive_stop",
    "seed_step",
]
_asking: list[Any] = [None, None]
"""The world, and the group in it that flags are exchanged on: by CPU, without waiting for a GPU."""


def any_rank(flags: Sequence[bool]) -> list[bool]:
    """For each flag: whether any rank has raised it. All ranks of the gang must call it."""
    if _asking[0] is not dist.group.WORLD:
        _asking[:] = dist.group.WORLD, dist.new_group(backend="gloo")
    raised = torch.tensor(flags, dtype=torch.uint8)
    dist.all_reduce(raised, op=dist.ReduceOp.MAX, group=_asking[1])
    return [bool(flag) for flag in raised.tolist()]


@contextlib.contextmanager
def gang(tm: Session) -> Iterator[torch.device]:
    """Join torch.distributed as the environment says, and leave it again. Gives this rank's device.

    NCCL where there are GPUs, with gloo beside it for what lives on CPUs; else gloo. Without an
    environment it is a gang of one.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda", tm.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    else:
        device, backend = torch.device("cpu"), "gloo"
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group(backend, rank=tm.rank, world_size=tm.world_size)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    yield device
    # Not in `finally`: where a rank has failed, leaving the group would wait for the others.
    _asking[:] = None, None
    dist.destroy_process_group()


# ----------------------------------------------------------------------------- data and chance


def batch_of(step: int, size: int, global_batch: int, seed: int = 0) -> list[int]:
    """Which of `size` samples the global batch of a step is made of.

    An endless row of shuffled epochs is cut into batches: a sample comes once in each epoch.
    """
    first = step * global_batch
    chosen: list[int] = []
    while len(chosen) < global_batch:
        epoch, offset = divmod(first + len(chosen), size)
        chosen += _order(size, epoch, seed)[offset : offset + global_batch - len(chosen)].tolist()
    return chosen


@lru_cache(maxsize=2)
def _order(size: int, epoch: int, seed: int) -> torch.Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(_chance(seed, epoch)))


def _chance(*numbers: int) -> int:
    """A seed made of several numbers. torch's generator on CPUs takes its lower 32 bits only."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=4).digest(), "big")


class StepBatches(Sampler[list[int]]):
    """This rank's part of each global batch from a step on: a `batch_sampler` for a DataLoader."""

    def __init__(
        self, tm: Session, size: int, global_batch: int, first_step: int, steps: int, seed: int = 0
    ) -> None:
        self._size = size
        self._global_batch = global_batch
        self._steps = range(first_step, steps)
        self._seed = seed
        self._part = tm.batch_part(global_batch)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[int]]:
        for step in self._steps:
            yield batch_of(step, self._size, self._global_batch, self._seed)[self._part]


def outlive_stop(worker: int) -> None:
    """A `worker_init_fn`: DataLoader workers survive the stop signal to the whole process group.

    Otherwise SIGTERM kills the workers, and torch then fails the program before it has saved.
    """
    stop_requests.shield_child()


def seed_step(tm: Session, step: int, seed: int = 0) -> None:
    """Make dropout and the like depend on seed, step and rank alone, so that no state need be saved."""
    torch.manual_seed(_chance(seed, step, tm.rank))


def global_mean(tm: Session, losses: torch.Tensor, global_batch: int) -> torch.Tensor:
    """The loss to call backward on, from the losses of this rank's samples.

    DDP and FSDP average gradients over ranks, whatever its share of the batch; this weights them.
    """
    return losses.sum() * (tm.world_size / global_batch)


# ---------------------------------------------------------------------------- sharded checkpoints


class ShardedCheckpoints:
    """Every rank writes its own shards, in the background; any number of ranks can read them again.

    All ranks must call `save`, `wait` and `load` at the same steps. A checkpoint counts (`latest` names it,
    and `saved` is said) when all shards of all ranks are durable.
    """

    def __init__(self, tm: Session) -> None:
        self._tm = tm
        # Its own group: it works in the background, while training exchanges on another.
        self._group = dist.new_group(backend="gloo")
        self._committer = ThreadPoolExecutor(1, "trainmaster-checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: dict[str, Any], step: int) -> None:
        """Begin to save a state dict: its copy is taken when this returns, and training may go on."""
        self.wait()
        beside = self._tm.checkpoints.beside(step)
        if self._tm.is_rank_zero:
            self._tm.checkpoints.begin(step)
        dist.barrier(self._group)
        written = async_save(state, checkpoint_id=str(beside), process_group=self._group)
        assert isinstance(written, Future)
        self._pending = self._committer.submit(self._commit, written, beside, step)

    def wait(self) -> None:
        """Until the last `save` is durable. Its error, if it failed, is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def load(self, state: dict[str, Any]) -> int | None:
        """Fill a state dict from the newest checkpoint, sharded as it is now; the step, or None."""
        newest: list[Path | None] = [self._tm.latest() if self._tm.is_rank_zero else None]
        dist.broadcast_object_list(newest, src=0, group=self._group)
        folder = newest[0]
        if folder is None:
            return None
        load(state, checkpoint_id=str(folder), process_group=self._group)
        return int(folder.name.rpartition("-")[2])

    def _commit(self, written: Future[Any], beside: Path, step: int) -> None:
        written.result()
        if self._tm.is_rank_zero:
            self._tm.checkpoints.commit(beside, step)
        self._tm.saved(step)
