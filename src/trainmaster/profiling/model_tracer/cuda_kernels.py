"""Puts what CUDA does otherwise in place of functions of the CPU."""

from __future__ import annotations

from typing import Any

import torch

from . import autocast, ctc, recurrent


def install() -> Any:
    """Keep what is returned for as long as it is to hold."""
    functional: Any = torch.nn.functional
    attention = functional.scaled_dot_product_attention

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    def fused_attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        named.pop("dropout_p", None)
        rest = (rest[0], 0.0, *rest[2:]) if len(rest) > 1 else rest
        return attention(query, key, value, *rest, **named)

    functional.ctc_loss = ctc.ctc_loss
    functional.dropout = dropout
    functional.scaled_dot_product_attention = fused_attention
    recurrent.install()
    autocast.serve_cuda()
    return autocast.install()
