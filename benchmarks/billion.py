"""A Transformer with a billion parameters, to see how long an estimate of its memory takes."""

from __future__ import annotations

from benchmarks.gpu.memory import transformer
from benchmarks.gpu.memory.transformer import compute_loss, make_batch

__all__ = ["compute_loss", "make_batch", "make_model"]


def make_model() -> transformer.Decoder:
    return transformer.Decoder(1920, 22, is_checkpointed=False)
