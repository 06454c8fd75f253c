"""`trainmaster import` as its user has it: files, reports, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Tm

Put = Callable[[str, str], Path]
SCRIPT = """#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH --gres=gpu:1
#SBATCH --partition=gpu
#SBATCH --time=4:00:00
srun python train.py
"""


def test_a_script_becomes_a_job_file_and_what_is_lost_is_listed(tm: Tm, write: Put) -> None:
    write("train.sbatch", SCRIPT)
    said = tm("import train.sbatch")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "train.sbatch -> train.yaml",
        "  not understood:",
        "    line 4: --partition=gpu: no queue is known for it: `--queue-map gpu=QUEUE` gives one",
        "  said in another way:",
        "    line 6: srun: the command runs without it",
    ]
    assert Path("train.yaml").read_text() == (
        "# Imported from train.sbatch by `trainmaster import`.\n"
        "# Not understood:\n"
        "#   line 4: --partition=gpu: no queue is known for it: `--queue-map gpu=QUEUE` gives one\n"
        "name: resnet\n"
        "command: python train.py\n"
        "gpus: 1\n"
        "max_runtime: 4h\n"
    )
    again = tm("import train.sbatch")
    assert again.code == 2
    assert again.err == (
        "Error: train.yaml is there already: add --force to replace it, or choose --out.\n"
    )
    assert tm("import train.sbatch --force --queue-map gpu=vision").code == 0
    assert "queue: vision" in Path("train.yaml").read_text()


def test_several_go_into_a_folder_or_to_standard_output(tm: Tm, write: Put) -> None:
    write("a.sbatch", SCRIPT)
    write("b.sh", SCRIPT.replace("resnet", "bert"))
    assert tm("import a.sbatch b.sh --out jobs").code == 0
    assert sorted(path.name for path in Path("jobs").iterdir()) == ["a.yaml", "b.yaml"]
    said = tm("import a.sbatch b.sh --out -")
    assert said.out.count("---\n") == 1
    assert "not understood" in said.err
    found = json.loads(tm("import a.sbatch --out - --json").out)["scripts"]
    assert found[0]["job"]["name"] == "resnet"
    assert found[0]["not_understood"] == [
        {
            "line": 4,
            "text": "--partition=gpu",
            "why": "no queue is known for it: `--queue-map gpu=QUEUE` gives one",
        }
    ]
    twice = tm("import a.sbatch a.sbatch --out other")
    assert twice.code == 2
    assert not Path("other").exists()


def test_what_is_no_batch_script_is_refused(tm: Tm, write: Put) -> None:
    write("plain.sh", "#!/bin/sh\necho hello\n")
    said = tm("import plain.sh")
    assert said.code == 2
    assert said.err.startswith("Error: plain.sh has no #SBATCH line: `trainmaster run -- plain.sh`")
    write("empty.sh", "#!/bin/sh\n#SBATCH -n1\n")
    assert "nothing to run" in tm("import empty.sh").err
    assert "must be OLD=NEW" in tm("import plain.sh --queue-map gpu").err
    assert "cannot be read" in tm("import gone.sh").err


def test_submit_says_to_import_a_batch_script(tm: Tm, write: Put) -> None:
    write("train.sbatch", SCRIPT)
    said = tm("submit train.sbatch --url http://127.0.0.1:1")
    assert said.code == 2
    assert "is a Slurm script: `trainmaster import train.sbatch` makes a job file of it" in said.err
