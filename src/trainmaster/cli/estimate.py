"""`trainmaster estimate`: what a training program will need, before it runs."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from trainmaster.cli.support import memory_estimates
from trainmaster.cli.support.console import remark
from trainmaster.cli.support.memory_estimates import DeviceSetup
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.client.program_profiles import command_words, keep_memory
from trainmaster.config.units import size_bytes
from trainmaster.errors import BadInput, Failed
from trainmaster.estimators.memory.training_memory import Context, GpuKind, Sharding
from trainmaster.profiling.memory_trace import TrainingSetup
from trainmaster.text.formatting import size

FACTORY = (
    "Function that returns the model: package.module:function or train.py:function. With --speed: what"
    " `profile program` wrote, or a job that the manager has measured."
)
SPEED = "Estimate samples/s by the number of devices, instead of memory."
SHAPE = "With --speed: the cluster, as of simulate. Default: this machine."
MEASURED = "With --speed: what `profile links` wrote, or usual. Default: that of the data folder."
INPUT = (
    "Shape of one example: 3x224x224, or 512:int<50000 for words. Default: the module's make_batch."
)
DTYPE = "fp32, or autocast to bf16 or fp16 with 32-bit weights."
FIND = "Find the largest batch that fits into this much memory, such as 80GiB."
ACCUMULATE = "Batches whose gradients are summed before the optimizer steps."
COMPILED = "The model is compiled by torch.compile."
CLEARED = (
    "When gradients are cleared: early (before the forward pass, or after the step) or late (between"
    " forward and backward pass). Default: early, with an interval that covers late."
)
CONTEXT_SIZE = (
    "What CUDA takes on your GPU beside PyTorch: what nvidia-smi shows for a process, less"
    " torch.cuda.memory_reserved(). Default: 750 MiB on hopper, as measured; 500 MiB on earlier, assumed."
)
ZERO = (
    "ZeRO stage: 1 shards the optimizer's state over --ranks GPUs, 2 gradients too, 3 weights too."
)
RANKS = "GPUs that share what --zero shards."
PYTHON = "Python of the training environment. Default: that of this command."
KIND = "The GPU: hopper (H100, H200) or earlier (A100 and before)."
PROGRAM = (
    "Keep the estimate for jobs with this command in this folder: they reserve the interval's top until"
    " their own memory was measured."
)
Optimizer = Literal["sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad"]
ZeroGrad = Literal["early", "late", "unknown"]


def estimate(
    factory: Annotated[str, argument("FACTORY", FACTORY)],
    batch: Annotated[int, option("-b --batch N", "Examples per step and GPU.", min=1)] = 1,
    optimizer: Annotated[Optimizer, option("--optimizer NAME", "The optimizer.")] = "adamw",
    dtype: Annotated[Literal["fp32", "bf16", "fp16"], option("--dtype NAME", DTYPE)] = "fp32",
    input: Annotated[str, option("--input SHAPE", INPUT)] = "",
    gpu: Annotated[Literal["hopper", "earlier"], option("--gpu KIND", KIND)] = "hopper",
    accumulate: Annotated[int, option("--accumulate N", ACCUMULATE, min=1)] = 1,
    is_compiled: Annotated[bool, option("--compile", COMPILED)] = False,
    zero_grad: Annotated[ZeroGrad, option("--zero-grad WHEN", CLEARED)] = "unknown",
    context: Annotated[str | None, option("--context SIZE", CONTEXT_SIZE)] = None,
    zero: Annotated[int, option("--zero STAGE", ZERO, min=0, max=3)] = 0,
    ranks: Annotated[int, option("--ranks N", RANKS, min=1)] = 1,
    program: Annotated[str | None, option("--for COMMAND", PROGRAM)] = None,
    find_max_batch: Annotated[str | None, option("--find-max-batch SIZE", FIND)] = None,
    python: Annotated[str, option("--python FILE", PYTHON)] = sys.executable,
    speed: Annotated[bool, option("--speed", SPEED)] = False,
    cluster: Annotated[str | None, option("--cluster SHAPE|FILE", SHAPE)] = None,
    links: Annotated[str | None, option("--links FILE|usual", MEASURED)] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the GPU memory of a model's training, without a GPU, or its speed on several.

    Examples:
        trainmaster estimate train.py:make_model --batch 64 --dtype bf16
        trainmaster estimate train.py:make_model --accumulate 4 --zero-grad late --json
        trainmaster estimate package.module:make_model --input 3x224x224 --find-max-batch 80GiB
        trainmaster estimate train.py:make_model --batch 64 --for 'python train.py --batch 64'
        trainmaster estimate train.profile --speed --cluster 2x8 --links links.yaml
    """
    if speed:
        from trainmaster.cli.support.speed_estimates import show_speed

        show_speed(factory, cluster, links, as_json)
        return
    if not all(factory.rpartition(":")):
        raise BadInput(f"`{factory}` names no function: write train.py:make_model.")
    words = None if program is None else command_words(program)
    if zero and ranks == 1:
        raise BadInput("--zero shards over several GPUs: say how many with --ranks 8.")
    setup = TrainingSetup(
        factory, batch, optimizer, dtype, input, accumulate, is_compiled, zero_grad
    )
    beside = None if context is None else Context.known(_size(context, "600MiB"))
    device = DeviceSetup(GpuKind(gpu), beside, Sharding(zero, ranks))
    if find_max_batch is not None:
        setup = _largest(setup, device, python, find_max_batch)
    made = memory_estimates.estimated(setup, device, python)
    if words is not None:
        keep_memory(words, made.estimate)
    memory_estimates.show_memory(setup, device, made, as_json)


def _size(text: str, example: str) -> int:
    try:
        return size_bytes(text)
    except ValueError:
        raise BadInput(f"`{text}` is not an amount of memory: write {example}.") from None


def _largest(setup: TrainingSetup, device: DeviceSetup, python: str, room: str) -> TrainingSetup:
    limit = _size(room, "80GiB")

    def fits(batch: int) -> bool:
        tried = memory_estimates.with_batch(setup, batch)
        high = memory_estimates.estimated(tried, device, python).estimate.high
        remark("Note", [f"batch {batch} needs up to {size(high)}"])
        return high <= limit

    found = memory_estimates.largest_batch(fits, setup.batch)
    if found is None:
        raise Failed(f"not even one example fits into {room}: choose a smaller model or precision.")
    return memory_estimates.with_batch(setup, found)
