"""`trainmaster split` as a user has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tm

PROGRAM = """
from torch import nn

def make_model():
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
"""


@pytest.fixture(autouse=True)
def program(folder: Path) -> None:
    (folder / "train.py").write_text(PROGRAM)


def test_a_model_that_fits_on_no_device_is_spread_over_two(tm: Tm, folder: Path) -> None:
    said = tm("split train.py:make_model --devices 1.5MiB,1.5MiB --batch 4 --plot cut.svg --json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["captured_by"] == "torch.export"
    assert {each["device"] for each in found["operators"]} == {"0", "1"}
    assert all(0 < each["used"] <= each["memory"] for each in found["devices"])
    assert [each["from"] for each in found["transfers"]] == ["0"] * len(found["transfers"]) != []
    assert found["step_ms"] == max(each["end_ms"] for each in found["operators"])
    assert (folder / "cut.svg").read_bytes().startswith(b"<?xml")


def test_operators_with_one_reader_are_placed_as_one(tm: Tm) -> None:
    said = tm("split train.py:make_model --devices 4MiB --batch 4 --colocate 1KiB --json")
    assert said.code == 0, said.err
    apart = {each["name"] for each in json.loads(said.out)["operators"]}
    said = tm("split train.py:make_model --devices 4MiB --batch 4 --colocate 3MiB --json")
    assert said.code == 0, said.err
    (one,) = json.loads(said.out)["operators"]
    assert set(one["name"].split("+")) == apart
    assert one["layer"] == "4"


def test_devices_that_are_too_small_are_refused(tm: Tm) -> None:
    said = tm("split train.py:make_model --devices 1MiB --batch 4")
    assert said.code == 1
    assert "use a larger device" in said.err or "use more devices" in said.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train.py --devices 1GiB", "names no function"),
        ("train.py:make_model --devices much", "`much` is not a device"),
        ("train.py:make_model --devices 1GiB,,2GiB", "`` is not a device"),
        ("train.py:make_model --devices 0GiB", "not an amount of memory"),
        ("train.py:make_model --devices 1GiB@0", "`1GiB@0` is not a device"),
        ("train.py:make_model --devices 1GiB --link fast", "such as 12GB/s,20us"),
        ("train.py:make_model --devices 1GiB --plot cut.gif", "none of .svg, .png and .pdf"),
    ],
)
def test_bad_input_is_one_sentence(tm: Tm, words: str, sentence: str) -> None:
    said = tm(f"split {words}")
    assert said.code == 2, said.err
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1
