"""Sixty batch scripts as clusters' own pages have them: what becomes of each, and what is said to be lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api import schema
from trainmaster.cli.main import main
from trainmaster.config.job_file import jobs_in_yaml
from trainmaster.config.slurm.job import Imported, Wishes, imported
from trainmaster.config.slurm.job_text import job_text
from trainmaster.config.slurm.script import read_script

FOLDER = Path(__file__).parents[2] / "fixtures/slurm"
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.sbatch"))}

FACTS: dict[str, dict[str, Any]] = {
    "pytorch-single-gpu": {"gpus": 1, "cpus": 8, "memory": "32G", "max_runtime": "4h"},
    "pytorch-ddp-tutorial": {"gpus": 4, "ranks": "gpu", "cpus": 4},
    "ddp-task-per-gpu": {"gpus": 8, "ranks": "gpu", "memory": "45G", "max_runtime": "1d"},
    "torchrun-one-node": {"gpus": 8, "ranks": None, "cpus": 12, "memory": None},
    "deepspeed-launcher": {"gpus": 4, "cpus": 12, "memory": "90G", "ranks": None},
    "deepspeed-hostfile": {"gpus": "A100:16", "max_runtime": "1d"},
    "megatron-gpt-pyxis": {"gpus": 8, "ranks": "gpu", "held": True},
    "bigscience-launcher": {"gpus": 32, "ranks": None, "cpus": 5, "max_runtime": "20h"},
    "jax-multihost": {"gpus": 8, "ranks": "gpu", "cpus": 16},
    "jax-one-process": {"gpus": 4, "ranks": None, "cpus": 8, "max_runtime": "10h"},
    "hf-trainer": {"gpus": 1, "max_runtime": "1h30m", "retries": None},
    "hf-accelerate": {"notify": {"to": ["ada@example.org"], "on": ["started", "ended", "failed"]}},
    "array-seeds": {"array": "0-9", "max_runtime": "2h30m"},
    "array-steps-limit": {"array": "0,7,25,50,75,100%3", "max_runtime": "6h"},
    "array-from-file": {"array": "1-48%8", "memory": "16000M", "max_runtime": "1d"},
    "array-single": {"array": "5-5", "gpus": 1},
    "dependency-afterok": {"depends_on": ["1234", "1235", "1300:any"], "max_runtime": "45m"},
    "dependency-notok": {"depends_on": ["900:fail"]},
    "dependency-or": {"depends_on": None, "held": True},
    "dependency-after-start": {"depends_on": None, "held": True},
    "pyxis-sqsh": {
        "ranks": "gpu",
        "container": {
            "enroot": "/images/nemo-24.05.sqsh",
            "options": ["--mount", "/lustre/data:/data", "--mount", "/lustre/ckpt:/lustre/ckpt"],
        },
    },
    "pyxis-registry-two-images": {"container": None, "held": True},
    "apptainer-nv": {"gpus": "RTX3090:2", "container": None},
    "nersc-perlmutter": {"gpus": 8, "ranks": "gpu", "cpus": 32},
    "computecanada-venv": {"gpus": "V100L:1", "memory": "32000M"},
    "computecanada-ddp": {"gpus": 4, "ranks": "gpu", "memory": "4G"},
    "csc-puhti": {"gpus": "V100:4", "cpus": 10, "memory": "80G"},
    "csc-lumi": {"gpus": 8, "ranks": "gpu", "memory": "60G", "max_runtime": "2d"},
    "cineca-leonardo": {"gpus": 4, "ranks": None, "notify": None},
    "olcf-frontier": {"gpus": 16, "ranks": "gpu", "max_runtime": "10m"},
    "a100-constraint": {"gpus": "A100|H100:2", "max_runtime": None},
    "sherlock-constraint": {"gpus": 1, "priority": -100},
    "lightning-signal": {"gpus": 2, "max_runtime": "1h58m30s", "grace_period": "1m30s"},
    "requeue-trap": {"max_runtime": "3h55m", "grace_period": "5m", "retries": None},
    "term-signal": {"max_runtime": "8m", "grace_period": "2m", "retries": 0},
    "packed-steps": {"gpus": 4, "ranks": None, "cpus": 8},
    "packed-loop": {"gpus": 8, "ranks": None, "max_runtime": "1d12h30m"},
    "mps-half": {"gpus": 0.5, "sharing": "mps"},
    "shards": {"gpus": 1},
    "mig-slice": {"gpus": "1g.10gb:1"},
    "cpu-preprocess": {"gpus": 0.1, "cpus": 32, "memory": "128G"},
    "cpu-mpi": {"gpus": 0.1, "cpus": 96, "memory": "192G"},
    "ray-cluster": {"gpus": 4, "ranks": None, "cpus": 8},
    "environment-and-folder": {
        "workdir": "/home/ada/project",
        "env": {"DATA": "/data/imagenet", "LR": "0.1"},
        "max_runtime": "2m",
    },
    "short-options": {"name": "short", "gpus": 2, "cpus": 4, "memory": "32G", "held": True},
    "odds-and-ends": {"name": "odd-name", "priority": 500, "held": True, "max_runtime": None},
    "het-job": {"held": True},
    "posix-sh": {"name": "quoted name", "max_runtime": "15m"},
    "late-directives": {"memory": "8G", "max_runtime": "1h"},
    "vllm-batch": {"gpus": "H100:2", "array": "0-3", "memory": "100G"},
}
"""Fields by hand; None: not in the file."""


def read(name: str, wishes: Wishes | None = None) -> Imported:
    return imported(read_script(SCRIPTS[name].read_text()), wishes)


def body(found: Imported) -> str:
    command = found.fields["command"]
    return command if isinstance(command, str) else command[-1]  # type: ignore[index]


def lost(found: Imported) -> dict[int, str]:
    return {each.line: f"{each.text}: {each.why}" for each in found.not_understood}


def test_there_are_sixty() -> None:
    assert len(SCRIPTS) == 60
    assert set(FACTS) <= set(SCRIPTS)


@pytest.mark.parametrize("name", FACTS)
def test_fields(name: str) -> None:
    found = read(name).fields
    assert {field: found.get(field) for field in FACTS[name]} == FACTS[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_job_file_is_valid_and_says_what_was_read(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the published schema too; nothing is lost between the value and the text."""
    from jsonschema_rs import validator_for

    found = read(name)
    text = job_text(found.fields)
    ((_, raw),) = jobs_in_yaml(text)
    assert raw == json.loads(json.dumps(dict(found.fields)))
    validator_for(json.loads(schema.published())).validate(raw)
    assert main(["import", str(SCRIPTS[name]), "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    written = (tmp_path / f"{name}.yaml").read_text()
    assert written == (FOLDER / "expected" / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "python-script"])
def test_what_runs_is_a_script_for_the_shell_without_slurm(name: str) -> None:
    shell = shutil.which("bash")
    assert shell is not None, "this test needs bash"
    text = body(read(name))
    checked = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    code = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    assert not [line for line in code if line.lstrip().startswith("srun ")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_directive_is_dropped_in_silence(name: str) -> None:
    """Every option without a field of its own is named among the remarks."""
    script = read_script(SCRIPTS[name].read_text())
    found = imported(script)
    lines = {each.line for each in (*found.not_understood, *found.changed)}
    silent = {
        "time",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "job-name",
        "gres",
        "gpus",
        "array",
        "mem",
    }
    silent |= {
        "gpus-per-node",
        "gpus-per-task",
        "cpus-per-task",
        "cpus-per-gpu",
        "mem-per-gpu",
        "comment",
    }
    silent |= {
        "mem-per-cpu",
        "requeue",
        "no-requeue",
        "hold",
        "chdir",
        "nice",
        "priority",
        "input",
        "signal",
    }
    silent |= {
        "container-image",
        "container-mounts",
        "mail-type",
        "mail-user",
        "open-mode",
        "export",
    }
    for each in script.directives:
        if each.said.name not in silent:
            assert each.line in lines, each


def test_what_is_not_understood_is_named_with_its_line() -> None:
    found = lost(read("odds-and-ends"))
    assert set(found) == {3, 4, 5, 6, 8, 10, 11, 14}
    assert "--begin=now+1hour: a job does not begin at a set time here; it is held" in found[3]
    assert found[11] == "--no-such-option=3: sbatch has no such option"
    assert "SLURM_TOPOLOGY_ADDR" in " ".join(
        each.text for each in read("odds-and-ends").not_understood
    )
    assert "there is no sbatch here: `trainmaster submit FILE`" in lost(read("chain-sbatch"))[7]
    assert "SIGTERM comes instead" in lost(read("requeue-trap"))[4]
    assert "nvme" in lost(read("csc-puhti"))[9]
    assert "several parts" in lost(read("het-job"))[3]


def test_queues_and_types_by_map() -> None:
    found = read(
        "megatron-gpt-pyxis", Wishes({"high": "urgent", "luna": "urgent", "llm": "urgent"})
    )
    assert found.fields["queue"] == "urgent"
    assert 3 not in lost(found)
    assert (
        read("deepspeed-hostfile", Wishes(gpu_types={"a100": "H200"})).fields["gpus"] == "H200:16"
    )
    assert read("deepspeed-hostfile", Wishes(gpu_types={"a100": ""})).fields["gpus"] == 16


def test_steps_with_gpus_of_their_own_take_turns() -> None:
    text = body(read("packed-steps"))
    assert "next_gpus 2; CUDA_VISIBLE_DEVICES=$STEP_GPUS python train.py --fold 2 &" in text
    program = text.replace("python train.py", "echo $CUDA_VISIBLE_DEVICES;:").replace("> fold", "#")
    program = program.replace("CUDA_VISIBLE_DEVICES=$STEP_GPUS echo $CUDA", "echo $STEP_GPUS #")
    said = subprocess.run(
        ["bash", "-c", program],
        text=True,
        capture_output=True,
        env={"CUDA_VISIBLE_DEVICES": "a,b,c,d"},
    )
    assert said.stdout.split() == ["a", "b", "c,d"], said.stderr


def test_the_devices_and_the_address_of_the_manager_count() -> None:
    text = body(read("juwels-booster"))
    assert '# set by the manager: export CUDA_VISIBLE_DEVICES="0,1,2,3"' in text
    assert "# set by the manager: export MASTER_PORT=7010" in text
    assert "the manager sets CUDA_VISIBLE_DEVICES" in " ".join(
        each.why for each in read("juwels-booster").changed
    )


def test_output_files_are_whole_when_the_script_has_ended(tmp_path: Path) -> None:
    """The copies are waited for, also where the script ends at once; its exit code stays."""
    script = (
        "#!/bin/sh\n#SBATCH -J both -o logs/%x.out -e logs/%x.err --gpus=1\n"
        "echo to output; echo to error >&2; exit 7\n"
    )
    found = imported(read_script(script), Wishes(writes_output=True))
    command = found.fields["command"]
    assert isinstance(command, list)
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout, said.stderr) == (7, "to output\n", "to error\n")
    assert (tmp_path / "logs/both.out").read_text() == "to output\n"
    assert (tmp_path / "logs/both.err").read_text() == "to error\n"
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
    assert again.returncode == 7
    assert (tmp_path / "logs/both.out").read_text() == "to output\n" * 2
    text = body(read("torchrun-one-node", Wishes(writes_output=True)))
    assert '"logs/${SLURM_JOB_NAME}_${SLURM_JOB_ID}.out"' in text
    assert "export SLURM_JOB_ID=" in text


def test_all_variables() -> None:
    text = body(read("mps-half", Wishes(all_variables=True)))
    assert "export SLURM_PROCID=" in text
    assert "export SLURM_JOB_NAME='small'" in text


def test_mounts_of_a_container_are_noted_as_refused_where_jobs_run_as_their_users() -> None:
    found = read("pyxis-sqsh")
    said = [each.why for each in found.changed if "container-mounts" in each.text]
    assert said == ["a manager that runs jobs as their users (`up --system`) refuses --mount"]


PYTHON = """#!/usr/bin/env python3
#SBATCH --array=3,5
#SBATCH --cpus-per-task=2
import os, sys
print(os.environ["SLURM_JOB_ID"], os.environ["SLURM_CPUS_PER_TASK"], 'it\\'s "here"')
print(os.environ.get("SLURM_CLUSTER_NAME"), os.environ.get("SLURM_ARRAY_TASK_MAX"))
"""


@pytest.mark.parametrize("sets_all", [False, True])
def test_a_script_for_python_has_the_variables_that_have_a_counterpart(sets_all: bool) -> None:
    found = imported(read_script(PYTHON), Wishes(all_variables=sets_all))
    assert list(lost(found).values()) == [
        "SLURM_CLUSTER_NAME: this variable of Slurm has no counterpart, and is not set"
    ]
    ((_, fields),) = jobs_in_yaml(job_text(found.fields))
    command = fields["command"]
    said = subprocess.run(
        command,
        text=True,
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "TRAINMASTER_JOB": "7_3", "TRAINMASTER_ARRAY_INDEX": "3"},
    )
    assert said.stdout.splitlines() == ['700003 2 it\'s "here"', "None 5"]


def test_what_all_variables_sets_is_set_for_python_too() -> None:
    script = "#!/usr/bin/python3\n#SBATCH --gpus=1\nimport mine\n"
    plain, full = (
        imported(read_script(script), Wishes(all_variables=each)) for each in (False, True)
    )
    assert plain.fields["command"] == ["/usr/bin/python3", "-c", "import mine\n"]
    assert 'export SLURM_JOB_ID="$TRAINMASTER_JOB"' in full.fields["command"][2]  # type: ignore[index]
