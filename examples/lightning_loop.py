"""A Lightning Trainer: one callback reports, saves and stops; the trainer resumes from `tm.latest()`.

python examples/lightning_loop.py --steps 100
"""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.torch import StepBatches


class Regression(lightning.LightningModule):
    """Any module of yours; nothing in it knows of Trainmaster."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, wanted = batch
        return nn.functional.mse_loss(self.net(inputs), wanted)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Onward(StepBatches):
    """Batches by step, of no known length.

    Lightning counts batches from the beginning of an epoch that a restart has cut short, and would begin
    the row again in the middle.
    """

    __len__ = None


class Trainmaster(lightning.Callback):
    """Copy this into your program."""

    def __init__(self, tm: trainmaster_sdk.Session, save_every: int, sleep: float) -> None:
        self.tm = tm
        self.save_every = save_every
        self.sleep = sleep
        self.on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        # Lightning ends the program at SIGTERM before it has saved: our way is put back.
        signal.signal(signal.SIGTERM, self.on_sigterm)

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        time.sleep(self.sleep)
        step = trainer.global_step
        print(f"step {step} loss {outputs['loss'].item()!r}", flush=True)
        self.tm.progress(step=step, loss=outputs["loss"], total_steps=trainer.max_steps)
        must_stop = self.tm.should_stop()
        is_due = step % self.save_every == 0 or step == trainer.max_steps
        if must_stop or self.tm.should_save() or is_due:
            self.save(trainer, step)
        if must_stop:
            trainer.should_stop = True

    def save(self, trainer: lightning.Trainer, step: int) -> None:
        """Lightning writes into a folder beside; then it becomes the newest checkpoint in one go."""
        beside = self.tm.checkpoints.beside(step)
        if self.tm.is_rank_zero:
            self.tm.checkpoints.begin(step)
        trainer.save_checkpoint(beside / "lightning.ckpt")  # every rank must call it
        if self.tm.is_rank_zero:
            self.tm.checkpoints.commit(beside, step)
        self.tm.saved(step)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--steps", type=int, default=100)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--sleep", type=float, default=0.0, help="seconds to wait after each step")
    flags.add_argument("--save-every", type=int, default=50)
    asked = flags.parse_args()

    lightning.seed_everything(asked.seed, verbose=False)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])

    with trainmaster_sdk.run() as tm:
        latest = tm.latest()
        first = int(latest.name.rpartition("-")[2]) if latest else 0
        batches = Onward(tm, len(data), 64, first, asked.steps, asked.seed)
        trainer = lightning.Trainer(
            max_steps=asked.steps,
            accelerator="auto",
            callbacks=[Trainmaster(tm, asked.save_every, asked.sleep)],
            enable_checkpointing=False,  # the callback saves
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
            use_distributed_sampler=False,  # StepBatches splits batches over ranks
        )
        if first < asked.steps:
            path = latest / "lightning.ckpt" if latest else None
            trainer.fit(Regression(), DataLoader(data, batch_sampler=batches), ckpt_path=path)


if __name__ == "__main__":
    main()
