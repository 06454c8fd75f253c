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
        [sys.executable, "-m", "trainmaster.gpu.self_test", "slot", "3"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = json.loads(ended.stdout)
    assert (said["is_tested"], said["is_right"]) == (True, True)
    assert said["copy_mib_s"] > 0


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
