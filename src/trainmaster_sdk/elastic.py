"""PyTorch programs that are resized while they train: the ranks that stay keep their processes.

    with trainmaster_sdk.run() as tm, gang(tm) as device:
        net, optimiser = ...
        batches = ElasticBatches(tm, len(data), samples=STEPS * 48, global_batch=48)
        loader = DataLoader(data, batch_sampler=batches, num_workers=2, persistent_workers=True)
        training = elastic(tm, net, optimiser, batches=batches, wrap=DistributedDataParallel)
        if found := tm.load():
            training.load(found.state)
        for step, (inputs, wanted) in training.batches(loader):
            loss = global_mean(tm, criterion(training.model(inputs), wanted), batches.global_batch)
            ...
            tm.progress(step=step, loss=loss, total_steps=batches.steps)
            if tm.should_stop():
                tm.save(training.state(), step)
                break

Ranks agree in `should_stop`. Between that step and the next all leave the process group; those that stay and
those that have come meanwhile form a new one, and the one that has the newest state hands it to the others.
Samples are counted over all ranks, so that none is seen twice or left out in an epoch, whatever the size of
the gang.
"""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.utils.data import Sampler

from trainmaster_sdk.resize_requests import CalledOff, ResizeRequest, ResizeTimes
from trainmaster_sdk.session import Session
from trainmaster_sdk.torch import UnequalShares, join_at, leave_group, samples_from

T = TypeVar("T")
LOOK_S = 0.01
STORE_S = 30.0
"""How long one question to the store may take: its rank answers at once or is gone."""
HERE, DECISION = "here", "decision"
GO, CALLED_OFF = "go", "called off"
GROUP_RATES = ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr")
"""What optimizers and schedulers keep of the learning rate in a group of parameters."""
SCHEDULER_RATES = ("base_lrs", "max_lrs", "min_lrs", "eta_min", "_last_lr")
"""What torch's schedulers keep of it themselves."""


class ElasticBatches(Sampler[list[int]]):
    """This rank's part of each global batch, for any number of ranks: a `batch_sampler` for a DataLoader.

    `samples` are to be seen in all, from an endless row of shuffled epochs of `size`. With `global_batch`
    that many are in each step, however many ranks there are, which can be no more than it has samples;
    with `rank_batch` each rank has that many.
    With `shares` (`trainmaster_sdk.balanced`) ranks have unequal parts of the same global batches.
    """

    def __init__(
        self,
        tm: Session,
        size: int,
        samples: int,
        *,
        global_batch: int | None = None,
        rank_batch: int | None = None,
        seed: int = 0,
        shares: UnequalShares | None = None,
    ) -> None:
        if (global_batch is None) == (rank_batch is None):
            raise ValueError("Give ElasticBatches either a global_batch or a rank_batch.")
        if global_batch is not None:
            tm.limit_ranks(global_batch)
        self._tm = tm
        self._size = size
        self._samples = samples
        self._per_rank = rank_batch
        self._unit = global_batch or rank_batch or 1
        self._seed = seed
        self._shares = shares
        self.position = 0
        """Samples that all ranks together have seen."""

    @property
    def global_batch(self) -> int:
        """Samples of a step, with as many ranks as there are now."""
        return self._unit if self._per_rank is None else self._per_rank * self._tm.world_size

    @property
    def steps(self) -> int:
        """How many there are in all. With `rank_batch` a step is one rank's: two ranks make two at once."""
        return -(-self._samples // self._unit)

    def step_at(self, position: int) -> int:
        """How many steps so many samples are."""
        return -(-position // self._unit)

    def size_at(self, position: int) -> int:
        """Samples of the step that begins there; 0 at the end.

        The last step takes those with it that would not be one for each rank; where there are no more
        before it, as after a resize, they are left out.
        """
        left, ranks = self._samples - position, self._tm.world_size
        if left < ranks:
            return 0
        return left if left - self.global_batch < ranks else self.global_batch

    def skip_rest(self) -> bool:
        """What is left out at the end counts as seen. Whether there was anything."""
        is_left = self.position < self._samples and not self.size_at(self.position)
        if is_left:
            self.position = self._samples
        return is_left

    def __len__(self) -> int:
        left, ranks = self._samples - self.position, self._tm.world_size
        if left < ranks:
            return 0
        whole, rest = divmod(left, self.global_batch)
        return max(1, whole + (rest >= ranks))

    def __iter__(self) -> Iterator[list[int]]:
        position = self.position
        if self._shares is not None:
            self._shares.restart()
        while count := self.size_at(position):
            chosen = samples_from(position, count, self._size, self._seed)
            yield chosen[self._part_at(position, count)]
            position += count

    def _part_at(self, position: int, count: int) -> slice:
        return (
            self._tm.batch_part(count)
            if self._shares is None
            else self._shares.part_at(position, count)
        )


class StepGuard:
    """Around one step: where an exchange fails because a rank was lost, the others go on with the next."""

    def __init__(self, tm: Session) -> None:
        self._tm = tm

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        if kind is None or not issubclass(kind, RuntimeError):
            return False
        return self._tm.regroup_after_loss()


class ElasticTraining:
    """A model with its optimizer and all else that a new rank must be given; made by `elastic`."""

    def __init__(
        self,
        tm: Session,
        module: torch.nn.Module,
        others: tuple[Any, ...],
        batches: ElasticBatches,
        wrap: Callable[[torch.nn.Module], torch.nn.Module],
        *,
        scale_lr: bool,
    ) -> None:
        self._tm = tm
        self._module = module
        self._others = others
        self._batches = batches
        self._wrap = wrap
        self._scale_lr = scale_lr
        self._lr_ranks = 1
        """The number of ranks that the learning rate is for."""
        self._pending = 0
        """Samples of the step that is being trained."""
        self._has_stepped = False
        """Whether an optimizer has stepped with them."""
        self._resizes = 0
        self._model: torch.nn.Module | None = None
        for each in others:
            if isinstance(each, torch.optim.Optimizer):
                each.register_step_post_hook(self._note_step)

    @property
    def model(self) -> torch.nn.Module:
        """The model as it is wrapped for the present ranks: another object after a resize."""
        assert self._model is not None
        return self._model

    # -- the loop ------------------------------------------------------------------------------------

    def batches(self, loader: Iterable[T]) -> Iterator[tuple[int, T]]:
        """Each batch with the number of steps that are done once it is trained.

        Between two of them it is resized. Then the same loader goes on with this rank's new part; workers
        that are persistent stay. Where that fails it saves `state()` and leaves, to be started again.
        """
        batches = self._batches
        while True:
            seen = self._resizes
            for batch in loader:
                self._pending = batches.size_at(batches.position)
                yield batches.step_at(batches.position + self._pending), batch
                self._end_step()
                if not self._tm.resize_if_due():
                    self._tm.save(self.state(), batches.step_at(batches.position))
                    raise SystemExit(0)
                if self._resizes != seen:
                    break
            else:
                if (
                    batches.skip_rest()
                ):  # the program has not seen a last step, at which it would save
                    self._tm.save(self.state(), batches.steps)
                return

    def step(self) -> StepGuard:
        """`with training.step():` around all of a step, where the others are to go on if a rank is lost."""
        return StepGuard(self._tm)

    def state(self) -> dict[str, Any]:
        """All that a checkpoint needs, after a step."""
        self._end_step()
        return {
            "module": self._module.state_dict(),
            "others": [each.state_dict() for each in self._others],
            "position": self._batches.position,
            "lr_ranks": self._lr_ranks,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._module.load_state_dict(state["module"])
        self._take(state)

    def _take(self, state: dict[str, Any]) -> None:
        for each, said in zip(self._others, state["others"], strict=True):
            each.load_state_dict(said)
        self._batches.position, self._lr_ranks = state["position"], state["lr_ranks"]
        self._fit_lr()

    def _end_step(self) -> None:
        self._batches.position += self._pending
        self._pending, self._has_stepped = 0, False

    def _note_step(self, optimizer: object, args: object, kwargs: object) -> None:
        self._has_stepped = True

    def _fit_lr(self) -> None:
        """The learning rate in proportion to the ranks (Goyal et al. 2017, section 2.1), where asked for."""
        ranks, before = self._tm.world_size, self._lr_ranks
        if not self._scale_lr or ranks == before:
            return
        self._lr_ranks = ranks
        for each in _with_nested(self._others):
            for group in getattr(each, "param_groups", ()):
                _scale(group, GROUP_RATES, ranks / before)
            if isinstance(each, torch.optim.lr_scheduler.LRScheduler):
                _scale(vars(each), SCHEDULER_RATES, ranks / before)

    # -- resizing ------------------------------------------------------------------------------------

    def start(self) -> None:
        """The gang is formed: wrap the model."""
        self._fit_lr()
        self._model = self._wrap(self._module)

    def join(self) -> None:
        """Of a rank that was started to join others: wait for them, and get their state."""
        tm, self._model = self._tm, None
        tm.ready()
        place = place_in_environment(tm)
        try:
            times = self._regroup(place, tm.is_called_off, has_state=False)
        except CalledOff:
            tm.end_unjoined()
        tm.joined(times)

    def end_failed_step(self) -> None:
        """Its samples count as seen where the optimizer has stepped with them; its gradients are gone."""
        if not self._has_stepped:
            self._pending = 0
        self._module.zero_grad(set_to_none=True)
        self._end_step()

    def leave(self) -> None:
        self._unwrap()
        leave_group()

    def resize(self, request: ResizeRequest, is_called_off: Callable[[], bool]) -> ResizeTimes:
        self._end_step()
        self._resizes += 1
        return self._regroup(request, is_called_off, has_state=True)

    def _regroup(
        self, place: ResizeRequest, is_called_off: Callable[[], bool], *, has_state: bool
    ) -> ResizeTimes:
        began = time.monotonic()
        self._unwrap()
        leave_group()
        join_at(meet(place, is_called_off), place.rank or 0, place.world)
        self._tm.take_place(place.rank or 0, place.world, place.local_rank)
        tell_environment(place)
        met = time.monotonic()
        if place.world > 1:
            self._hand_on(has_state=has_state)
        self._fit_lr()
        self._model = self._wrap(self._module)
        ended = time.monotonic()
        return ResizeTimes(round((met - began) * 1000), round((ended - met) * 1000))

    def _unwrap(self) -> None:
        """DDP has its hooks in the model until the last reference to it is gone."""
        if self._model is not None:
            self._model = None
            gc.collect()

    def _hand_on(self, *, has_state: bool) -> None:
        """From the rank that is farthest; to none where all are as far."""
        own = self._batches.position if has_state else -1
        found: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(found, own)
        farthest = max(found)
        if min(found) == farthest:
            return
        source = found.index(farthest)
        is_source = dist.get_rank() == source
        for tensor in self._module.state_dict().values():
            if isinstance(tensor, torch.Tensor):
                _broadcast(tensor, source)
        self._take(_broadcast_state(self.state() if is_source else None, source))


def elastic(
    tm: Session,
    module: torch.nn.Module,
    *others: Any,
    batches: ElasticBatches,
    wrap: Callable[[torch.nn.Module], torch.nn.Module] = lambda module: module,
    scale_lr: bool = False,
    may_lose: int = 0,
    warm_up: Callable[[], object] | None = None,
) -> ElasticTraining:
    """Let Trainmaster resize this program while it trains; all ranks call it once, before the first step.

    `others` are the optimizer, schedulers and whatever else has `state_dict` and `load_state_dict`; every
    rank has all of it alike. `wrap` makes DDP of the module. `scale_lr`: the learning rate is one rank's, and
    is multiplied by their number. `may_lose`: how many ranks may be lost while the others go on. `warm_up`
    is called in a rank that joins, while the others still train: compile there.
    """
    training = ElasticTraining(tm, module, others, batches, wrap, scale_lr=scale_lr)
    tm.can_resize(training, may_lose)
    if tm.joins:
        if warm_up is not None:
            warm_up()
        training.join()
    else:
        training.start()
    return training


# ------------------------------------------------------------------------------ learning rates


def _with_nested(others: Iterable[Any]) -> list[Any]:
    """Each once, with the schedulers that schedulers are made of."""
    found: dict[int, Any] = {}
    for each in others:
        for one in (each, *_with_nested(getattr(each, "_schedulers", ()))):
            found[id(one)] = one
    return [*found.values()]


def _scale(values: dict[str, Any], names: tuple[str, ...], factor: float) -> None:
    """Multiply those learning rates that are there."""
    for name in names:
        rate = values.get(name)
        if isinstance(rate, list):
            values[name] = [each * factor for each in rate]
        elif rate is not None:
            values[name] = rate * factor


# ------------------------------------------------------------------------------------ meeting


def meet(place: ResizeRequest, is_called_off: Callable[[], bool]) -> Store:
    """A store that all ranks of the new gang have come to; CalledOff where they do not.

    The first rank has it. All go on or none does: what is written first decides, that all are there or that
    somebody gave up.
    """
    store = _opened(place, is_called_off)
    store.add(HERE, 1)
    while not store.check([DECISION]):
        if place.rank == 0 and store.add(HERE, 0) == place.world:
            store.compare_set(DECISION, "", GO)
        elif is_called_off():
            store.compare_set(DECISION, "", CALLED_OFF)
        else:
            time.sleep(LOOK_S)
    if bytes(store.get(DECISION)).decode() != GO:
        raise CalledOff("The ranks did not regroup.")
    return store


def _opened(place: ResizeRequest, is_called_off: Callable[[], bool]) -> Store:
    """The store, once its rank listens: torch would complain of each try before."""
    patience = timedelta(seconds=STORE_S)
    if place.rank == 0:
        return TCPStore(
            place.host, place.port, is_master=True, wait_for_workers=False, timeout=patience
        )
    while True:
        with suppress(OSError):
            socket.create_connection((place.host, place.port), STORE_S).close()
            return TCPStore(place.host, place.port, is_master=False, timeout=patience)
        if is_called_off():
            raise CalledOff("The first rank did not come.")
        time.sleep(LOOK_S)


def place_in_environment(tm: Session) -> ResizeRequest:
    """Of a rank that joins: what it was started with."""
    environ = os.environ
    return ResizeRequest(
        0,
        tm.rank,
        tm.world_size,
        tm.local_rank,
        int(environ.get("LOCAL_WORLD_SIZE", tm.world_size)),
        environ["MASTER_ADDR"],
        int(environ["MASTER_PORT"]),
    )


def tell_environment(place: ResizeRequest) -> None:
    """For libraries that look there."""
    os.environ |= {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world),
        "MASTER_ADDR": place.host,
        "MASTER_PORT": str(place.port),
    }


# ----------------------------------------------------------------------------- handing state on


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor was in a state: the tensors themselves are sent one by one."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def _broadcast_state(state: dict[str, Any] | None, source: int) -> dict[str, Any]:
    """What the source has, on all ranks. The module's own tensors are sent apart."""
    tensors: list[torch.Tensor] = []
    said: list[Any] = [None]
    if state is not None:
        said = [_without_tensors(state | {"module": None}, tensors)]
    dist.broadcast_object_list(said, src=source)
    if state is None:
        places: list[_Place] = []
        _find_places(said[0], places)
        tensors = [
            torch.empty(place.shape, dtype=place.dtype, device=_device(place.device))
            for place in sorted(places, key=lambda place: place.number)
        ]
    for tensor in tensors:
        _broadcast(tensor, source)
    found: dict[str, Any] = state if state is not None else _with_tensors(said[0], tensors)
    return found


def _broadcast(tensor: torch.Tensor, source: int) -> None:
    with torch.no_grad():
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=source)
        if whole.data_ptr() != tensor.data_ptr() and dist.get_rank() != source:
            tensor.detach().copy_(whole)


def _device(kind: str) -> torch.device:
    """This rank's own of that kind."""
    return (
        torch.device("cuda", torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)
    )


def _mapped(state: Any, change: Callable[[Any], Any]) -> Any:
    """The same mappings and lists, with every other value changed."""
    if isinstance(state, dict):
        return {name: _mapped(value, change) for name, value in state.items()}
    if isinstance(state, list):
        return [_mapped(value, change) for value in state]
    if type(state) is tuple:
        return tuple(_mapped(value, change) for value in state)
    return change(state)


def _without_tensors(state: Any, tensors: list[torch.Tensor]) -> Any:
    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        return _Place(len(tensors) - 1, tuple(value.shape), value.dtype, value.device.type)

    return _mapped(state, place)


def _find_places(state: Any, places: list[_Place]) -> None:
    _mapped(state, lambda value: places.append(value) if isinstance(value, _Place) else None)


def _with_tensors(state: Any, tensors: list[torch.Tensor]) -> Any:
    return _mapped(
        state, lambda value: tensors[value.number] if isinstance(value, _Place) else value
    )
