"""A program's session, under Trainmaster or on its own: progress, stopping together, checkpoints."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsFloat

from trainmaster_sdk import step_counter
from trainmaster_sdk.checkpoints import Checkpoints, Loaded, make_durable
from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.environment import JobEnvironment, local_folder
from trainmaster_sdk.pacing import Pacer
from trainmaster_sdk.rank_consensus import RankConsensus, is_gang_initialised
from trainmaster_sdk.stop_requests import StopRequests
from trainmaster_sdk.suspension import Releaser, Suspension
from trainmaster_sdk.wire import Message

REPORT_S = 0.1
"""Progress is sent at most this often, however short a step is."""
CLOSE_S = 2.0
"""Seconds that sending the last messages may take."""


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
        self._client = ControlClient(
            place.socket, {"say": "hello", "rank": place.rank, "pid": os.getpid()}
        )
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

    # ------------------------------------------------------------------------------- the block

    def __enter__(self) -> Session:
        with contextlib.suppress(OSError):  # saving will report it
            self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        if self.is_rank_zero:
            self.checkpoints.clear_away()
        self._stop_consensus = self._agreement("stop")
        self._release_consensus = self._agreement("release")
        self._save_consensus = self._agreement("save")
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
        self._stop_consensus.close()
        self._release_consensus.close()
        self._save_consensus.close()
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
        return self._requests.stop or self._suspension.is_asked or self._has_finished()

    def should_stop(self) -> bool:
        """Whether to save and leave now: the same answer on all ranks, which must ask at the same steps.

        Where the program can release its GPU's memory (`trainmaster_sdk.torch.can_release`), it does so in
        here when it is suspended, and this returns when it goes on.
        """
        if not self._heeds_stops:
            self._heeds_stops = True
            self._client.say({"say": "heeds stops"})
        self._suspension.declare()
        self._hear()
        while not self._has_stopped:
            stop, release = self._settle()
            self._has_stopped = stop
            if stop or not release:
                break
            self._suspension.wait(self._hear, lambda: self._requests.stop)
            self._reported_step = None  # the pause is not part of its speed
            self._pacer.restart()
        return self._has_stopped

    def can_release(self, releaser: Releaser) -> None:
        """From now on it can be suspended by this. All ranks must say so."""
        self._suspension.set_releaser(releaser)

    def _settle(self) -> tuple[bool, bool]:
        """Whether all ranks leave now, and whether all release their memory now."""
        stop, release = self._requests.stop, self._suspension.is_asked
        if not is_gang_initialised():
            return self._stop_consensus.settle(stop), self._release_consensus.settle(release)
        from trainmaster_sdk.torch import any_rank

        # What rank 0 knows of the end, all must know: they say the same last word.
        stop, release, is_finished = any_rank([stop, release, self._has_finished()])
        if stop and is_finished:
            self._is_finished = True
        return stop, release

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
            self._suspension.take(said)
            self._pacer.take(said)

    def _agreement(self, name: str) -> RankConsensus:
        return RankConsensus(
            self.checkpoint_dir, name, self._place.generation, self.rank, self.world_size
        )

    # ------------------------------------------------------------------------------- checkpoints

    def save(self, state: Any, step: int) -> Path | None:
        """Keep one object as the checkpoint of `step`; it is durable on return. Only rank 0 writes.

        For state that all ranks have alike: a plain or DDP program's. Sharded state: sdk.torch.
        """
        if not self.is_rank_zero:
            return None
        folder = self.checkpoints.save(state, step)
        self._hear()
        self._requests.save = False  # what was requested meanwhile has just been done
        self.saved(step)
        return folder

    def load(self) -> Loaded | None:
        """The newest whole checkpoint that `save` wrote, or None. Unpickles: load only your own."""
        return self.checkpoints.load()

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


def _number(value: SupportsFloat | None, may_wait: bool) -> float | None:
    """A number that JSON can hold. Reading a GPU tensor waits, so only values that are sent are read."""
    if value is None or not (may_wait or isinstance(value, int | float)):
        return None
    if hasattr(value, "detach"):
        value = value.detach()  # torch warns of a tensor that still carries its gradient
    number = float(value)
    return number if math.isfinite(number) else None
