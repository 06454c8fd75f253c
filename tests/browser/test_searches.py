"""Hydra and Optuna as clients of a live manager.

They are here because both take some seconds; no browser is needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trainmaster
from tests.live.daemons import LiveDaemon

ROOT = Path(__file__).parents[2]
HYDRA_APP = """import hydra

@hydra.main(config_path=None, config_name=None, version_base="1.3")
def train(config):
    print("depth", config.depth)
    if config.depth == 3:
        raise ValueError("depth 3 is too much")
    return config.depth * 2

train()
"""


@pytest.fixture
def environment(manager: LiveDaemon, tmp_path: Path) -> dict[str, str]:
    """Of programs that find the manager by themselves."""
    return os.environ | {
        "TRAINMASTER_DATA": str(manager.folder),
        "PYTHONPATH": str(ROOT / "integrations/hydra"),
        "XDG_DATA_HOME": str(tmp_path / "share"),
    }


def ran(environment: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=300,
    )


def test_a_sweep_of_hydra_is_an_array(
    manager: LiveDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(HYDRA_APP)
    sweep = ("app.py", "-m", "hydra/launcher=trainmaster", "hydra.launcher.job.gpus=1")
    said = ran(environment, tmp_path, *sweep, "+depth=1,2,3")
    assert said.returncode == 1
    assert "depth 3 is too much" in said.stderr
    jobs = trainmaster.Client(data=manager.folder).array("app")
    assert [job.state for job in jobs] == ["succeeded", "succeeded", "failed"]
    assert jobs[1].result().return_value == 4
    assert jobs[0].logs() == "depth 1\n"


def test_a_search_of_optuna_tells_results_and_prunes(
    environment: dict[str, str], tmp_path: Path
) -> None:
    program = str(ROOT / "examples/optuna_search.py")
    sizes = ("--trials", "8", "--at-once", "4", "--steps", "6", "--step-s", "0.1")
    said = ran(environment, tmp_path, program, *sizes)
    assert said.returncode == 0, said.stderr
    assert re.search(r"^8 trials: .*complete", said.stdout)
    assert re.search(r"^best: 0\.\d+ with {'lr'", said.stdout, re.M)
