"""The walls between the rooms stand: a file that breaks one is found, by name.

Each case adds one file to a copy of the tree and runs the tools of `make lint` there. The copy
without the file passes, so it is the file that they object to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def ruff(house: Path) -> subprocess.CompletedProcess[str]:
    return _said_by([BIN / "ruff", "check", "--no-cache", "--output-format=concise", "src"], house)


def import_linter(house: Path) -> subprocess.CompletedProcess[str]:
    return _said_by([BIN / "lint-imports", "--no-logo", "--no-cache"], house)


def _said_by(command: list[str | Path], house: Path) -> subprocess.CompletedProcess[str]:
    plain = {"PYTHONPATH": str(house / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=house, env=os.environ | plain, text=True, stdout=-1, stderr=-2, timeout=60
    )


def add(house: Path, path: str, line: str) -> None:
    file = house / "src/trainmaster" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'"""A file that should not be."""\n\n{line}\n')


def test_the_house_as_it_is_passes(house: Path) -> None:
    for tool in (ruff, import_linter):
        said = tool(house)
        assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("module", ["time", "os"])
@pytest.mark.parametrize("room", ["policies", "core", "model", "perf", "failures", "placement"])
def test_ruff_finds_an_impure_import(house: Path, room: str, module: str) -> None:
    add(house, f"{room}/sneaky.py", f"import {module} as outside\n\nHELD = outside")
    said = ruff(house)
    assert said.returncode == 1
    assert f"src/trainmaster/{room}/sneaky.py:3:8: TID251 `{module}` is banned" in said.stdout
    assert "Found 1 error." in said.stdout


@pytest.mark.parametrize(
    "line",
    [
        "from os import environ as e",
        "import os.path as e",
        "from pathlib import Path as e",
        "from datetime import datetime\n\ne = datetime.now",
        "from datetime import date\n\ne = date.today",
        "import random\n\ne = random.random",
        "from random import shuffle as e",
        "import sys\n\ne = sys.argv",
        "def e() -> None:\n    import subprocess as p\n\n    p.run",
    ],
)
def test_ruff_finds_other_ways_out(house: Path, line: str) -> None:
    add(house, "policies/sneaky.py", f"{line}\nHELD = e")
    said = ruff(house)
    assert said.returncode == 1
    assert "src/trainmaster/policies/sneaky.py" in said.stdout
    assert "TID251" in said.stdout


@pytest.mark.parametrize(
    ("path", "line", "wall"),
    [
        ("policies/sneaky.py", "import time", "policies.sneaky -> time"),
        ("policies/sneaky.py", "import os", "policies.sneaky -> os"),
        ("policies/sneaky.py", "from os import path", "policies.sneaky -> os"),
        ("policies/sneaky.py", "import random", "policies.sneaky -> random"),
        ("sim/sneaky.py", "import time", "sim.sneaky -> time"),
        ("model/sneaky.py", "import trainmaster.core", "model.sneaky -> trainmaster.core"),
        ("core/sneaky.py", "import trainmaster.perf", "core.sneaky -> trainmaster.perf"),
        ("perf/sneaky.py", "import trainmaster.core", "perf.sneaky -> trainmaster.core"),
        ("failures/sneaky.py", "import trainmaster.core", "failures.sneaky -> trainmaster.core"),
        ("policies/sneaky.py", "import trainmaster.sim", "policies.sneaky -> trainmaster.sim"),
        ("traces/sneaky.py", "import trainmaster.sim", "traces.sneaky -> trainmaster.sim"),
        ("attic.py", "import trainmaster.model", "trainmaster.attic"),
    ],
)
def test_import_linter_finds_the_wrong_way(house: Path, path: str, line: str, wall: str) -> None:
    add(house, path, line)
    said = import_linter(house)
    assert said.returncode == 1
    assert wall in said.stdout
