"""Slurm as Debian has it, on loopback, all of it in one folder: sbatch one by one, and an array."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.live_empty_job import (
    StartMeasurement,
    burst,
    burst_of_single_requests,
    cores,
    one_by_one,
    until,
    written_program,
)
from benchmarks.pages import page

NAME = "Slurm 22.05, `sbatch`"
INCLUDES = (
    "sbatch (C), slurmctld, slurmd, a slurmstepd, sh; no Python starts. With `batch_sched_delay=0`, else an"
    " array would start as many jobs as there are cores each three seconds"
)
NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "munged")
SRUN = "Slurm 22.05, `srun`"
SRUN_INCLUDES = (
    "the same without the queue's loop: srun waits for its job; in many at once, one per core"
)
MOST = 100
"""Jobs of its array: its loop goes round about once a second, and 500 would take minutes."""


def measure(count: int, jobs: int, folder: Path) -> list[StartMeasurement]:
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        why = f"{absent[0]} is not installed"
        return [
            StartMeasurement(NAME, INCLUDES, absent=why),
            StartMeasurement(SRUN, SRUN_INCLUDES, absent=why),
        ]
    folder.mkdir(parents=True)
    program = written_program(folder)
    with _cluster(folder) as env:
        return [
            _by_sbatch(count, min(jobs, MOST), folder / "sbatch", program, env),
            _by_srun(count, jobs, folder / "srun", program, env),
        ]


def _by_sbatch(
    count: int, jobs: int, folder: Path, program: Path, env: dict[str, str]
) -> StartMeasurement:
    said = ["sbatch", "--quiet", "--output=/dev/null", "--ntasks=1"]

    def ask(path: Path) -> int:
        began = time.time_ns()
        subprocess.run([*said, str(program), str(path)], env=env, check=True)
        return began

    def ask_all(many: Path) -> None:
        wrap = f"exec {program} {many}/$SLURM_ARRAY_TASK_ID"
        subprocess.run([*said, f"--array=0-{jobs - 1}", f"--wrap={wrap}"], env=env, check=True)
        until(lambda: not _queued(env), "Slurm's queue to be empty", 0.02)

    latency = one_by_one(count, folder / "one", ask)
    return StartMeasurement(NAME, INCLUDES, latency, burst(jobs, folder / "many", ask_all))


def _by_srun(
    count: int, jobs: int, folder: Path, program: Path, env: dict[str, str]
) -> StartMeasurement:
    def ask(path: Path) -> int:
        began = time.time_ns()
        words = ["srun", "--quiet", "--ntasks=1", str(program), str(path)]
        subprocess.run(words, env=env, check=True)
        return began

    latency = one_by_one(count, folder / "one", ask)
    together = burst_of_single_requests(jobs, folder / "many", ask)
    return StartMeasurement(SRUN, SRUN_INCLUDES, latency, together)


def _queued(env: dict[str, str]) -> bool:
    done = subprocess.run(["squeue", "-h"], env=env, check=True, capture_output=True)
    return bool(done.stdout.strip())


@contextmanager
def _cluster(folder: Path) -> Iterator[dict[str, str]]:
    """munged, slurmctld and one slurmd; ended by their pids."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    config = folder / "slurm.conf"
    config.write_text(
        page(
            "live_slurm.conf",
            host=socket.gethostname(),
            user=_user(),
            folder=folder,
            controller=_free_port(),
            node=_free_port(),
            cpus=cores(),
        )
    )
    env = os.environ | {"SLURM_CONF": str(config)}
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    folder.chmod(0o755)  # munge insists on folders that others cannot write to
    at = ("--socket", f"{folder}/munge.socket", "--key-file", str(key))
    files = (f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log")
    seed = f"--seed-file={folder}/munge.seed"
    with ExitStack() as stack:
        munge = ["munged", "--foreground", "--force", *at, *files, seed]
        _start(stack, munge, folder / "munged.out", env)
        until((folder / "munge.socket").exists, "munged")
        _start(stack, ["slurmctld", "-D", "-i"], folder / "slurmctld.out", env)
        _start(stack, ["slurmd", "-D", "-N", socket.gethostname()], folder / "slurmd.out", env)
        until(lambda: _is_up(env), "Slurm's node to be idle", 0.1)
        yield env


def _start(stack: ExitStack, command: list[str], out: Path, env: dict[str, str]) -> None:
    with out.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def end() -> None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def _is_up(env: dict[str, str]) -> bool:
    words = ["sinfo", "-h", "-o", "%T"]
    done = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
    return done.stdout.strip() == "idle"


def _user() -> str:
    import getpass

    return getpass.getuser()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
