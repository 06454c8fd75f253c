"""`profile packing`: copies of a program side by side. `torch` is a stand-in with the real one's hook."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Tm
from tests.unit.sdk.test_path_entry import OPTIMIZER
from trainmaster.cli.support.packing_advice import advise, linear_law
from trainmaster.engines.packing_experiment import ExperimentError, Measurement, measurement
from trainmaster.gpu import fake_driver

FIXTURES = Path(__file__).parents[1] / "fixtures"
STEPS = """
import os, sys, time
from torch.optim.optimizer import SGD
print("MPS" if "CUDA_MPS_PIPE_DIRECTORY" in os.environ else "turns", file=open(sys.argv[1], "a"))
optimizer = SGD()
while True:
    time.sleep(0.01)
    optimizer.step()
"""


@pytest.fixture
def train(write: Callable[[str, str], Path], folder: Path) -> Path:
    """A program that steps every 10 ms, beside a package torch."""
    (folder / "torch/optim").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("")
    (folder / "torch/optim/__init__.py").write_text("from torch.optim.optimizer import *")
    (folder / "torch/optim/optimizer.py").write_text(OPTIMIZER)
    return write("train.py", STEPS)


def test_copies_are_measured_with_and_without_mps(process, train: Path, folder: Path) -> None:
    gpus = fake_driver.make_folder(folder / "gpus")
    env = {"TRAINMASTER_FAKE_GPUS": str(gpus), "PATH": f"{FIXTURES / 'mps'}:{os.environ['PATH']}"}
    said = process(
        "profile packing --copies 3 --seconds 0.5 --out out --json -- python3 train.py modes",
        env=env,
    )
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert [(row["sharing"], row["copies"]) for row in answer["rows"]] == [
        *(("time", 1), ("time", 3), ("mps", 1), ("mps", 3))
    ]
    assert all(row["mean_ms"] >= 10 and row["max_ms"] >= row["mean_ms"] for row in answer["rows"])
    assert answer["device"] == "H200"
    assert (folder / "modes").read_text().split() == [*(["turns"] * 4), *(["MPS"] * 4)]
    assert json.loads((folder / "out/packing.json").read_text()) == answer
    assert (folder / "out/packing.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_gpu_it_says_so_and_a_program_that_fails_is_quoted(
    process, write: Callable[[str, str], Path]
) -> None:
    write("train.py", "raise SystemExit('no data here')")
    said = process("profile packing -- python3 train.py")
    assert said.returncode == 1
    assert "there is no GPU here" in said.stderr
    assert "Error: 1 copy by turns: a copy failed with exit code 1: no data here" in said.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--copies 1,x -- true", "--copies 1,x is not a list"),
        ("--copies 0 -- true", "--copies 0 is not a list"),
        ("--seconds 0 -- true", "--seconds 0 is not a length of time"),
        ("--mps -- true", "--mps cannot be had: there is no GPU here"),
        ("--gpu 7 -- true", "--gpu 7 is not one of this machine's GPUs: none"),
        ("--out there -- true", "--out there is a file"),
    ],
)
def test_bad_input(tm: Tm, folder: Path, line: str, why: str) -> None:
    (folder / "there").touch()
    said = tm(f"profile packing {line}")
    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_only_steps_within_the_measured_seconds_count() -> None:
    row = measurement("time", [[0.9, 1.0, 1.2, 1.6, 9.0], [1.1, 1.3, 1.5]], 1.0, 1.0)
    assert (row.copies, row.steps, round(row.max_ms)) == (2, 4, 400)
    assert round(row.mean_ms) == 250
    assert round(row.variance_ms2) == 7500
    assert round(row.steps_per_s, 3) == round(2 / 0.6 + 2 / 0.4, 3)
    with pytest.raises(ExperimentError, match="fewer than 2 steps"):
        measurement("time", [[1.5]], 1.0, 1.0)


def _row(sharing: str, copies: int, steps_per_s: float) -> Measurement:
    return Measurement(sharing, copies, 100, steps_per_s, 1.0, 1.0, 0.0)


def test_the_fewest_copies_near_the_best_are_recommended() -> None:
    by_turns = [_row("time", 1, 400), _row("time", 2, 700), _row("time", 4, 720)]
    assert advise(by_turns)[:2] == (2, "time")
    advice = advise([*by_turns, _row("mps", 1, 410), _row("mps", 4, 1250), _row("mps", 8, 1300)])
    assert advice == (4, "mps", 3.125)
    assert "4 copies under MPS" in advice.sentence
    assert "concurrency=4 --set sharing=mps" in advice.command
    assert advise([_row("time", 1, 88), _row("time", 2, 80), _row("mps", 2, 90)])[:2] == (1, "time")


def test_the_times_by_turns_give_the_linear_law_of_the_machine() -> None:
    rows = [
        Measurement("time", copies, 100, copies / times, times, times, 0.0)
        for copies, times in ((1, 1.0), (2, 2.1), (4, 4.2))
    ]
    law = linear_law([*rows, _row("mps", 8, 4)])
    assert law is not None
    assert (law.a, law.b) == (pytest.approx(-0.05), pytest.approx(1.0643, abs=5e-5))
    assert "{law: linear, a: -0.0500, b: 1.0643}" in law.sentence
    assert linear_law(rows[:2]) is None
