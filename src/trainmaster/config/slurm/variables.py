"""Variables that Slurm sets, said in those that a worker has here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NAME = re.compile(r"\bSLURMD?_[A-Z0-9_]+\b")
HOSTS = "SLURM_JOB_NODELIST"
TMPDIR = "SLURM_TMPDIR"
"""A folder that is removed at the end."""


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """What is known of a job before it runs."""

    name: str
    tasks: int
    is_ranked: bool
    """Whether a process runs for each GPU."""
    cpus_per_task: int | None
    indices: tuple[int, ...]
    partition: str
    account: str
    qos: str
    memory: int | None
    """Bytes of a node."""


def values(job: JobNumbers) -> dict[str, str]:
    """Each variable with its value, for bash."""
    found = {
        "SLURM_JOB_ID": _job_id(job),
        "SLURM_JOBID": _job_id(job),
        "SLURM_JOB_NAME": _quoted(job.name),
        "SLURM_SUBMIT_DIR": '"$PWD"',
        "SLURM_SUBMIT_HOST": '"$(hostname)"',
        "SLURM_JOB_USER": '"$(id -un)"',
        "SLURM_JOB_UID": '"$(id -u)"',
        "SLURM_NTASKS": '"$WORLD_SIZE"' if job.is_ranked else str(job.tasks),
        "SLURM_NPROCS": '"$WORLD_SIZE"' if job.is_ranked else str(job.tasks),
        "SLURM_PROCID": '"$RANK"',
        "SLURM_LOCALID": '"${LOCAL_RANK:-0}"',
        "SLURM_NODEID": '"$NODE_RANK"',
        "SLURM_NNODES": '"${PET_NNODES:-1}"',
        "SLURM_JOB_NUM_NODES": '"${PET_NNODES:-1}"',
        HOSTS: '"$MASTER_ADDR"',
        "SLURM_NODELIST": '"$MASTER_ADDR"',
        "SLURM_STEP_NODELIST": '"$MASTER_ADDR"',
        "SLURM_LAUNCH_NODE_IPADDR": '"$MASTER_ADDR"',
        "SLURM_SRUN_COMM_HOST": '"$MASTER_ADDR"',
        "SLURMD_NODENAME": '"$(hostname -s)"',
        "SLURM_NTASKS_PER_NODE": '"$LOCAL_WORLD_SIZE"',
        "SLURM_TASKS_PER_NODE": '"$LOCAL_WORLD_SIZE"',
        "SLURM_STEP_NUM_TASKS": '"$WORLD_SIZE"' if job.is_ranked else str(job.tasks),
        "SLURM_GPUS": '"${PET_NPROC_PER_NODE:-$WORLD_SIZE}"',
        "SLURM_GPUS_ON_NODE": '"${PET_NPROC_PER_NODE:-$LOCAL_WORLD_SIZE}"',
        "SLURM_GPUS_PER_NODE": '"${PET_NPROC_PER_NODE:-$LOCAL_WORLD_SIZE}"',
        "SLURM_JOB_GPUS": '"$CUDA_VISIBLE_DEVICES"',
        "SLURM_STEP_GPUS": '"$CUDA_VISIBLE_DEVICES"',
        "SLURM_CPUS_ON_NODE": '"$(nproc)"',
        "SLURM_JOB_CPUS_PER_NODE": '"$(nproc)"',
        "SLURM_RESTART_COUNT": '"$TRAINMASTER_RESTART_COUNT"',
        "SLURM_JOB_END_TIME": '"${TRAINMASTER_END_TIME:-}"',
        TMPDIR: '"$(mktemp -d)"',
    }
    if job.cpus_per_task is not None:
        found["SLURM_CPUS_PER_TASK"] = str(job.cpus_per_task)
    if job.indices:
        first, last = job.indices[0], job.indices[-1]
        step = job.indices[1] - first if len(job.indices) > 1 else 1
        found |= {
            "SLURM_ARRAY_JOB_ID": '"${TRAINMASTER_JOB%%_*}"',
            "SLURM_ARRAY_TASK_ID": '"$TRAINMASTER_ARRAY_INDEX"',
            "SLURM_ARRAY_TASK_COUNT": str(len(job.indices)),
            "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_MAX": str(last),
            "SLURM_ARRAY_TASK_STEP": str(step),
        }
    else:
        found["SLURM_ARRAY_TASK_ID"] = '"${TRAINMASTER_ARRAY_INDEX:-}"'
        found["SLURM_ARRAY_JOB_ID"] = '"${TRAINMASTER_JOB%%_*}"'
    stated = (
        ("SLURM_JOB_PARTITION", job.partition),
        ("SLURM_JOB_ACCOUNT", job.account),
        ("SLURM_JOB_QOS", job.qos),
    )
    found |= {name: _quoted(value) for name, value in stated if value}
    if job.memory is not None:
        found["SLURM_MEM_PER_NODE"] = str(job.memory >> 20)
    return found


def _job_id(job: JobNumbers) -> str:
    """A number, also of an element of an array: scripts make ports of it."""
    if not job.indices:
        return '"$TRAINMASTER_JOB"'
    return '"$((${TRAINMASTER_JOB%%_*} * 100000 + TRAINMASTER_ARRAY_INDEX))"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def used(body: str) -> Iterator[tuple[int, str]]:
    """Line and name of every variable of Slurm that a body reads, comments apart."""
    for number, line in enumerate(body.split("\n"), 1):
        if not line.lstrip().startswith("#"):
            yield from ((number, name) for name in NAME.findall(line))
