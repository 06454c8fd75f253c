"""The program of the self-test: what it finds right and wrong, on a slot; on a GPU by its answers alone."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from trainmaster.gpu import self_test


def test_a_wrong_element_is_found_wherever_it_is() -> None:
    first, second = self_test.matrices(16)
    right = first.astype(np.int64) @ second.astype(np.int64)
    assert self_test.is_product(first, second, right)
    for place in ((0, 0), (7, 3), (15, 15)):
        wrong = right.copy()
        wrong[place] += 1
        assert not self_test.is_product(first, second, wrong)
    swapped = right.copy()
    swapped[0], swapped[1] = right[1], right[0]
    assert not self_test.is_product(first, second, swapped)


def test_a_slot_passes_in_a_process_of_its_own() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "trainmaster.gpu.self_test", "slot", "3x1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = json.loads(ended.stdout)
    assert (said["is_tested"], said["is_right"]) == (True, True)
    assert said["copy_mib_s"] > 0
    assert said["mflop_s"] > 100


class PlayedGpu:
    """Runs PTX of the few instructions that the kernel has: a register is an array over all threads."""

    def __init__(self, kernel: str, memory: Any, places: tuple[int, int, int], size: int) -> None:
        body = kernel[kernel.index("ld.param") : kernel.rindex("}")].replace("LOOP:", "LOOP: ;")
        self.lines = [each.strip() for each in body.split(";") if each.strip()]
        self.memory = memory
        self.places = dict(zip(("pa", "pb", "pc", "pn"), (*places, size), strict=True))
        blocks, block = size // (self_test.TILE * self_test.BLOCK), self_test.BLOCK
        grid = np.indices((blocks, blocks, block, block)).reshape(4, -1)
        names = ("%ctaid.y", "%ctaid.x", "%tid.y", "%tid.x")
        self.registers: dict[str, Any] = dict(zip(names, grid, strict=True))

    def value(self, text: str) -> Any:
        if text.startswith("%"):
            return self.registers[text]
        return 0.0 if text.startswith("0f") else int(text)

    def cells(self, address: str) -> Any:
        """The first of four numbers, for each thread."""
        register, _, more = address.strip("[]").partition("+")
        at = self.registers[register] + int(more)
        assert (at % 16 == 0).all(), "four numbers are read from a multiple of their size"
        return at // 4

    def run(self) -> None:
        at = 0
        while self.lines[at] != "ret":
            at = self.step(self.lines[at], at)

    def step(self, line: str, at: int) -> int:
        if line == "LOOP:":
            return at + 1
        if line.startswith("@%p1 bra"):
            return self.lines.index("LOOP:") if np.all(self.registers["%p1"]) else at + 1
        name, _, rest = line.partition(" ")
        four = [each.strip() for each in rest[rest.find("{") + 1 : rest.find("}")].split(",")]
        if name == "ld.global.v4.f32":
            cells = self.cells(rest.rpartition(",")[2].strip())
            self.registers |= {each: self.memory[cells + n] for n, each in enumerate(four)}
            return at + 1
        if name == "st.global.v4.f32":
            cells = self.cells(rest.partition(",")[0])
            for n, each in enumerate(four):
                self.memory[cells + n] = self.registers[each]
            return at + 1
        target, *said = (each.strip() for each in rest.split(","))
        if name.startswith("ld.param"):
            self.registers[target] = np.int64(self.places[said[0].strip("[]")])
            return at + 1
        values = [self.value(each) for each in said]
        kind = name.partition(".")[0]
        self.registers[target] = {
            "mov": lambda a: a,
            "cvt": lambda a: a,
            "cvta": lambda a: a,
            "add": lambda a, b: a + b,
            "mul": lambda a, b: a * b,
            "setp": lambda a, b: a < b,
            "mad": lambda a, b, c: a * b + c,
            "fma": lambda a, b, c: a * b + c,
        }[kind](*values)
        return at + 1


def test_the_kernel_makes_the_product() -> None:
    """By a player of its instructions: no GPU here reads it."""
    size = 2 * self_test.TILE * self_test.BLOCK
    first, second = self_test.matrices(size)
    memory = np.concatenate((first.T.ravel(), second.ravel(), np.zeros(size * size, np.float32)))
    each = 4 * size * size
    PlayedGpu(self_test.kernel(), memory, (0, each, 2 * each), size).run()
    found = memory[2 * size * size :].reshape(size, size)
    assert self_test.is_product(first, second, found)
    assert (found == first @ second).all()


class PlayedCuda:
    """A driver that answers so, and copies nothing: what comes back is what was there."""

    def __init__(self, **answers: int) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.answers.get(name, 0)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"cuInit": 100}, {"is_tested": False, "why": "cuInit answered 100"}),
        ({"cuModuleLoadData": 218}, {"is_tested": False, "why": "cuModuleLoadData answered 218"}),
        ({"cuMemAlloc_v2": 2}, {"is_tested": False, "why": "cuMemAlloc_v2 answered 2"}),
        (
            {"cuDevicePrimaryCtxRetain": 46},
            {"is_tested": False, "why": "cuDevicePrimaryCtxRetain answered 46"},
        ),
        (
            {"cuCtxSynchronize": 214},
            {"is_tested": True, "is_right": False, "why": "cuCtxSynchronize answered 214"},
        ),
        ({}, {"is_tested": True, "is_right": False, "why": "a matrix product came out wrong"}),
    ],
    ids=[
        *("no device", "kernel of another driver", "no memory is free", "another has it"),
        *("memory error", "wrong result"),
    ],
)
def test_what_the_driver_answers_on_a_gpu(
    answers: dict[str, int], said: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "GPU_SIZE", 128)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: PlayedCuda(**answers))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert self_test.tested(("gpu", "GPU-a")) == said


def test_a_machine_without_libcuda_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = self_test.tested(("gpu", "GPU-a"))
    assert found == {"is_tested": False, "why": "libcuda cannot be loaded (no such file)"}
