"""Memory of CUDA's operators beside their results: scratch while they run, and results that are larger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from . import reduction
from .cudnn import Direction, workspace_bytes

aten = torch.ops.aten
NO_REDUCTION = 0


@dataclass(frozen=True)
class Extra:
    """Bytes beside an operator's results."""

    scratch: tuple[int, ...] = ()
    """Taken and given back after each result in turn."""
    result: int = 0
    """Of the first result, where it is more than its tensor says."""


class Library(Enum):
    """Multiplies matrices, in a workspace of each thread that it keeps."""

    CUBLAS = "cublas"
    CUBLASLT = "cublaslt"


class WrongTypes(TypeError):
    """Numbers that CUDA does not multiply with each other; fake tensors do."""


def refuse_wrong_types(operator: Any, args: Any) -> None:
    """A product of matrices takes numbers of one kind, with a point."""
    if operator not in LIBRARIES:
        return
    kinds = [each.dtype for each in args if torch.is_tensor(each)]
    if len({*kinds}) > 1 or not kinds[0].is_floating_point | kinds[0].is_complex:
        names = " and ".join(sorted({str(kind).removeprefix("torch.") for kind in kinds}))
        raise WrongTypes(f"matrices of {names} are multiplied")


def extra(operator: Any, args: Any, made: Any) -> Extra:
    rule = RULES.get(operator)
    return rule(args, made) if rule else Extra()


def _mean_loss(args: Any, made: Any) -> Extra:
    """The loss of every element is written out, and the mean is put at the beginning of such a block."""
    if len(args) > 2 and args[2] == NO_REDUCTION:
        return Extra()
    size = _bytes(args[0])
    return Extra((size,), size)


def _reduction(args: Any, made: Any) -> Extra:
    data = args[0]
    dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else []
    reduced = {each % data.dim() for each in dims} or set(range(data.dim()))
    return Extra((reduction.scratch_bytes(data.shape, data.stride(), reduced),))


def _convolution(args: Any, made: Any) -> Extra:
    given, weight, groups = args[0], args[1], args[8]
    return Extra((workspace_bytes(Direction.OUTPUT, given, weight, made, groups),))


def _convolution_backward(args: Any, made: Any) -> Extra:
    output, given, weight, groups, needed = args[0], args[1], args[2], args[9], args[10]
    of_input, of_weight = (
        workspace_bytes(direction, given, weight, output, groups) * is_needed
        for direction, is_needed in zip((Direction.INPUT, Direction.WEIGHT), needed, strict=False)
    )
    return Extra((of_input, of_weight))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


RULES: dict[Any, Callable[[Any, Any], Extra]] = {
    aten.mse_loss.default: _mean_loss,
    aten.smooth_l1_loss.default: _mean_loss,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.sum.default: _reduction,
    aten.sum.dim_IntList: _reduction,
    aten.mean.default: _reduction,
    aten.mean.dim: _reduction,
}
LIBRARIES: dict[Any, tuple[Library, ...]] = {
    aten.mm.default: (Library.CUBLAS,),
    aten.bmm.default: (Library.CUBLAS,),
    aten.baddbmm.default: (Library.CUBLAS,),
    aten.addmm.default: (Library.CUBLAS, Library.CUBLASLT),
}
