"""Autocast as for CUDA: on the CPU it computes fewer operators in 32 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LOWER = (torch.float16, torch.bfloat16)
FULL_PRECISION = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss
cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
_upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
prod cumprod cumsum
"""
"""PyTorch's lists of operators for CUDA (ATen/autocast_mode.h) that first cast their inputs to 32 bits.

A name without an overload stands for all overloads. Norms and sums are left out: they make 32 bits from 16
without a copy.
"""
SOFTMAX = ("softmax", "log_softmax")


class _Softmax(torch.autograd.Function):
    """Reads 16 bits and writes 32 without a copy between; nothing is computed."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(data, dtype=torch.float32)
        ctx.save_for_backward(made)
        ctx.dtype = data.dtype
        return made

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        (made,) = ctx.saved_tensors
        return torch.empty_like(made, dtype=ctx.dtype)


taken: Any = _Softmax.apply


def _softmax(operator: Any) -> Callable[..., Any]:
    def called(data: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        with _without_autocast():
            if data.dtype in LOWER and dtype in (None, torch.float32):
                return taken(data)
            return operator(data, dim, dtype)

    return called


def install() -> Any:
    """Replace the CPU's kernels for autocast while the library that is returned lives."""
    new_library: Any = torch.library.Library
    library = new_library("aten", "IMPL")
    for name in FULL_PRECISION.split():
        for overload in _overloads(name):
            library.impl(overload.name(), _in_full_precision(overload), "AutocastCPU")
    for name in _of_cpu_only():
        library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
    for name in SOFTMAX:
        overload = getattr(torch.ops.aten, name).int
        library.impl(overload.name(), _softmax(overload), "AutocastCPU")
    return library


def serve_cuda() -> None:
    """Let `torch.autocast("cuda")` of the user's own code hold for the fake tensors of the CPU."""
    context: Any = torch.autocast
    begin = context.__init__

    def begin_on_cpu(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if device_type.startswith("cuda"):
            device_type, dtype = "cpu", dtype or torch.float16
        begin(self, device_type, dtype, enabled, cache_enabled)

    context.__init__ = begin_on_cpu


def _of_cpu_only() -> list[str]:
    """Operators that autocast changes on the CPU and not on CUDA."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return [
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and has_kernel(name, "AutocastCPU")
        and not has_kernel(name, "AutocastCUDA")
    ]


def _without_autocast() -> Any:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    return torch._C._ExcludeDispatchKeyGuard(keys)


def _overloads(name: str) -> list[Any]:
    packet, _, chosen = name.partition(".")
    operator = getattr(torch.ops.aten, packet, None)
    if operator is None:
        return []
    names = [chosen] if chosen else [n for n in operator.overloads() if "out" not in n]
    return [getattr(operator, each) for each in names]


def _in_full_precision(operator: Any) -> Callable[..., Any]:
    def cast(value: Any) -> Any:
        return value.float() if torch.is_tensor(value) and value.dtype in LOWER else value

    def called(*args: Any, **named: Any) -> Any:
        with _without_autocast():
            return operator(*map(cast, args), **{name: cast(each) for name, each in named.items()})

    return called
