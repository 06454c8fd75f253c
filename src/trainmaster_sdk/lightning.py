"""Lightning's Trainer: a callback that reports, saves and stops, and the checkpoint to go on from.

with trainmaster_sdk.run() as tm:
    callback = TrainmasterCallback(tm, save_every=500)
    trainer = Trainer(..., callbacks=[callback], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=callback.resume_path)
"""

from __future__ import annotations

import math
import signal
from typing import Any

from trainmaster_sdk.offload import can_release
from trainmaster_sdk.session import Session

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # the same library by its older name
    from pytorch_lightning import (  # type: ignore[assignment]
        Callback,
        LightningModule,
        Trainer,
    )

FILE = "lightning.ckpt"


class TrainmasterCallback(Callback):
    """Reports each step, saves when asked or every `save_every` steps, and stops once it has saved."""

    def __init__(self, tm: Session, save_every: int | None = None) -> None:
        self._tm = tm
        self._save_every = save_every
        self._step = 0
        self._total: int | None = None
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    @property
    def resume_path(self) -> str | None:
        """For `fit(ckpt_path=...)`: the newest whole checkpoint that this callback wrote, or None."""
        folder = self._tm.latest()
        return None if folder is None else str(folder / FILE)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Lightning ends the program at SIGTERM before it has saved: the session's handler is put back.
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._step = trainer.global_step
        total = trainer.estimated_stepping_batches
        self._total = int(total) if 0 < total < math.inf else None
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        can_release(self._tm, pl_module, trainer.optimizers, scaler)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == self._step:  # gradients are being accumulated
            return
        self._step = step
        self._tm.progress(step=step, loss=_loss_of(outputs), total_steps=self._total)
        must_stop = self._tm.should_stop() or self._tm.is_resize_agreed
        is_due = step == self._total or bool(self._save_every and step % self._save_every == 0)
        if must_stop or self._tm.should_save() or is_due:
            self._save(trainer, step)
        if must_stop:
            _stop(trainer)

    def _save(self, trainer: Trainer, step: int) -> None:
        """Lightning writes into a folder beside; then it becomes the newest checkpoint in one go."""
        beside = self._tm.checkpoints.beside(step)
        with self._tm.saving(step):
            if self._tm.is_rank_zero:
                self._tm.checkpoints.begin(step)
            trainer.save_checkpoint(beside / FILE)  # every rank must call it
            if self._tm.is_rank_zero:
                self._tm.checkpoints.commit(beside, step)
            self._tm.saved(step)


def _stop(trainer: Trainer) -> None:
    """End now: without a last validation, and before any minimum of steps or epochs."""
    trainer.should_stop = True
    trainer.limit_val_batches = 0
    trainer.fit_loop.min_epochs = None
    trainer.fit_loop.epoch_loop.min_steps = None


def _loss_of(outputs: Any) -> Any:
    """What `training_step` returned: a loss, a mapping with one, or nothing."""
    return outputs.get("loss") if isinstance(outputs, dict) else outputs
