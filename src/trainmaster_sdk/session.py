"""A program's session, under Trainmaster or on its own: progress, stopping together, checkpoints."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, SupportsFloat

from trainmaster_sdk import step_counter
from trainmaster_sdk.checkpoints import Checkpoints, Loaded, make_durable
from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.environment import JobEnvironment, local_folder
from trainmaster_sdk.pacing import Pacer
from trainmaster_sdk.rank_consensus import RankConsensus, is_gang_initialised
from trainmaster_sdk.resize_requests import Resizer, ResizeRequest, ResizeTimes, Resizing
from trainmaster_sdk.stop_requests import StopRequests
from trainmaster_sdk.suspension import Releaser, Suspension
from trainmaster_sdk.wire import Message

REPORT_S = 0.1
"""Progress is sent at most this often, however short a step is."""
CLOSE_S = 2.0
"""Seconds that sending the last messages may take."""
NO_RANK = 1 << 30
"""Beyond every rank."""


def run(checkpoint_dir: str | os.PathLike[str] | None = None, keep: int = 3) -> Session:
    """Open a session: `with trainmaster_sdk.run() as tm:`.

    Checkpoints are kept where Trainmaster says; on its own in `checkpoint_dir`, or else in
    checkpoints/<name of the program>. The newest `keep` of them stay.
    """
    return Session(JobEnvironment.of(os.environ), checkpoint_dir, keep)


class Session:
    """A program's connection to Trainmaster. No method fails because of it, or waits for an answer.

    `progress` waits where an opportunistic job is held back, `should_stop` where it is suspended.
    """

    def __init__(
        self, place: JobEnvironment, checkpoint_dir: str | os.PathLike[str] | None, keep: int
    ) -> None:
        own = Path(checkpoint_dir).absolute() if checkpoint_dir is not None else local_folder()
        self.checkpoint_dir = place.checkpoint_dir or own
        """A folder that all ranks and all attempts of this job see."""
        self.rank = place.rank
        self.world_size = place.world_size
        self.local_rank = place.local_rank
        self.job = place.job
        """Its id; None outside Trainmaster."""
        self.attempt = place.attempt
        self.restart_count = place.restart_count
        self.array_index = place.array_index
        self.array_size = place.array_size
        self.end_time = place.end_time
        """When it must have ended, in seconds since 1970; None without a limit."""
        self.checkpoints = Checkpoints(self.checkpoint_dir, keep)
        step_counter.stop()
        self._place = place
        self._requests = StopRequests()
        hello: Message = {"say": "hello", "rank": place.rank, "pid": os.getpid()}
        if place.process != place.rank:
            hello["process"] = place.process
        self._client = ControlClient(place.socket, hello)
        self._resizing = Resizing(self._client)
        self._most_ranks: int | None = None
        """What was said of how many ranks it can use."""
        self._is_removed = False
        """Whether the gang goes on without this rank."""
        self._agreed: ResizeRequest | None = None
        """What all ranks have agreed to do before their next step."""
        self._is_writer = False
        """Whether this rank saves if that fails."""
        self.joins = place.joins > 0
        """Whether it was started to join others that train: they hand the state to it."""
        self.background_saves: list[Callable[[], None]] = []
        """Each waits until nothing of it is being written: before the ranks regroup."""
        self._suspension = Suspension(self._client)
        self._pacer = Pacer(self._client)
        self._heard_at = -math.inf
        self._step: int | None = None
        self._total_steps: int | None = None
        self._saved_step: int | None = None
        self._reported_at = -math.inf
        self._reported_step: int | None = None
        self._steps_per_s: float | None = None
        self._has_stopped = False
        self._heeds_stops = False
        """Whether it has been said that this program looks for stop requests."""
        self._is_finished = False

    @property
    def is_rank_zero(self) -> bool:
        """Rank 0, which writes for all."""
        return self.rank == 0

    @property
    def is_restart(self) -> bool:
        """Whether the job has run before, so that there may be a checkpoint to go on from."""
        return self.restart_count > 0

    @property
    def stop_why(self) -> str | None:
        """Why the program is to stop, if that is known: suspend, resize or cancel."""
        return self._requests.why

    def per_rank_batch(self, global_batch: int) -> int:
        """This rank's share of a global batch; the shares sum up to it for any number of ranks."""
        part = self.batch_part(global_batch)
        return int(part.stop - part.start)

    def batch_part(self, global_batch: int) -> slice:
        """This rank's slice of a global batch; the ranks' slices follow one another."""
        share, left = divmod(global_batch, self.world_size)
        begin = self.rank * share + min(self.rank, left)
        return slice(begin, begin + share + (self.rank < left))

    def limit_ranks(self, most: int) -> None:
        """With more ranks than this some would have no samples, so that the job is given no more devices.

        All ranks say so; where there are more of them now, each fails.
        """
        if most != self._most_ranks and self.is_rank_zero:
            said: Message = {"say": "most ranks", "count": most, "world": self.world_size}
            self._client.say(said)
        self._most_ranks = most
        if self.world_size > most:
            raise ValueError(
                f"A global batch of {most} has no samples for some of {self.world_size} ranks: make it "
                f"larger, or ask for at most {most} ranks."
            )

    # ------------------------------------------------------------------------------- the block

    def __enter__(self) -> Session:
        with contextlib.suppress(OSError):  # saving will report it
            self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        if self.is_rank_zero and not self.joins:  # the others may be writing one now
            self.checkpoints.clear_away()
        self._form_consensus(is_first=not self.joins)
        self._requests.listen()
        self._hear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_leaving = self._has_stopped and not self._has_finished()
        ends_well = kind is None or (isinstance(error, SystemExit) and not error.code)
        if ends_well:
            if is_leaving:
                self._leave_group()
            self._report_end(is_leaving)
        self._client.close(CLOSE_S)
        self._requests.restore_signals(
            ignore_stop=ends_well and (is_leaving or self._place.socket is not None)
        )
        for consensus in (self._stop_consensus, self._release_consensus, self._save_consensus):
            consensus.close()
        if is_leaving and kind is None:
            raise SystemExit(0)

    def _leave_group(self) -> None:
        """All ranks leave together: what joins them is taken down first."""
        if is_gang_initialised():
            from trainmaster_sdk.torch import leave_group

            leave_group()

    def finish(self) -> None:
        """All work is done, even if a stop was requested. Needed only without `total_steps`."""
        self._is_finished = True

    def _has_finished(self) -> bool:
        """Work that ended just when a stop came counts as done: nothing is left to resume."""
        if self._is_finished:
            return True
        if self._step is None or self._total_steps is None:
            return False
        return self._step >= self._total_steps

    def _report_end(self, is_leaving: bool) -> None:
        if self._is_removed:
            return
        if not is_leaving:
            self._client.say({"say": "done"})
            return
        step = self._saved_step if self._saved_step is not None else self._step
        self._client.say({"say": "leaving"} | ({} if step is None else {"step": step}))

    # ---------------------------------------------------------------------------- said and asked

    def progress(
        self,
        step: int,
        *,
        loss: SupportsFloat | None = None,
        samples_per_s: SupportsFloat | None = None,
        total_steps: int | None = None,
        epoch_steps: int | None = None,
    ) -> None:
        """Report progress: `step` steps are done. Rank 0 reports for all; others may call it too.

        An opportunistic job waits in here where a guaranteed one on the same GPU has become slower.
        """
        self._step = int(step)
        if total_steps is not None:
            self._total_steps = int(total_steps)
        if self.is_rank_zero:
            self._report(self._step, loss, samples_per_s, total_steps, epoch_steps)
        else:
            self._report_time(self._step)
        self._resizing.step_done()
        self._keep_pace()

    def _report(
        self,
        step: int,
        loss: SupportsFloat | None,
        samples_per_s: SupportsFloat | None,
        total_steps: int | None,
        epoch_steps: int | None,
    ) -> None:
        now = time.monotonic()
        is_due = now >= self._reported_at + REPORT_S
        said: Message = {"say": "progress", "step": step}
        for name, value in (("loss", loss), ("samples_per_s", samples_per_s)):
            number = _number(value, may_wait=is_due)
            if number is not None:
                said[name] = number
        for name, count in (("total_steps", total_steps), ("epoch_steps", epoch_steps)):
            if count is not None:
                said[name] = int(count)
        if is_due:
            if self._reported_step is not None and step > self._reported_step:
                self._steps_per_s = (step - self._reported_step) / (now - self._reported_at)
            self._reported_at, self._reported_step = now, step
        if self._steps_per_s is not None:
            said["steps_per_s"] = self._steps_per_s
        self._client.say_newest(said, now=is_due)

    def _report_time(self, step: int) -> None:
        """How long this rank takes for a step, so that one that is slower than its peers can be named."""
        now = time.monotonic()
        if now < self._reported_at + REPORT_S:
            return
        if self._reported_step is not None and step > self._reported_step:
            ms = (now - self._reported_at) / (step - self._reported_step) * 1000
            self._client.say_newest({"say": "step time", "ms": ms}, now=True)
        self._reported_at, self._reported_step = now, step

    def _keep_pace(self) -> None:
        now = time.monotonic()
        if now >= self._heard_at + REPORT_S:
            self._heard_at = now
            self._hear()
        self._pacer.end_step(self._hear, self._has_other_news)

    def _has_other_news(self) -> bool:
        is_asked = self._suspension.is_asked or self._resizing.request is not None
        return self._requests.stop or is_asked or self._has_finished()

    def should_stop(self) -> bool:
        """Whether to save and leave now: the same answer on all ranks, which must ask at the same steps.

        Where the program can release its GPU's memory (`trainmaster_sdk.torch.can_release`), it does so in
        here when it is suspended, and this returns when it goes on.
        """
        if not self._heeds_stops:
            self._heeds_stops = True
            self._client.say({"say": "heeds stops"})
        self._suspension.declare()
        self._resizing.declare()
        self._hear()
        while not self._has_stopped:
            settled = self._settle()
            self._has_stopped = settled.stops
            is_agreed = settled.resizes and not settled.stops
            self._agreed = self._resizing.request if is_agreed else None
            self._is_writer = settled.is_writer
            if settled.stops or settled.resizes or not settled.releases:
                break
            self._suspension.wait(self._hear, lambda: self._requests.stop)
            self._forget_pause()
        return self._has_stopped

    def _forget_pause(self) -> None:
        """A pause is not part of its speed."""
        self._reported_step = None
        self._pacer.restart()

    def can_release(self, releaser: Releaser) -> None:
        """From now on it can be suspended by this. All ranks must say so."""
        self._suspension.set_releaser(releaser)

    def can_resize(self, resizer: Resizer, may_lose: int = 0) -> None:
        """From now on it can be resized by this while it trains. All ranks must say so.

        `may_lose`: how many ranks may be lost, one after the other, while the rest go on.
        """
        self._resizing.set_resizer(resizer, may_lose)

    def ready(self) -> None:
        """A rank that joins others can do so now."""
        self._client.say({"say": "ready"})

    def is_called_off(self) -> bool:
        """Whether a rank that waits to join the others is to end instead."""
        self._hear()
        return self._requests.stop

    def end_unjoined(self) -> NoReturn:
        """The others did not take this rank in: it has done nothing, and ends."""
        self._is_removed = True
        raise SystemExit(0)

    def joined(self, times: ResizeTimes) -> None:
        """A rank that was started to join the others has their state."""
        self._resizing.joined(self._place.joins, times)

    def take_place(self, rank: int, world_size: int, local_rank: int) -> None:
        """Have another rank from now on, in a gang of another size."""
        self.rank, self.world_size, self.local_rank = rank, world_size, local_rank
        self._form_consensus()

    def regroup_after_loss(self) -> bool:
        """An exchange has failed: whether one of the ranks was lost, and this one goes on with the others."""
        if not self._resizing.wait_for_loss(self._hear, lambda: self._requests.stop):
            return False
        request = self._resizing.request
        return request is not None and self._take_requested_place(request)

    @property
    def is_resize_agreed(self) -> bool:
        """Whether all ranks have agreed, in the last `should_stop`, to be resized before their next step."""
        return self._agreed is not None

    def resize_if_due(self) -> bool:
        """Between two steps: take the place that all ranks agreed on in `should_stop`.

        A rank that is not needed any more ends in here. False where the ranks do not regroup: then one of
        them, which is rank 0 from now on, has to save, and all leave.
        """
        request, self._agreed = self._agreed, None
        if request is None or self._take_requested_place(request):
            return True
        self.take_place(0 if self._is_writer else 1, 1 if self._is_writer else 2, self.local_rank)
        self._requests.why = self._requests.why or "resize"
        self._has_stopped = True
        return False

    def _take_requested_place(self, request: ResizeRequest) -> bool:
        for wait in self.background_saves:
            wait()
        if request.rank is None:
            self._resizing.leave(request)
            self._is_removed = True
            raise SystemExit(0)
        if not self._resizing.perform(request, self.is_called_off):
            return False
        self._suspension.renew()
        self._forget_pause()
        self._steps_per_s = None  # of another number of ranks
        return True

    def _settle(self) -> _Settled:
        """What all ranks do now."""
        stop, release = self._requests.stop, self._suspension.is_asked
        request = self._resizing.request
        if not is_gang_initialised():
            return _Settled(
                self._stop_consensus.settle(stop),
                self._release_consensus.settle(release),
                request is not None and self.world_size == 1,
                is_writer=True,
            )
        from trainmaster_sdk.torch import greatest

        number, rank = _number_and_rank(request)
        # What rank 0 knows of the end, all must know: they say the same last word.
        said = [int(stop), int(release), int(self._has_finished()), number, -number, -rank]
        stops, releases, is_finished, most, least, first = greatest(said)
        if stops and is_finished:
            self._is_finished = True
        resizes = most > 0 and most == -least and not is_finished
        return _Settled(bool(stops), bool(releases), resizes, is_writer=rank == -first)

    def should_save(self) -> bool:
        """Whether to save now and go on, once for each request: the same answer on all ranks, as above."""
        self._hear()
        requested = self._requests.save
        if is_gang_initialised():
            from trainmaster_sdk.torch import any_rank

            # Only rank 0's request counts: a signal reaches every rank, and at different steps.
            (save,) = any_rank([requested and self.is_rank_zero])
        else:
            save = self._save_consensus.settle(requested)
        if save:
            self._requests.save = False
        return save

    def _hear(self) -> None:
        for said in self._client.hear():
            self._requests.take(said)
            self._resizing.take(said)
            self._suspension.take(said)
            self._pacer.take(said)

    def _form_consensus(self, *, is_first: bool = True) -> None:
        self._stop_consensus = self._agreement("stop", is_first)
        self._release_consensus = self._agreement("release", is_first)
        self._save_consensus = self._agreement("save", is_first)

    def _agreement(self, name: str, is_first: bool) -> RankConsensus:
        return RankConsensus(
            self.checkpoint_dir,
            name,
            self._place.generation,
            self.rank,
            self.world_size,
            is_first=is_first,
        )

    # ------------------------------------------------------------------------------- checkpoints

    def save(self, state: Any, step: int) -> Path | None:
        """Keep one object as the checkpoint of `step`; it is durable on return. Only rank 0 writes.

        For state that all ranks have alike: a plain or DDP program's. Sharded state: sdk.torch.
        """
        if not self.is_rank_zero:
            return None
        with self.saving(step):
            folder = self.checkpoints.save(state, step)
            self._hear()
            self._requests.save = False  # what was requested meanwhile has just been done
            self.saved(step)
        return folder

    @contextlib.contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Around writing a checkpoint, up to `saved`: a resize gives the ranks more time meanwhile."""
        self.begin_saving(step)
        try:
            yield
        except BaseException:
            if self.is_rank_zero:
                self._client.say({"say": "not saved", "step": int(step)})
            raise

    def begin_saving(self, step: int) -> None:
        """The same for what something else writes: `saved` ends it."""
        if self.is_rank_zero:
            self._client.say({"say": "saving", "step": int(step)})

    def load(self) -> Loaded | None:
        """The newest whole checkpoint that `save` wrote, or None. Unpickles: load only your own.

        None for a rank that joins others while they train: they hand their state to it.
        """
        return None if self.joins else self.checkpoints.load()

    def latest(self) -> Path | None:
        """The folder of the newest whole checkpoint: `step-N`, or Hugging Face's `checkpoint-N`."""
        return self.checkpoints.newest()

    def saved(self, step: int, folder: str | os.PathLike[str] | None = None) -> None:
        """Say that a checkpoint is durable; with a `folder` that something else wrote, make it so first."""
        if folder is not None and self.is_rank_zero:
            make_durable(Path(folder))
        self._saved_step = int(step)
        if self.is_rank_zero:
            self._client.say({"say": "saved", "step": self._saved_step})


@dataclass(frozen=True, slots=True)
class _Settled:
    """What all ranks do at the end of this step."""

    stops: bool
    releases: bool
    resizes: bool
    is_writer: bool
    """Whether this rank saves where the resize fails."""


def _number_and_rank(request: ResizeRequest | None) -> tuple[int, int]:
    """What a rank was asked for; one that leaves, or was not asked, is after all others."""
    if request is None:
        return 0, NO_RANK
    return request.number, NO_RANK if request.rank is None else request.rank


def _number(value: SupportsFloat | None, may_wait: bool) -> float | None:
    """A number that JSON can hold. Reading a GPU tensor waits, so only values that are sent are read."""
    if value is None or not (may_wait or isinstance(value, int | float)):
        return None
    if hasattr(value, "detach"):
        value = value.detach()  # torch warns of a tensor that still carries its gradient
    number = float(value)
    return number if math.isfinite(number) else None
