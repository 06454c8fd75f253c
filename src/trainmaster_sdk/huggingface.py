"""Hugging Face's Trainer: a callback that reports, saves and stops, and the checkpoint to go on from.

    with trainmaster_sdk.run() as tm:
        trainer = Trainer(..., callbacks=[TrainmasterCallback(tm)])
        trainer.train(resume_from_checkpoint=latest_checkpoint(trainer.args.output_dir))

`output_dir` must be a folder that the job finds again: `tm.checkpoint_dir`, or one of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainmaster_sdk.checkpoints import Checkpoints
from trainmaster_sdk.offload import can_release
from trainmaster_sdk.session import Session


def latest_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest `checkpoint-N` that is complete. `resume_from_checkpoint=True` also takes a damaged one."""
    found = Checkpoints(Path(output_dir), keep=1).newest()
    return None if found is None else str(found)


class TrainmasterCallback(TrainerCallback):
    """Reports each step, has the trainer save when asked, and stop once it has saved."""

    def __init__(self, tm: Session) -> None:
        self._tm = tm

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        can_release(self._tm, model, optimizer)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if logs is not None and "loss" in logs:
            self._tm.progress(
                step=state.global_step, loss=logs["loss"], total_steps=state.max_steps
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        self._tm.progress(step=state.global_step, total_steps=state.max_steps)
        must_stop = self._tm.should_stop() or self._tm.is_resize_agreed
        if must_stop or self._tm.should_save():
            control.should_save = True
        if must_stop:
            control.should_training_stop = True
            control.should_evaluate = False
        if control.should_save:
            self._tm.begin_saving(state.global_step)
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        folder = Path(str(args.output_dir), f"checkpoint-{state.global_step}")
        self._tm.saved(state.global_step, folder)
