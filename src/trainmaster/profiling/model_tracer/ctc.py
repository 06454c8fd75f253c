"""Connectionist temporal classification: the CPU's kernel looks at lengths, which fake tensors lack."""

from __future__ import annotations

from typing import Any

import torch


class _Loss(torch.autograd.Function):
    """Takes what CUDA's kernel takes (ATen/native/cuda/LossCTC.cu); nothing is computed."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, longest: int) -> torch.Tensor:
        alpha = scores.new_empty(scores.shape[1], scores.shape[0], 2 * longest + 1)
        ctx.save_for_backward(scores, alpha)
        return scores.new_empty(scores.shape[1])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        scores, alpha = ctx.saved_tensors
        beta = torch.empty_like(alpha)
        given = torch.empty_like(scores)
        del beta
        return given, None


taken: Any = _Loss.apply


def ctc_loss(
    scores: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """In place of `torch.nn.functional.ctc_loss`; targets in one row are taken to be equally long."""
    examples = scores.shape[1]
    longest = targets.shape[1] if targets.dim() == 2 else -(-targets.numel() // examples)
    loss: torch.Tensor = taken(scores.float(), longest)
    return loss if reduction == "none" else loss.sum() / examples
