"""What PyTorch programs need on top: a gang that starts itself, data by step, sharded checkpoints.

Imported only by programs that use torch. Restart rules: the data and the random numbers of a step depend
only on the seed and the step. With the same number of ranks a restarted program continues exactly; with
another number it sees the same global batches, split differently and summed in another order.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.rendezvous import rendezvous
from torch.utils.data import Sampler

from trainmaster_sdk import stop_requests
from trainmaster_sdk.offload import DeviceMemory, releaser_of
from trainmaster_sdk.session import Session
from trainmaster_sdk.suspension import Releaser
from trainmaster_sdk.wire import Message

__all__ = [
    "ShardedCheckpoints",
    "StepBatches",
    "any_rank",
    "batch_of",
    "can_release",
    "gang",
    "global_mean",
    "leave_group",
    "outlive_stop",
    "seed_step",
]
_asking: list[Any] = [None, None]
"""The world, and the group in it that flags are exchanged on: by CPU, without waiting for a GPU."""


_joined: list[Store] = []
"""The store by which ranks find each other, and one in it for each time that they joined."""


def any_rank(flags: Sequence[bool]) -> list[bool]:
    """For each flag: whether any rank has raised it. All ranks of the gang must call it."""
    return [bool(flag) for flag in greatest([int(flag) for flag in flags])]


def greatest(numbers: Sequence[int]) -> list[int]:
    """For each number: the greatest that any rank says. All ranks of the gang must call it."""
    if _asking[0] is not dist.group.WORLD:
        _asking[:] = dist.group.WORLD, dist.new_group(backend="gloo")
    said = torch.tensor(numbers, dtype=torch.int64)
    dist.all_reduce(said, op=dist.ReduceOp.MAX, group=_asking[1])
    found: list[int] = said.tolist()
    return found


@contextlib.contextmanager
def gang(tm: Session) -> Iterator[torch.device]:
    """Join torch.distributed as the environment says, and leave it again. Gives this rank's device.

    NCCL where there are GPUs, with gloo beside it for what lives on CPUs; else gloo. Without an
    environment it is a gang of one. A rank that joins others while they train does so in
    `trainmaster_sdk.elastic.elastic`: not before it has built all that it needs.
    """
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", tm.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if not tm.joins:
        _join(tm)
    yield device
    # Not in `finally`: where a rank has failed, leaving the group would wait for the others.
    leave_group()


def _join(tm: Session) -> None:
    """Each time under a new name in the same store: what an earlier group left there is not for this one."""
    backend = backend_here()
    rank, size = tm.rank, tm.world_size
    if not _joined:
        if "MASTER_ADDR" in os.environ:
            _joined.append(next(rendezvous("env://", rank, size))[0])
        else:
            _joined.append(HashStore())
    _joined.append(PrefixStore(f"join-{len(_joined)}", _joined[0]))
    if "MASTER_ADDR" not in os.environ:
        rank, size = 0, 1
    dist.init_process_group(backend, store=_joined[-1], rank=rank, world_size=size)


def backend_here() -> str:
    """NCCL where there are GPUs, with gloo beside it for what lives on CPUs; else gloo."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def join_at(store: Store, rank: int, size: int) -> None:
    """Join torch.distributed by a new store, as all others do that are to be in the gang."""
    _joined[:] = [store, PrefixStore("join-1", store)]
    dist.init_process_group(backend_here(), store=_joined[-1], rank=rank, world_size=size)


def leave_group() -> None:
    """Leave torch.distributed, if it was joined: NCCL gives back its memory and connections."""
    _asking[:] = None, None
    if dist.is_initialized():
        dist.destroy_process_group()


def leave_store() -> None:
    """The next group meets where the environment says then."""
    _joined.clear()


# -------------------------------------------------------------------------------- suspension


def can_release(
    tm: Session,
    *state: Any,
    regroup: Callable[[], None] | None = None,
    memory: DeviceMemory | None = None,
) -> None:
    """Let Trainmaster suspend this program by moving its state to host memory.

    `state` is all that stays on the GPU between two steps: modules, optimizers, gradient scalers, averaged
    weights, tensors, or functions that return such. It is moved in `tm.should_stop()`, which all ranks must
    call after each step. With `regroup` the process group is left first and joined again afterwards, and
    then this is called, to wrap the model in DDP again. Does nothing without a GPU.
    """
    releaser = releaser_of(state, memory)
    if releaser is not None:
        tm.can_release(releaser if regroup is None else _Regrouping(tm, releaser, regroup))


class _Regrouping:
    """Releases the process group, too."""

    def __init__(self, tm: Session, inner: Releaser, regroup: Callable[[], None]) -> None:
        self._tm = tm
        self._inner = inner
        self._regroup = regroup

    def prepare(self) -> None:
        self._inner.prepare()

    def release(self) -> Message:
        leave_group()
        return self._inner.release()

    def take_back(self) -> Message:
        _join(self._tm)
        said = self._inner.take_back()
        self._regroup()
        return said


# ----------------------------------------------------------------------------- data and chance


def batch_of(step: int, size: int, global_batch: int, seed: int = 0) -> list[int]:
    """Which of `size` samples the global batch of a step is made of.

    An endless row of shuffled epochs is cut into batches: a sample comes once in each epoch.
    """
    return samples_from(step * global_batch, global_batch, size, seed)


def samples_from(first: int, count: int, size: int, seed: int = 0) -> list[int]:
    """So many of `size` samples, from a place on in the endless row of shuffled epochs."""
    chosen: list[int] = []
    while len(chosen) < count:
        epoch, offset = divmod(first + len(chosen), size)
        chosen += _order(size, epoch, seed)[offset : offset + count - len(chosen)].tolist()
    return chosen


@lru_cache(maxsize=2)
def _order(size: int, epoch: int, seed: int) -> torch.Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(_chance(seed, epoch)))


def _chance(*numbers: int) -> int:
    """A seed made of several numbers. torch's generator on CPUs takes its lower 32 bits only."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=4).digest(), "big")


class UnequalShares(Protocol):
    """How global batches are divided between ranks that get unequal parts: see `trainmaster_sdk.balanced`."""

    def restart(self) -> None:
        """Batches are drawn anew, by all ranks."""
        ...

    def part_at(self, begin: int, total: int) -> slice:
        """This rank's part of the global batch that begins with that sample; asked once for each batch."""
        ...


class StepBatches(Sampler[list[int]]):
    """This rank's part of each global batch from a step on: a `batch_sampler` for a DataLoader.

    Parts are equal, but for one sample, unless there are `shares`.
    """

    def __init__(
        self,
        tm: Session,
        size: int,
        global_batch: int,
        first_step: int,
        steps: int,
        seed: int = 0,
        shares: UnequalShares | None = None,
    ) -> None:
        self._size = size
        self._global_batch = global_batch
        self._steps = range(first_step, steps)
        self._seed = seed
        self._part = tm.batch_part(global_batch)
        self._shares = shares

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[int]]:
        if self._shares is not None:
            self._shares.restart()
        for step in self._steps:
            yield batch_of(step, self._size, self._global_batch, self._seed)[self._part_of(step)]

    def _part_of(self, step: int) -> slice:
        if self._shares is None:
            return self._part
        return self._shares.part_at(step * self._global_batch, self._global_batch)


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
        self._groups: list[Any] = [None, None]
        """The world, and the group in it of checkpoints."""
        self._join()
        tm.background_saves.append(self.wait)
        self._committer = ThreadPoolExecutor(1, "trainmaster-checkpoint")
        self._pending: Future[None] | None = None

    def _join(self) -> Any:
        """Its own group: it works in the background, while training exchanges on another."""
        if self._groups[0] is not dist.group.WORLD:
            self._groups = [dist.group.WORLD, dist.new_group(backend="gloo")]
        return self._groups[1]

    def save(self, state: dict[str, Any], step: int) -> None:
        """Begin to save a state dict: its copy is taken when this returns, and training may go on."""
        self.wait()
        group = self._join()
        beside = self._tm.checkpoints.beside(step)
        if self._tm.is_rank_zero:
            self._tm.checkpoints.begin(step)
        dist.barrier(group)
        written = async_save(state, checkpoint_id=str(beside), process_group=group)
        assert isinstance(written, Future)
        self._pending = self._committer.submit(self._commit, written, beside, step)

    def wait(self) -> None:
        """Until the last `save` is durable. Its error, if it failed, is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def load(self, state: dict[str, Any]) -> int | None:
        """Fill a state dict from the newest checkpoint, sharded as it is now; the step, or None."""
        group = self._join()
        newest: list[Path | None] = [self._tm.latest() if self._tm.is_rank_zero else None]
        dist.broadcast_object_list(newest, src=0, group=group)
        folder = newest[0]
        if folder is None:
            return None
        load(state, checkpoint_id=str(folder), process_group=group)
        return int(folder.name.rpartition("-")[2])

    def _commit(self, written: Future[Any], beside: Path, step: int) -> None:
        with self._tm.saving(step):
            written.result()
            if self._tm.is_rank_zero:
                self._tm.checkpoints.commit(beside, step)
            self._tm.saved(step)
