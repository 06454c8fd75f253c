"""A Hugging Face Trainer: one callback of the SDK reports, saves and stops.

    python examples/hf_trainer.py --steps 60

The model is a tiny GPT made here: nothing is downloaded.
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import flags
import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

import trainmaster_sdk
from trainmaster_sdk.huggingface import TrainmasterCallback, latest_checkpoint


class Printing(TrainerCallback):
    """Shows what happens; yours need not do that."""

    def __init__(self, sleep: float) -> None:
        self.sleep = sleep

    def on_step_end(self, *_: Any, **__: Any) -> None:
        time.sleep(self.sleep)

    def on_log(
        self, args: Any, state: TrainerState, control: Any, logs: dict[str, float], **_: Any
    ) -> None:
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)


class Counting(Dataset):
    """Sequences that count upwards modulo 32: easy to learn."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (index + torch.arange(16) * (1 + index % 3)) % 32
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    asked = flags.parsed(__doc__, steps=60, save_every=30)

    with trainmaster_sdk.run() as tm:
        settings = TrainingArguments(
            output_dir=str(tm.checkpoint_dir),
            max_steps=asked.steps,
            per_device_train_batch_size=tm.per_rank_batch(16),
            learning_rate=3e-3,
            logging_steps=1,
            save_steps=asked.save_every,
            save_total_limit=3,
            seed=asked.seed,
            report_to=[],
            disable_tqdm=True,
        )
        torch.manual_seed(asked.seed)
        config = GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=1, n_head=2)
        config.bos_token_id = config.eos_token_id = 0
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=settings,
            train_dataset=Counting(),
            callbacks=[Printing(asked.sleep), TrainmasterCallback(tm)],
        )
        trainer.train(resume_from_checkpoint=latest_checkpoint(settings.output_dir))


if __name__ == "__main__":
    main()
