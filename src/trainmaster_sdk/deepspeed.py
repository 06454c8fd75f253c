"""DeepSpeed: a loop of one's own that saves by `engine.save_checkpoint`.

    with trainmaster_sdk.run() as tm:
        loop = DeepSpeedLoop(tm, engine, save_every=500)  # after deepspeed.initialize(...)
        step = loop.load()
        while step < total:
            ...
            step += 1
            if loop.should_leave(step, loss=loss, total_steps=total):
                break

A checkpoint of ZeRO is made of one part for each rank, and needs as many ranks when it is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainmaster_sdk.saving_loop import SavingLoop
from trainmaster_sdk.session import Session

TAG = "deepspeed"


class DeepSpeedLoop(SavingLoop):
    """Saves and loads what the engine holds: model, optimizer, scheduler, loss scale."""

    def __init__(self, tm: Session, engine: Any, save_every: int | None = None) -> None:
        super().__init__(tm, save_every)
        self._engine = engine

    def _write(self, folder: Path) -> None:
        self._engine.save_checkpoint(str(folder), tag=TAG)

    def _read(self, folder: Path) -> None:
        found, _ = self._engine.load_checkpoint(str(folder), tag=TAG)
        if found is None:
            raise FileNotFoundError(f"{folder} was not written by DeepSpeed: it has no {TAG}.")

    def _wait_for_all(self) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.barrier()
