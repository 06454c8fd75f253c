"""Moves a program's training state off its GPUs into pinned host memory, and back into the same tensors.

Storages are moved, not tensors: views, tied weights and flattened gradients stay what they are. What has a
fixed address (CUDA graphs) cannot be moved. Only what is registered is moved; activations are gone at the
end of an iteration.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trainmaster_sdk.session import Session
from trainmaster_sdk.wire import Message

BLOCK = 256 << 20
"""Bytes of one pinned block. torch rounds each up to a power of two, and so is this one."""
SMALLEST_BLOCK = 1 << 20
ALIGNMENT = 256
CONTEXT_BYTES = 512 << 20
"""What a CUDA context keeps on its GPU, about, whatever torch gives back: 500 MiB on an H200.

The supervisor uses the driver's own count instead where the driver lists the process."""
RETRY_S = 0.5
RETRIES = 120
"""A GPU that is still full when the state is to come back is tried again for a minute."""
DEPTH = 6
"""How deep tensors are looked for in objects of the program."""

Pair = tuple[torch.Tensor, torch.Tensor]


def can_release(tm: Session, *state: Any) -> None:
    """For the callbacks of libraries; programs use the one of `trainmaster_sdk.torch`."""
    releaser = releaser_of(state)
    if releaser is not None:
        tm.can_release(releaser)


def releaser_of(state: Iterable[Any], memory: DeviceMemory | None = None) -> Offloader | None:
    """What moves this state; None without a GPU."""
    if memory is None and not torch.cuda.is_available():
        return None
    return Offloader(state, memory)


class DeviceMemory(Protocol):
    """The memory that is to be freed: a GPU's. Tests play it with tensors of the CPU."""

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether this tensor lies in it."""

    def host_block(self, size: int) -> torch.Tensor:
        """So many bytes of host memory that can be copied fast."""

    def copy(self, pairs: Iterable[Pair]) -> None:
        """Each second into its first; all are done on return."""

    def give_back(self) -> int:
        """Hand freed memory back to the driver; about how many bytes this process still holds."""


class CudaMemory:
    """The GPUs of this process, through torch."""

    def has(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def host_block(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def copy(self, pairs: Iterable[Pair]) -> None:
        by_device: dict[torch.device, list[Pair]] = {}
        for to, of in pairs:
            by_device.setdefault(to.device if to.is_cuda else of.device, []).append((to, of))
        streams = []
        for device, copies in by_device.items():
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for to, of in copies:
                    to.copy_(of, non_blocking=True)
            streams.append(stream)
        for stream in streams:
            stream.synchronize()

    def give_back(self) -> int:
        torch.cuda.empty_cache()
        held = [torch.cuda.memory_reserved(number) for number in range(torch.cuda.device_count())]
        return sum(held) + CONTEXT_BYTES * max(1, sum(map(bool, held)))


@dataclass(frozen=True, slots=True)
class _Moved:
    """One storage whose content lies in the pool."""

    storage: torch.UntypedStorage
    size: int
    pieces: tuple[torch.Tensor, ...]

    def pairs(self) -> Iterator[Pair]:
        """Its parts on the device, and where they lie in the pool."""
        whole = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        whole.set_(self.storage)
        begin = 0
        for piece in self.pieces:
            yield whole[begin : begin + piece.numel()], piece
            begin += piece.numel()


class HostPool:
    """Blocks of host memory that are made once and kept."""

    def __init__(self, make: Callable[[int], torch.Tensor]) -> None:
        self._make = make
        self._blocks: list[torch.Tensor] = []
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return sum(block.numel() for block in self._blocks)

    def grow(self, size: int) -> None:
        """Make it at least this large."""
        with self._lock:
            while (missing := size - self.size) > 0:
                rounded = max(SMALLEST_BLOCK, 1 << (missing - 1).bit_length())
                self._blocks.append(self._make(min(BLOCK, rounded)))

    def cut(self, sizes: Iterable[int]) -> Iterator[tuple[torch.Tensor, ...]]:
        """Room for each of these, one after another, split where a block ends."""
        blocks = iter(self._blocks)
        block, used = torch.empty(0, dtype=torch.uint8), 0
        for size in sizes:
            pieces = []
            while size > 0:
                if used >= block.numel():
                    block, used = next(blocks), 0
                part = min(size, block.numel() - used)
                pieces.append(block[used : used + part])
                used, size = used + part, size - part
            used = -(-used // ALIGNMENT) * ALIGNMENT
            yield tuple(pieces)


class Offloader:
    """The state of one program: moved out when it is told to, and back again."""

    def __init__(self, things: Iterable[Any], memory: DeviceMemory | None = None) -> None:
        self._things = tuple(things)
        self._memory = CudaMemory() if memory is None else memory
        self._pool = HostPool(self._memory.host_block)
        self._moved: list[_Moved] = []

    def prepare(self) -> None:
        """Make the pool beside the training: pinning memory takes about 0.4 s for each GiB."""
        size = _room(self._storages().values())
        threading.Thread(
            target=self._pool.grow, args=(size,), name="trainmaster-pool", daemon=True
        ).start()

    def release(self) -> Message:
        """Move everything out. What it says is for the supervisor."""
        begin = time.monotonic()
        storages = [*self._storages().values()]
        self._pool.grow(_room(storages))
        sizes = [storage.nbytes() for storage in storages]
        moved = [
            _Moved(storage, size, pieces)
            for storage, size, pieces in zip(storages, sizes, self._pool.cut(sizes), strict=True)
        ]
        self._memory.copy((piece, part) for each in moved for part, piece in each.pairs())
        self._moved = moved
        for storage in storages:
            storage.resize_(0)
        left = self._memory.give_back()
        return {
            "bytes": sum(sizes),
            "left": left,
            "host_bytes": self._pool.size,
            "took_ms": _since(begin),
        }

    def take_back(self) -> Message:
        """Move everything back into the same tensors; where a release failed, what it had moved."""
        begin = time.monotonic()
        moved = self._moved
        for each in moved:
            _allocate(each)
        self._memory.copy(pair for each in moved for pair in each.pairs())
        self._moved = []
        return {"bytes": sum(each.size for each in moved), "took_ms": _since(begin)}

    def _storages(self) -> dict[int, torch.UntypedStorage]:
        """Each storage once, however many tensors share it."""
        found: dict[int, torch.UntypedStorage] = {}
        things = [each() if inspect.isroutine(each) else each for each in self._things]
        for tensor in tensors_in(things):
            if self._memory.has(tensor):
                storage = tensor.untyped_storage()
                if storage.nbytes() > 0:
                    found[storage.data_ptr()] = storage
        return found


def tensors_in(thing: Any) -> Iterator[torch.Tensor]:
    """All tensors of modules, optimizers, scalers, containers and objects, with their gradients."""
    seen: set[int] = set()
    yield from _tensors_in(thing, seen, DEPTH)


def _tensors_in(thing: Any, seen: set[int], depth: int) -> Iterator[torch.Tensor]:
    if depth < 0 or id(thing) in seen or isinstance(thing, str | bytes | int | float):
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        # A sharded tensor is a wrapper around this rank's part.
        yield getattr(thing, "_local_tensor", thing)
        if thing.is_leaf and thing.grad is not None:
            yield from _tensors_in(thing.grad, seen, depth)
        return
    for part in _parts_of(thing):
        yield from _tensors_in(part, seen, depth - 1)


def _parts_of(thing: Any) -> Iterable[Any]:
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    if isinstance(thing, Mapping):
        return [*thing.values()]
    if isinstance(thing, list | tuple | set | frozenset):
        return [*thing]
    if hasattr(thing, "state") and hasattr(thing, "param_groups"):  # an optimizer, or one wrapped
        return [thing.state, thing.param_groups]
    return [*getattr(thing, "__dict__", {}).values()]


def _room(storages: Iterable[torch.UntypedStorage]) -> int:
    return sum(-(-storage.nbytes() // ALIGNMENT) * ALIGNMENT for storage in storages)


def _allocate(each: _Moved) -> None:
    """Allocate its memory again; the program that used it meanwhile may still be leaving."""
    if each.storage.nbytes() == each.size:  # it was not released
        return
    for attempt in range(RETRIES):
        try:
            each.storage.resize_(each.size)
            return
        except torch.cuda.OutOfMemoryError:
            if attempt == RETRIES - 1:
                raise
            time.sleep(RETRY_S)


def _since(begin: float) -> int:
    return round((time.monotonic() - begin) * 1000)
