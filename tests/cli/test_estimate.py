"""`trainmaster estimate` as a user has it: numbers that agree, and one sentence where there are none."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Tm
from trainmaster.client.program_profiles import StoredProfile, keep, with_profile
from trainmaster.daemon.submissions import stated_profile
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.profile import Profile

PROGRAM = """
from torch import nn

def make_model():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
"""


@pytest.fixture(autouse=True)
def program(folder: Path) -> None:
    (folder / "train.py").write_text(PROGRAM)


def test_the_parts_add_up_and_the_interval_holds_them(tm: Tm) -> None:
    said = tm(
        "estimate train.py:make_model -b 64 --optimizer adam --dtype bf16 --context 600MiB --json"
    )
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert sum(found["parts"].values()) == found["expected"]
    assert found["low"] < found["expected"] < found["high"]
    assert found["parts"]["CUDA context"] == 600 << 20
    assert found["source"] == "static"


def test_the_largest_batch_is_one_whose_top_fits(tm: Tm) -> None:
    said = tm("estimate train.py:make_model -b 4 --input 65536x1024 --find-max-batch 8GiB --json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["high"] <= 8 << 30
    assert 1 <= found["batch"] < 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train.py", "names no function"),
        ("train.py:absent", "has no function `absent`"),
        ("train.py:make_model --find-max-batch much", "write 80GiB"),
        ("train.py:make_model --context much", "write 600MiB"),
        ("train.py:make_model --find-max-batch 1MiB", "not even one example fits"),
        ("train.py:make_model --zero 2", "say how many with --ranks 8"),
        ("train.py:make_model --input wide", "--input is a shape"),
    ],
)
def test_bad_input_is_one_sentence(tm: Tm, words: str, sentence: str) -> None:
    said = tm(f"estimate {words}")
    assert said.code in (1, 2)
    assert said.out == ""
    assert sentence in said.err
    assert said.err.count("Error:") == 1


def test_an_estimate_is_kept_for_a_program_and_goes_with_its_jobs(tm: Tm, folder: Path) -> None:
    """Beside what was measured of it; a job of another command has none."""
    command = "python train.py --batch 64"
    measured = Profile(step_us=1_000, per_gpu=True)
    keep(StoredProfile(tuple(command.split()), str(folder), "CPU", measured), None)
    said = tm(f"estimate train.py:make_model -b 64 --json --for {shlex.quote(command)}")
    assert said.code == 0, said.err
    made = json.loads(said.out)
    spec = with_profile({"command": command, "workdir": str(folder)})
    bounds = {f"memory_{bound}": made[bound] for bound in ("low", "expected", "high")}
    assert spec["profile"] == {"step_us": 1_000} | bounds
    estimate = MemoryEstimate(made["low"], made["expected"], made["high"], MemorySource.STATIC)
    assert stated_profile(spec) == replace(measured, memory_estimate=estimate)
    assert "profile" not in with_profile({"command": "python other.py", "workdir": str(folder)})


@pytest.mark.parametrize("command", ["''", '"python \'train.py"'])
def test_what_is_no_command_keeps_nothing(tm: Tm, folder: Path, command: str) -> None:
    said = tm(f"estimate train.py:make_model --for {command}")
    assert said.code == 2
    assert "--for" in said.err
    assert not list(folder.rglob("profiles/*"))


@pytest.mark.parametrize(
    ("call", "halves"),
    [
        (".to('cuda' if torch.cuda.is_available() else 'cpu')", False),
        (".half().float()", False),
        (".bfloat16()", True),
    ],
)
def test_a_factory_may_convert_its_model(tm: Tm, write, call: str, halves: bool) -> None:
    """Tied weights stay tied: they count once."""
    write(
        "tied.py",
        "import torch\n"
        "def make_model():\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024))\n"
        "    model[1].weight = model[0].weight\n"
        f"    return model{call}\n"
        "def make_batch(size):\n"
        "    return torch.zeros(size, 1024, dtype=next(make_model().parameters()).dtype)\n",
    )
    said = tm("estimate tied.py:make_model -b 8 --optimizer sgd --json")
    assert said.code == 0, said.err
    whole = 4 * (1024 * 1024 + 2 * 1024)
    assert json.loads(said.out)["parts"]["parameters"] == (whole // 2 if halves else whole)
