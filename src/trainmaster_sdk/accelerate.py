"""Hugging Face Accelerate: a loop of one's own that saves by `accelerator.save_state`.

with trainmaster_sdk.run() as tm:
    loop = AccelerateLoop(tm, accelerator, save_every=500)  # after accelerator.prepare(...)
    step = loop.load()
    while step < total:
        ...
        step += 1
        if loop.should_leave(step, loss=loss, total_steps=total):
            break
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainmaster_sdk.offload import can_release
from trainmaster_sdk.saving_loop import SavingLoop
from trainmaster_sdk.session import Session

STATE = "accelerate"


class AccelerateLoop(SavingLoop):
    """Saves and loads all that the accelerator has prepared: model, optimizer, scheduler, chance."""

    def __init__(self, tm: Session, accelerator: Any, save_every: int | None = None) -> None:
        super().__init__(tm, save_every)
        self._accelerator = accelerator
        can_release(tm, accelerator._models, accelerator._optimizers, accelerator.scaler)

    def _write(self, folder: Path) -> None:
        self._accelerator.save_state(str(folder / STATE))

    def _read(self, folder: Path) -> None:
        self._accelerator.load_state(str(folder / STATE))

    def _wait_for_all(self) -> None:
        self._accelerator.wait_for_everyone()
