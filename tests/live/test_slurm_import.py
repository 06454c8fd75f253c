"""Slurm scripts, imported and really run: what they read of Slurm has the values that they expect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live

pytestmark = pytest.mark.live

SCRIPTS = {
    "single": """#!/bin/bash
#SBATCH --job-name=single
#SBATCH --gres=gpu:1
#SBATCH --time=10
#SBATCH --export=ALL,GREETING=hello
set -euo pipefail
cd $SLURM_SUBMIT_DIR
srun python -c "import os; print(os.environ['GREETING'], os.path.basename(os.getcwd()))"
echo "$SLURM_JOB_NAME job $SLURM_JOB_ID port $((10000 + SLURM_JOB_ID % 1000))"
""",
    "tasks": """#!/bin/bash
#SBATCH --job-name=tasks
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH --time=0-0:10
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=29500
srun --label bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS at $MASTER_ADDR" > task-$SLURM_PROCID.txt'
""",
    "array": """#!/bin/bash
#SBATCH --array=2-6:2%1
#SBATCH --gpus=1
FOLDS=(a b c d e f g)
echo "fold ${FOLDS[$SLURM_ARRAY_TASK_ID]} of $SLURM_ARRAY_TASK_COUNT" > fold-$SLURM_ARRAY_TASK_ID.txt
""",
    "packed": """#!/bin/bash
#SBATCH --gpus=2
#SBATCH --ntasks=2
for i in 1 2; do
  srun --exact -n1 --gpus=1 bash -c "echo step $i > step-$i.txt" &
done
wait
""",
    "hosts": """#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --gpus-per-task=2 --cpus-per-task=2
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" echo "$head_node")
srun python -c "import sys; print('rendezvous', sys.argv[1:])" \\
  --nproc_per_node=$SLURM_GPUS_ON_NODE --rdzv_endpoint=$head_node_ip:$((20000 + SLURM_JOB_ID))
""",
    "cpu": """#!/bin/bash
#SBATCH -J tokenize
#SBATCH -c 1 --mem=200M -t 5
#SBATCH --output=%x.log
echo "with $SLURM_CPUS_PER_TASK core" && exit 3
""",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("slurm") / "state", "--slots", "2") as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.sbatch").write_text(text)
    return tmp_path


def tm(daemon: LiveDaemon, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainmaster", *words],
        cwd=folder,
        env=os.environ | {"TRAINMASTER_DATA": str(daemon.folder)},
        text=True,
        capture_output=True,
        timeout=120,
    )


def run(daemon: LiveDaemon, folder: Path, name: str, *options: str) -> tuple[int, str]:
    """Import it, submit it and wait: its exit code, and what it wrote."""
    made = tm(daemon, folder, "import", f"{name}.sbatch", *options)
    assert made.returncode == 0, made.stderr
    assert "not understood" not in made.stdout
    done = tm(daemon, folder, "submit", f"{name}.yaml", "--wait", "--json")
    job = json.loads(done.stdout)["jobs"][0]["id"]
    return done.returncode, tm(daemon, folder, "logs", job).stdout


def test_a_script_of_one_task(daemon: LiveDaemon, folder: Path) -> None:
    code, said = run(daemon, folder, "single")
    assert code == 0
    greeting, job = said.splitlines()
    assert greeting == f"hello {folder.name}"
    assert job.startswith("single job ")
    assert int(job.split()[-1]) == 10000 + int(job.split()[2]) % 1000


def test_a_task_for_each_gpu(daemon: LiveDaemon, folder: Path) -> None:
    code, _ = run(daemon, folder, "tasks")
    assert code == 0
    found = sorted(path.read_text().strip() for path in folder.glob("task-*.txt"))
    assert found == ["task 0 of 2 at 127.0.0.1", "task 1 of 2 at 127.0.0.1"]


def test_an_array_with_a_step(daemon: LiveDaemon, folder: Path) -> None:
    code, _ = run(daemon, folder, "array")
    assert code == 0
    found = sorted(path.read_text().strip() for path in folder.glob("fold-*.txt"))
    assert found == ["fold c of 3", "fold e of 3", "fold g of 3"]


def test_steps_side_by_side(daemon: LiveDaemon, folder: Path) -> None:
    code, _ = run(daemon, folder, "packed")
    assert code == 0
    assert {path.read_text().strip() for path in folder.glob("step-*.txt")} == {"step 1", "step 2"}


def test_the_first_host_of_the_list(daemon: LiveDaemon, folder: Path) -> None:
    code, said = run(daemon, folder, "hosts")
    assert code == 0
    assert "'--nproc_per_node=2', '--rdzv_endpoint=127.0.0.1:200" in said


def test_a_script_without_gpus_with_its_output_file_and_its_exit_code(
    daemon: LiveDaemon, folder: Path
) -> None:
    code, said = run(daemon, folder, "cpu", "--output-files")
    assert code == 3
    assert said == "with 1 core\n"
    assert (folder / "tokenize.log").read_text().count("with 1 core\n") >= 1
