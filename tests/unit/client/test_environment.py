"""Which variables go along with a job: the list of the pages, and nothing that would mislead it."""

from __future__ import annotations

from pathlib import Path

from trainmaster.client.environment import NEVER, PROGRAMS, SETTINGS, exported

PAGE = Path(__file__).parents[3] / "docs/cli.md"


def test_the_list_is_the_one_of_the_page() -> None:
    text = PAGE.read_text()
    missing = [each for each in (*PROGRAMS, *SETTINGS, *NEVER) if f"`{each}`" not in text]
    assert missing == []


def test_patterns_choose() -> None:
    ours = {"HF_HOME": "a", "HFX": "b", "CONDA_PREFIX": "c", "WANDB_API_KEY": "d", "SECRET": "e"}
    ours |= {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0", "CUDA_LAUNCH_BLOCKING": "1"}
    ours |= {"BASH_FUNC_x%%": "() {", "LC_ALL": "", "CUDA_HOME": "/cuda"}
    go = {"HF_HOME", "CONDA_PREFIX", "WANDB_API_KEY", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME"}
    assert exported(ours).keys() == go
    assert exported(ours, everything=True).keys() == go | {"HFX", "SECRET"}
    inside = exported(ours, in_container=True)
    assert inside.keys() == go - {"CONDA_PREFIX", "CUDA_HOME"}
