"""The container that a job's command runs in: the prefix that starts it, and whether it can be stopped."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from trainmaster.config.command_line import SHELL
from trainmaster.config.job_file import Container
from trainmaster.model.launch_spec import CONTAINER_LABEL, MOST_PIDS, OUT_OF_SIGHT
from trainmaster.text.formatting import size


def can_be_stopped(container: Container | None) -> bool:
    """Whether stopping the processes that we start stops the program: Docker's runs elsewhere."""
    return container is None or container.program not in OUT_OF_SIGHT


_NAMES = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR MASTER_PORT"
    " CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER"
    " PET_NPROC_PER_NODE PET_NNODES PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT"
)
_VARIABLES = (
    "$(env | sed -n -E 's/^((TRAINMASTER|COMET|NEPTUNE)_[A-Z0-9_]*)=.*/{flag} \\1/p;"
    " s/^({trackers})=.*/{flag} \\1/p')"
)
_TRACKERS = "WANDB_MODE|WANDB_DIR|MLFLOW_TRACKING_URI|CLEARML_OFFLINE_MODE|SWANLAB_MODE"
"""What keeps trackers off their servers in a pre-run, besides those of Comet and Neptune."""
_FOLDER = (
    '[ -z "${{TRAINMASTER_CHECKPOINT_DIR-}}" ] || mkdir -p "$TRAINMASTER_CHECKPOINT_DIR" || exit\n'
)
"""Only a folder that is there can be seen inside: Docker would make it, as root."""
_SCRIPTS = {
    "apptainer": _FOLDER + 'exec apptainer exec ${{CUDA_VISIBLE_DEVICES:+--nv}} --bind "$PWD"'
    ' ${{TRAINMASTER_CHECKPOINT_DIR:+--bind "$TRAINMASTER_CHECKPOINT_DIR"}}'
    ' ${{TRAINMASTER_SOCKET:+--bind "$TRAINMASTER_SOCKET"}}'
    ' --pwd "$PWD" {options} {image} "$@"',
    "enroot": _FOLDER + 'exec enroot start --rw --mount "$PWD:$PWD"'
    ' ${{TRAINMASTER_CHECKPOINT_DIR:+--mount "$TRAINMASTER_CHECKPOINT_DIR:$TRAINMASTER_CHECKPOINT_DIR"}}'
    ' ${{TRAINMASTER_SOCKET:+--mount "$TRAINMASTER_SOCKET:$TRAINMASTER_SOCKET"}}'
    " {names} {variables} {options} {image}"
    ' /bin/sh -c \'cd "$0" && exec "$@"\' "$PWD" "$@"',
    "engine": _FOLDER + 'name="trainmaster-$TRAINMASTER_RUN-${{RANK:-0}}-$$"; timer=\n'
    'gone() {{ {program} rm {now} "$name" >/dev/null 2>&1; }}\n'
    "count() {{ trap '' TERM; left={tenths};"
    ' while [ "$left" -gt 0 ] && kill -0 "$client" 2>/dev/null;'
    " do sleep 0.1; left=$((left - 1)); done; gone; }}\n"
    'begin() {{ [ -n "$timer" ] || {{ count & timer=$!; }}; }}\n'
    "trap begin TERM\n"
    '{program} run --name "$name" --label "{label}=$TRAINMASTER_SOCKET"'
    " --init --network host {memory_space} --log-driver none --security-opt label=disable"
    ' {user} {limits} ${{{most_pids}:+--pids-limit "${most_pids}"}}'
    ' --volume "$PWD:$PWD" --workdir "$PWD" {gpus}'
    ' $([ -n "$CUDA_VISIBLE_DEVICES" ] || echo --env NVIDIA_VISIBLE_DEVICES=void)'
    " ${{TRAINMASTER_CHECKPOINT_DIR:+--volume"
    ' "$TRAINMASTER_CHECKPOINT_DIR:$TRAINMASTER_CHECKPOINT_DIR"}}'
    ' ${{TRAINMASTER_SOCKET:+--volume "$TRAINMASTER_SOCKET:$TRAINMASTER_SOCKET"}}'
    ' {names} {variables} {options} {image} "$@" & client=$!\n'
    'while :; do wait "$client"; code=$?; kill -0 "$client" 2>/dev/null || break; done\n'
    '{judge}gone; [ -z "$timer" ] || kill -KILL "$timer" 2>/dev/null; exit "$code"',
}
"""What each program is started with. The shell fills in what only the run knows: where it runs, where
its checkpoints and its socket are, and which devices it holds.

Docker's containers are not our children: ending `docker run` does not end them. So the shell stays, and
removes the container at the end, or before its grace period is over: afterwards it is killed itself, and the
label tells the supervisor, or the manager, what is left. What it prints is kept by us, and not by the engine
as well. SELinux would close the job's own folders to it. Images of CUDA ask for all GPUs, which they would
get where NVIDIA's runtime is the default."""
_JUDGE = (
    '[ "$code" != 137 ]'
    ' || [ "$({program} inspect --format "{{{{.State.OOMKilled}}}}" "$name" 2>&1)" != true ]'
    ' || echo "Rank ${{RANK:-0}} used more host memory than the {memory} that it may; raise memory." >&2\n'
)
"""Its group is the engine's, so the supervisor does not see why the kernel has ended it."""
_ENGINES = {
    "docker": {
        "user": '--user "$(id -u):$(id -g)" $(id -G | sed "s/[0-9][0-9]*/--group-add &/g")',
        "gpus": '${CUDA_VISIBLE_DEVICES:+--gpus "\\"device=$CUDA_VISIBLE_DEVICES\\""}',
        "now": "-f",
    },
    "podman": {
        "user": '--user "$(id -u):$(id -g)" $([ "$(id -u)" = 0 ] || echo --userns=keep-id)'
        ' --umask "$(umask)"',
        "gpus": "$(printf %s \"$CUDA_VISIBLE_DEVICES\" | tr , '\\n'"
        " | sed 's|..*|--device nvidia.com/gpu=&|')",
        "now": "-f -t 0",
    },
}
"""Where the two engines of containers differ: who the program is, how GPUs are passed through (by the
container device interface, in Podman), and how a container is removed without waiting for it."""
OWN_MEMORY_SPACE = frozenset({"--shm-size", "--ipc"})
"""Options that the machine's shared memory would contradict: Podman refuses both, Docker ignores the size."""
IN_TIME = 0.9
"""Part of the grace period that a container of Docker or Podman has."""


def _name(option: str) -> str:
    return option.partition("=")[0]


def prefix_of(
    container: Container | None,
    env: Iterable[str],
    grace_ms: int = 30_000,
    memory: int | None = None,
    cpus: int | None = None,
) -> tuple[str, ...]:
    """The prefix of the command that runs it in the container, with this much memory and processor time."""
    if container is None:
        return ()
    flag = "--env"
    names = " ".join(f"{flag} {name}" for name in (*_NAMES.split(), *env))
    program = container.program
    limits = [] if memory is None else [f"--memory {memory} --memory-swap {memory}"]
    limits += [] if cpus is None else [f"--cpus {cpus / 1000:g}"]
    judge = "" if memory is None else _JUDGE.format(program=program, memory=size(memory))
    script = _SCRIPTS["engine" if program in _ENGINES else program].format(
        program=program,
        **_ENGINES.get(program, {}),
        label=CONTAINER_LABEL,
        memory_space="" if OWN_MEMORY_SPACE & {*map(_name, container.options)} else "--ipc host",
        limits=" ".join(limits),
        most_pids=MOST_PIDS,
        judge=judge,
        options=shlex.join(container.options),
        image=shlex.quote(container.image),
        names=names,
        variables=_VARIABLES.format(flag=flag, trackers=_TRACKERS),
        tenths=int(grace_ms * IN_TIME) // 100,
    )
    return (*SHELL, script, program)
