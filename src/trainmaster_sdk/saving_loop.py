"""What a training loop of one's own does after each step, for libraries that write checkpoints themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import SupportsFloat

from trainmaster_sdk.session import Session


class SavingLoop(ABC):
    """Reports, saves when asked or due, and says when to leave. All ranks must call all of it alike."""

    def __init__(self, tm: Session, save_every: int | None = None) -> None:
        self._tm = tm
        self._save_every = save_every

    def load(self) -> int:
        """Go on from the newest whole checkpoint; the number of steps that are done, 0 without one."""
        folder = self._tm.latest()
        if folder is None:
            return 0
        self._read(folder)
        return int(folder.name.rpartition("-")[2])

    def should_leave(
        self, step: int, *, loss: SupportsFloat | None = None, total_steps: int | None = None
    ) -> bool:
        """After each step: report it, save if that is due or asked for; True: saved, leave the loop now."""
        tm = self._tm
        tm.progress(step=step, loss=loss, total_steps=total_steps)
        must_leave = tm.should_stop() or tm.is_resize_agreed
        is_due = step == total_steps or bool(self._save_every and step % self._save_every == 0)
        if must_leave or tm.should_save() or is_due:
            self.save(step)
        return must_leave

    def save(self, step: int) -> None:
        """Keep a checkpoint of this step: written beside by all ranks, then in its place in one go."""
        beside = self._tm.checkpoints.beside(step)
        with self._tm.saving(step):
            if self._tm.is_rank_zero:
                self._tm.checkpoints.begin(step)
            self._wait_for_all()
            self._write(beside)
            self._wait_for_all()
            if self._tm.is_rank_zero:
                self._tm.checkpoints.commit(beside, step)
            self._tm.saved(step)

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """The state of all ranks."""

    @abstractmethod
    def _read(self, folder: Path) -> None:
        """The state that `_write` wrote there."""

    @abstractmethod
    def _wait_for_all(self) -> None:
        """Until every rank is here."""
