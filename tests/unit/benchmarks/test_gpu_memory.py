"""The programs whose memory is measured: each is there, named once, and measured without Trainmaster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.bundle import ROOT, copy_programs
from benchmarks.gpu.memory.combinations import CALIBRATION, HERE, USER_STYLE


def test_there_are_enough_of_each_kind() -> None:
    every = (*CALIBRATION, *USER_STYLE)
    assert len({each.name for each in every}) == len(every) >= 20
    assert len(USER_STYLE) >= 10
    assert {each.kind for each in every} == {"MLP", "CNN", "Transformer", "RNN"}
    assert {each.dtype for each in USER_STYLE} == {"fp32", "bf16"}
    assert {each.optimizer for each in USER_STYLE} == {"sgd", "momentum", "adam", "adamw"}


def test_every_script_of_the_folder_is_measured_as_its_own_program() -> None:
    scripts = {path.stem for path in HERE.glob("user_*.py")}
    assert scripts == {each.program for each in USER_STYLE}
    for each in (*CALIBRATION, *USER_STYLE):
        text = (HERE / f"{each.program}.py").read_text()
        for function in (each.factory, "make_batch", "compute_loss"):
            assert f"\ndef {function}(" in text, (each.name, function)


def test_the_bundle_measures_without_trainmaster(tmp_path: Path) -> None:
    copy_programs(tmp_path)
    (tmp_path / "benchmarks" / "__init__.py").touch()
    blocked = "import sys; sys.modules['trainmaster'] = None; sys.modules['pynvml'] = None"
    code = f"{blocked}; import benchmarks.gpu.memory.__main__ as program; print(program.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path)), (done.stdout, ROOT)
