"""A small program of a library that is resized in rounds.

python elastic_library_job.py lightning|accelerate|huggingface FOLDER STEPS SLEEP_S
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.resize_rounds import rounds
from trainmaster_sdk.session import Session
from trainmaster_sdk.torch import StepBatches

SAMPLES, BATCH = 120, 12


class Onward(StepBatches):
    """Lightning counts batches from the beginning of an epoch: of no known length, they go on."""

    __len__ = None


class Watch:
    """Writes down each step, and waits after it."""

    def __init__(self, folder: Path, sleep: float) -> None:
        self._folder = folder
        self._sleep = sleep

    def step(self, tm: Session, step: int) -> None:
        with (self._folder / f"seen-{os.getpid()}").open("a") as file:
            print(step, tm.rank, tm.world_size, file=file)
        if not (self._folder / "hurry").exists():
            time.sleep(self._sleep)


def data() -> TensorDataset:
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 8)
    return TensorDataset(x, torch.sin(3 * x[:, :1]))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def with_lightning(tm: Session, net: nn.Module, steps: int, watch: Watch) -> None:
    import lightning

    from trainmaster_sdk.lightning import TrainmasterCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Any, index: int) -> Any:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    class Watching(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *rest: object) -> None:
            watch.step(tm, trainer.global_step)

    callback = TrainmasterCallback(tm)
    latest = tm.latest()
    first = int(latest.name.rpartition("-")[2]) if latest else 0
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        devices=tm.world_size,
        strategy="ddp" if tm.world_size > 1 else "auto",
        callbacks=[Watching(), callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        use_distributed_sampler=False,
    )
    batches = Onward(tm, SAMPLES, BATCH, first, steps)
    loader = DataLoader(data(), batch_sampler=batches)
    trainer.fit(Module(), loader, ckpt_path=callback.resume_path)


def with_accelerate(tm: Session, net: nn.Module, steps: int, watch: Watch) -> None:
    from accelerate import Accelerator

    from trainmaster_sdk.accelerate import AccelerateLoop

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == tm.world_size
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05))
    loop = AccelerateLoop(tm, accelerator)
    step = loop.load()
    batches = StepBatches(tm, SAMPLES, BATCH, step, steps)
    for inputs, wanted in DataLoader(data(), batch_sampler=batches):
        loss = nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        watch.step(tm, step)
        if loop.should_leave(step, loss=loss, total_steps=steps):
            break
    accelerator.free_memory()


def with_huggingface(tm: Session, net: nn.Module, steps: int, watch: Watch) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from trainmaster_sdk.huggingface import TrainmasterCallback, latest_checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": nn.functional.mse_loss(self.net(x), labels)}

    class Watching(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.step(tm, state.global_step)

    rows = [{"x": x, "labels": y} for x, y in data()]
    settings = TrainingArguments(
        output_dir=str(tm.checkpoint_dir),
        max_steps=steps,
        per_device_train_batch_size=tm.per_rank_batch(BATCH),
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    callbacks = [Watching(), TrainmasterCallback(tm)]
    trainer = Trainer(model=Model(), args=settings, train_dataset=rows, callbacks=callbacks)
    assert settings.world_size == tm.world_size
    trainer.train(resume_from_checkpoint=latest_checkpoint(settings.output_dir))


LIBRARIES = {
    "lightning": with_lightning,
    "accelerate": with_accelerate,
    "huggingface": with_huggingface,
}


def main() -> None:
    library, folder, steps = LIBRARIES[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])
    watch = Watch(folder, float(sys.argv[4]))
    with trainmaster_sdk.run() as tm:
        net = network()
        for _ in rounds(tm):
            library(tm, net, steps, watch)


if __name__ == "__main__":
    main()
