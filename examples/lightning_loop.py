"""A Lightning Trainer: one callback of the SDK reports, saves and stops.

python examples/lightning_loop.py --steps 100
"""

from __future__ import annotations

import time
from typing import Any

import flags
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.lightning import TrainmasterCallback
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


class Printing(lightning.Callback):
    """Shows what happens; yours need not do that."""

    def __init__(self, sleep: float) -> None:
        self.sleep = sleep

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        time.sleep(self.sleep)
        print(f"step {trainer.global_step} loss {outputs['loss'].item()!r}", flush=True)


def main() -> None:
    asked = flags.parsed(__doc__, steps=100)

    lightning.seed_everything(asked.seed, verbose=False)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])

    with trainmaster_sdk.run() as tm:
        latest = tm.latest()
        first = int(latest.name.rpartition("-")[2]) if latest else 0
        batches = Onward(tm, len(data), 64, first, asked.steps, asked.seed)
        trainmaster = TrainmasterCallback(tm, save_every=asked.save_every)
        trainer = lightning.Trainer(
            max_steps=asked.steps,
            accelerator="auto",
            callbacks=[Printing(asked.sleep), trainmaster],
            enable_checkpointing=False,  # the callback saves
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
            use_distributed_sampler=False,  # StepBatches splits batches over ranks
        )
        if first < asked.steps:
            loader = DataLoader(data, batch_sampler=batches)
            trainer.fit(Regression(), loader, ckpt_path=trainmaster.resume_path)


if __name__ == "__main__":
    main()
