"""`trainmaster estimate`: what a training program will need, before it runs."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from trainmaster.cli.support import memory_estimates
from trainmaster.cli.support.console import remark
from trainmaster.cli.support.errors import BadInput, Failed
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.config.units import size_bytes
from trainmaster.estimators.memory.training_memory import GpuKind
from trainmaster.profiling.memory_trace import TrainingSetup
from trainmaster.text.formatting import size

FACTORY = "Function that returns the model: package.module:function or train.py:function."
INPUT = (
    "Shape of one example: 3x224x224, or 512:int<50000 for words. Default: the module's make_batch."
)
DTYPE = "fp32, or autocast to bf16 or fp16 with 32-bit weights."
FIND = "Find the largest batch that fits into this much memory, such as 80GiB."
PYTHON = "Python of the training environment. Default: that of this command."
KIND = "The GPU: hopper (H100, H200) or earlier (A100 and before)."
Optimizer = Literal["sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad"]


def estimate(
    factory: Annotated[str, argument("FACTORY", FACTORY)],
    batch: Annotated[int, option("-b --batch N", "Examples per step and GPU.", min=1)] = 1,
    optimizer: Annotated[Optimizer, option("--optimizer NAME", "The optimizer.")] = "adamw",
    dtype: Annotated[Literal["fp32", "bf16", "fp16"], option("--dtype NAME", DTYPE)] = "fp32",
    input: Annotated[str, option("--input SHAPE", INPUT)] = "",
    gpu: Annotated[Literal["hopper", "earlier"], option("--gpu KIND", KIND)] = "hopper",
    find_max_batch: Annotated[str | None, option("--find-max-batch SIZE", FIND)] = None,
    python: Annotated[str, option("--python FILE", PYTHON)] = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Estimate the GPU memory of a model's training, without a GPU.

    Examples:
        trainmaster estimate train.py:make_model --batch 64 --dtype bf16
        trainmaster estimate package.module:make_model --input 3x224x224 --find-max-batch 80GiB
    """
    if not all(factory.rpartition(":")):
        raise BadInput(f"`{factory}` names no function: write train.py:make_model.")
    setup = TrainingSetup(factory, batch, optimizer, dtype, input)
    kind = GpuKind(gpu)
    if find_max_batch is not None:
        setup = _largest(setup, kind, python, find_max_batch)
    memory_estimates.show_memory(
        setup, kind, memory_estimates.estimated(setup, kind, python), as_json
    )


def _largest(setup: TrainingSetup, kind: GpuKind, python: str, room: str) -> TrainingSetup:
    try:
        limit = size_bytes(room)
    except ValueError:
        raise BadInput(f"`{room}` is not an amount of memory: write 80GiB.") from None

    def fits(batch: int) -> bool:
        tried = memory_estimates.with_batch(setup, batch)
        high = memory_estimates.estimated(tried, kind, python).estimate.high
        remark("Note", [f"batch {batch} needs up to {size(high)}"])
        return high <= limit

    found = memory_estimates.largest_batch(fits, setup.batch)
    if found is None:
        raise Failed(f"not even one example fits into {room}: choose a smaller model or precision.")
    return memory_estimates.with_batch(setup, found)
