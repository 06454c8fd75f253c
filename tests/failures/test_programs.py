"""Real programs that fail in the ways of the table are classified; those that resemble none are unknown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failures import scores
from tests.failures.scores import PROGRAMS, Case
from trainmaster.model.failure import UNKNOWN_REASON


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Every program, run to its end."""
    out = tmp_path_factory.mktemp("programs")
    runner = Path(__file__).with_name("run_programs.py")
    command = [sys.executable, runner, out, *PROGRAMS]
    env = {**os.environ, "TMPDIR": str(out)}
    subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL, env=env)
    found = {}
    for program in PROGRAMS:
        code = int((out / f"{program.stem}.code").read_text())
        log = (out / f"{program.stem}.log").read_text(errors="replace").splitlines()
        assert code != 0, f"{program.name} did not fail"
        expected = scores.stated(program, "reason")
        found[program.stem] = scores.case(program.stem, expected, code, log)
    return found


def test_programs_that_fail_in_the_ways_of_the_table(cases: dict[str, Case]) -> None:
    known = [each for each in cases.values() if each.expected != UNKNOWN_REASON]
    assert len(known) >= 30
    print(scores.figures(list(cases.values())))
    assert scores.wrong(known) == {}


def test_programs_that_resemble_none_are_unknown(cases: dict[str, Case]) -> None:
    unknown = [each for each in cases.values() if each.expected == UNKNOWN_REASON]
    assert len(unknown) >= 10
    assert scores.wrong(unknown) == {}


def test_the_lines_show_the_reason(cases: dict[str, Case]) -> None:
    assert (
        cases["cuda_oom"].found.lines[-1].startswith("torch.OutOfMemoryError: CUDA out of memory")
    )
    assert any("mat1 and mat2" in line for line in cases["shape_mismatch"].found.lines)
    assert cases["unknown_runtime_error"].found.lines[-1].startswith("RuntimeError: the teacher")


def test_an_input_that_cannot_be_read_is_named(cases: dict[str, Case]) -> None:
    assert cases["missing_file"].found.path == "/data/missing/train.csv"
    assert cases["loader_missing_file"].found.path.startswith("/data/imagenet/train/n0144/")


def test_the_first_rank_that_failed_is_named_by_the_launchers_log(cases: dict[str, Case]) -> None:
    assert cases["torchrun_child"].found.rank == 1
    assert cases["torchrun_child"].found.lines[-1] == "KeyError: 'labels'"
    assert cases["ddp_rank"].found.rank == 1
    assert "ddp_rank.py" in cases["ddp_rank"].found.lines[0]
