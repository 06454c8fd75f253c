"""Models traced without a GPU, each in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trainmaster.estimators.memory.training_memory import (
    Doubt,
    GpuKind,
    Part,
    TracedSteps,
    training_memory,
)
from trainmaster.profiling.memory_trace import CannotEstimate, TrainingSetup, trace_training

PROGRAM = """
import torch
from torch import nn

print("noise of the import")

def mlp():
    return nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))

def partly():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.frozen = (nn.Linear(256, 256, bias=False) for _ in range(3))
            self.b.weight = self.a.weight
            self.frozen.weight.requires_grad_(False)
            self.register_buffer("mask", torch.zeros(256, 256))
        def forward(self, x):
            return self.frozen(self.b(self.a(x))) * self.mask[0]
    return Tied()

def branching():
    class Branching(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y if y.sum() > 0 else -y
    return Branching(8, 8)

def attention():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, batch_first=True), 1)

def empty():
    return nn.Identity()

def frozen():
    return nn.Linear(8, 8).requires_grad_(False)

def needy(width):
    return nn.Linear(width, width)

def normalized():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

def deep():
    return nn.Sequential(*(each for _ in range(16) for each in (nn.Linear(1024, 1024), nn.ReLU())))

def deep_image():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1))

def recurrent():
    return nn.LSTM(64, 128, 2, batch_first=True)

def on_gpu():
    return nn.Linear(8, 8).cuda()

def broken():
    raise ValueError("no such file of weights")

def of_two():
    class Sum(nn.Linear):
        def forward(self, x, y):
            return super().forward(x + y)
    return Sum(8, 8)

def quitting():
    raise SystemExit(0)

def lazy():
    return nn.LazyLinear(8)

def logging():
    class Logging(nn.Linear):
        def forward(self, x):
            self.seen = x.numpy()
            return super().forward(x)
    return Logging(8, 8)

def on_gpu_later():
    class Moving(nn.Linear):
        def forward(self, x):
            return super().forward(x.cuda())
    return Moving(8, 8)

def halved():
    return nn.Linear(8, 8).half()

def detached():
    class Detached(nn.Linear):
        def forward(self, x):
            return super().forward(x).detach()
    return Detached(8, 8)

made = nn.Linear(8, 8)

def image():
    return nn.Conv2d(3, 8, 3)
"""


LOSS = """

def compute_loss(model, batch):
    given, wanted = batch
    return nn.functional.mse_loss(model(given), wanted)

def make_batch(n):
    return torch.randn(n, 4096), torch.randn(n, 4096)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def traced(program: Path, name: str, batch: int = 1, **more: Any) -> TracedSteps:
    return trace_training(TrainingSetup(f"{program}:{name}", batch, **more), sys.executable)


def bytes_of(steps: TracedSteps, part: Part) -> int:
    """The most that a part ever holds."""
    held = most = 0
    for event in steps.events:
        storage = steps.storages[abs(event)]
        if storage.part is part:
            held += storage.size if event > 0 else -storage.size
            most = max(most, held)
    return most


def test_an_mlp_with_adam_by_the_formulas(program: Path) -> None:
    steps = traced(program, "mlp", 1024, optimizer="adam")
    parts = training_memory(steps, GpuKind.HOPPER).parts
    assert parts[Part.PARAMETERS] == bytes_of(steps, Part.GRADIENTS) == 134_250_496
    assert parts[Part.OPTIMIZER] == 268_500_992


def test_plain_gradient_descent_keeps_no_state(program: Path) -> None:
    steps = traced(program, "mlp", 1024, optimizer="sgd")
    assert bytes_of(steps, Part.OPTIMIZER) == 0
    assert bytes_of(steps, Part.ACTIVATIONS) >= 33_554_432


def test_tied_weights_count_once_and_frozen_ones_have_no_gradient(program: Path) -> None:
    steps = traced(program, "partly", 1, optimizer="adamw", input="256")
    weight = 4 * 256 * 256
    assert bytes_of(steps, Part.PARAMETERS) == 3 * weight  # tied, frozen, the buffer
    assert bytes_of(steps, Part.GRADIENTS) == weight
    assert bytes_of(steps, Part.OPTIMIZER) == 2 * weight


def test_autocast_halves_most_activations_and_not_the_weights(program: Path) -> None:
    full, half = (
        traced(program, "attention", 256, input="64x64", dtype=each) for each in ("fp32", "bf16")
    )
    assert bytes_of(half, Part.PARAMETERS) == bytes_of(full, Part.PARAMETERS)
    share = bytes_of(half, Part.ACTIVATIONS) / bytes_of(full, Part.ACTIVATIONS)
    assert 0.45 < share < 0.8


def expected(steps: TracedSteps) -> int:
    return training_memory(steps, GpuKind.HOPPER).estimate.expected


def test_a_loss_of_the_module_and_its_batch_are_used(program: Path) -> None:
    program.write_text(PROGRAM + LOSS)
    steps = traced(program, "mlp", 1024, optimizer="sgd")
    whole = 4 * 1024 * 4096
    kept = [each.size for each in steps.storages.values() if each.part is Part.ACTIVATIONS]
    assert (
        kept.count(whole) >= 5 * 3
    )  # the batch, two layers' results, and the loss of every element


def test_autocast_for_cuda_in_the_programs_own_code_holds(program: Path) -> None:
    program.write_text(PROGRAM + LOSS)
    told = traced(program, "mlp", 1024, dtype="bf16")
    line = "    with torch.autocast('cuda', torch.bfloat16): return nn.functional"
    program.write_text((PROGRAM + LOSS).replace("    return nn.functional", line))
    own = traced(program, "mlp", 1024)
    assert bytes_of(own, Part.ACTIVATIONS) == bytes_of(told, Part.ACTIVATIONS)
    program.write_text(PROGRAM + LOSS)
    full = traced(program, "mlp", 1024)
    assert bytes_of(full, Part.ACTIVATIONS) != bytes_of(
        own, Part.ACTIVATIONS
    )  # with copies of weights


def test_accumulated_gradients_live_through_the_next_forward_pass(program: Path) -> None:
    once, twice = (
        traced(program, "mlp", 16384, optimizer="sgd", accumulate=each, zero_grad="early")
        for each in (1, 2)
    )
    assert bytes_of(once, Part.GRADIENTS) == bytes_of(twice, Part.GRADIENTS) == 134_250_496
    assert expected(twice) > expected(once)


def test_gradients_that_are_cleared_late_count_for_the_top_of_the_interval(program: Path) -> None:
    early, late, unknown = (
        training_memory(
            traced(program, "deep", 4096, optimizer="sgd", zero_grad=each), GpuKind.HOPPER
        ).estimate
        for each in ("early", "late", "unknown")
    )
    assert early.expected == unknown.expected < late.expected
    assert unknown.high >= late.high > early.high


def test_convolutions_take_a_workspace_unless_channels_are_last(program: Path) -> None:
    laid = [
        traced(program, "deep_image", 16, input="64x32x32", is_compiled=each)
        for each in (False, True)
    ]
    most = [max(each.size for each in steps.storages.values()) for steps in laid]
    layer = 4 * 16 * 64 * 32 * 32
    assert most[0] >= 2 * layer  # copies of what goes in and out
    assert most[0] - most[1] == 2 * layer
    assert laid[0].doubts == {Doubt.CONVOLUTION}
    assert laid[1].doubts == {Doubt.CONVOLUTION, Doubt.COMPILED}


def test_recurrent_layers_keep_a_reserve_for_the_way_back(program: Path) -> None:
    steps = traced(program, "recurrent", 32, input="100x64")
    state = 4 * 32 * 100 * 128
    assert any(each.size == (2 * 5 + 1) * state for each in steps.storages.values())
    assert steps.doubts == {Doubt.RECURRENT}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty", "has no parameters"),
        ("frozen", "all weights of the model are frozen"),
        ("needy", "it must need no arguments"),
        ("image", "say it with --input 3x224x224"),
        ("branching", "its control flow depends on data"),
        ("absent", "has no function `absent`"),
        ("normalized", "set --batch to 2 or more"),
        ("on_gpu", "must leave the model on the CPU"),
        ("broken", "no such file of weights.*make it work on its own"),
        ("made", "made is a model: name a function that returns it"),
        ("mlp()", "without parentheses"),
        ("of_two", r"missing 1 required positional argument.*define make_batch\(batch\)"),
        ("quitting", r"quitting\(\) fails \(SystemExit"),
        ("lazy", "give lazy layers"),
        ("logging", r"its control flow depends on data .*`\.numpy\(\)`"),
        ("on_gpu_later", "leave the model and its batch on the CPU"),
        ("halved", "matrices of float16 and float32 .* numbers of one type"),
        ("detached", "without `no_grad` and `detach`"),
    ],
)
def test_what_cannot_be_traced_is_one_sentence(program: Path, name: str, sentence: str) -> None:
    with pytest.raises(CannotEstimate, match=sentence):
        traced(program, name)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("mlp", "4096:int<9", "matrices of float32 and int64 .* numbers of one type"),
        ("words", "8", "where these are words, say so with --input 512:int<50000"),
        ("words", "8:int<0", "--input is a shape such as 3x224x224, or 512:int<50000"),
    ],
)
def test_an_input_of_a_wrong_type(program: Path, name: str, shape: str, sentence: str) -> None:
    program.write_text(PROGRAM + "\ndef words(): return nn.Embedding(9, 8)\n")
    with pytest.raises(CannotEstimate, match=sentence):
        traced(program, name, input=shape)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "make_batch(n): return {'x': torch.zeros(n, 4096)}",
            "make_batch returns dict: .* in a tuple",
        ),
        (
            "make_batch(n): return [[0.0]] * n",
            "make_batch returns a list of list: it must return tensors",
        ),
        ("make_batch(): return 1", r"make_batch\(1\) fails .*it takes the number of examples"),
        (
            "compute_loss(model, x): return 3.0",
            "compute_loss returns float: the loss must be a tensor",
        ),
        ("compute_loss(model, x): return model(x)", "a loss of 4096 numbers: it must have one"),
    ],
)
def test_a_batch_and_a_loss_of_a_wrong_type(program: Path, text: str, sentence: str) -> None:
    program.write_text(f"{PROGRAM}\ndef {text}\n")
    if "make_batch" not in text:
        program.write_text(program.read_text() + "def make_batch(n): return torch.zeros(n, 4096)\n")
    with pytest.raises(CannotEstimate, match=sentence):
        traced(program, "mlp")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_of_this_name", r"does not import \(ModuleNotFoundError.*--python"),
        (
            "import torch; torch.zeros(4).cuda()",
            "does not import .* use of GPUs out of its top level",
        ),
        ("import torch; torch.zeros(1 << 52)", "does not import .* out of its top level"),
        ("raise SystemExit(3)", "does not import .* out of its top level"),
        ("def make(:", r"does not import \(SyntaxError.*: correct that$"),
        ("from . import other", "relative import.* name it by its package"),
        ("nam", "NameError.*: correct that; what belongs to a run goes out of its top level"),
    ],
)
def test_a_module_that_does_not_import(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "bad.py").write_text(f"{text}\n")
    with pytest.raises(CannotEstimate, match=sentence):
        traced(tmp_path / "bad.py", "make")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotEstimate, match="there is no file"):
        traced(tmp_path / "absent.py", "make")


def test_a_module_that_is_not_there() -> None:
    setup = TrainingSetup("no_such.module:make", 1)
    with pytest.raises(CannotEstimate, match=r"no module no_such.module: .*file\.py:function"):
        trace_training(setup, sys.executable)


def test_what_is_no_python(program: Path) -> None:
    with pytest.raises(CannotEstimate, match=r"does not run the trace .* name a Python"):
        trace_training(TrainingSetup(f"{program}:mlp", 1), "/bin/true")


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    """As the kernel does where memory runs out."""
    (tmp_path / "big.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(CannotEstimate, match="was killed, as when it takes too much memory"):
        traced(tmp_path / "big.py", "make")


def test_a_python_that_does_not_exist(program: Path) -> None:
    with pytest.raises(CannotEstimate, match="name a Python with --python"):
        trace_training(TrainingSetup(f"{program}:mlp", 1), "/nowhere/python")


def test_a_module_that_trains_when_it_is_imported_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("while True:\n    pass\n")
    setup = TrainingSetup(f"{tmp_path}/train.py:make", 1, import_s=1)
    with pytest.raises(CannotEstimate, match=r"still runs after 1 s.* out of its top level"):
        trace_training(setup, sys.executable)
