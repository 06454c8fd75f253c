"""Recurrent layers as cuDNN computes them: all time steps at once, with one reserve for the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
KEPT = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}
"""What a layer keeps per time step and direction, in multiples of its hidden state.

LSTM and GRU are measured; a plain one keeps its state.
"""


class _Recurrent(torch.autograd.Function):
    """Takes what cuDNN takes; nothing is computed."""

    @staticmethod
    def forward(ctx: Any, sizes: Any, data: torch.Tensor, *rest: torch.Tensor) -> Any:
        output_shape, reserve, scratch, count, is_batch_first = sizes
        by_time = data.transpose(0, 1).contiguous() if is_batch_first else data
        kept = by_time.new_empty(reserve)
        output = by_time.new_empty(output_shape)
        if is_batch_first:
            output.transpose_(0, 1)
        ends = [torch.empty_like(each) for each in rest[:count]]
        data.new_empty(scratch)
        ctx.save_for_backward(data, output, kept, *rest)
        ctx.sizes = scratch, count, is_batch_first
        return output, *ends

    @staticmethod
    def backward(ctx: Any, of_output: torch.Tensor, *_: Any) -> Any:
        data, _output, _kept, *rest = ctx.saved_tensors
        scratch, count, is_batch_first = ctx.sizes
        by_time = data.transpose(0, 1).contiguous() if is_batch_first else data
        if is_batch_first:
            of_output = of_output.transpose(0, 1).contiguous()
        given = [torch.empty_like(each) for each in (data, *rest[:count])]
        data.new_empty(scratch)
        if is_batch_first:
            del of_output
        weights = rest[count:]
        gradient = by_time.new_zeros(sum(each.numel() for each in weights))
        data.new_empty(scratch)
        parts = gradient.split([each.numel() for each in weights])
        shaped = [part.view(each.shape) for part, each in zip(parts, weights, strict=True)]
        return None, *given, *shaped


taken: Any = _Recurrent.apply


def fused(kind: str) -> Callable[..., Any]:
    """In place of `torch.lstm` and its like: with a batch of sequences, or packed ones."""

    def called(data: torch.Tensor, *rest: Any) -> Any:
        if isinstance(rest[2], bool):
            states, weights, _, layers, _, _, is_both, is_batch_first = rest
            steps = data.shape[0] * data.shape[1]
        else:
            _, states, weights, _, layers, _, _, is_both = rest
            is_batch_first = False
            steps = data.shape[0]
        states = [states] if torch.is_tensor(states) else list(states)
        directions = 2 if is_both else 1
        hidden = weights[0].shape[0] // GATES[kind]
        wide = steps * hidden * directions
        reserve = (layers * KEPT[kind] + layers - 1) * wide
        gates = GATES[kind] + 1
        batch_wide = layers * directions * states[0].shape[1] * hidden
        scratch = gates * wide + sum(each.numel() for each in weights) + gates**2 * batch_wide
        across = states[0].shape[-1] * directions
        output_shape = (*data.shape[:-1], across)
        if is_batch_first:
            output_shape = (data.shape[1], data.shape[0], across)
        if torch.is_autocast_enabled("cpu"):
            lower = torch.get_autocast_dtype("cpu")
            data, states = data.to(lower), [each.to(lower) for each in states]
            weights = [each.to(lower) for each in weights]
        sizes = (output_shape, reserve, scratch, len(states), is_batch_first)
        return taken(sizes, data, *states, *weights)

    return called


def install() -> None:
    for kind in GATES:
        setattr(torch._VF, kind, fused(kind))
