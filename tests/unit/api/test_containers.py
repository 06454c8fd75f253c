"""Jobs in Docker: its containers are nobody's children, and none may outlive its run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from trainmaster.api.containers import prefix_of
from trainmaster.api.submission import Defaults, submission_of
from trainmaster.config.job_file import jobs_in_json
from trainmaster.model.launch_spec import CONTAINER_LABEL, MOST_PIDS

DOCKER = """#!/bin/sh
# Stands in for Docker: a container is a file in its folder, and lives for as long as that is there.
here="$(dirname "$0")/containers"
case $1 in
run)
    trap 'echo told >> "$here/../signals"' TERM
    shift; [ "$1" = --name ] || exit 9
    echo up > "$here/$2"; name=$2
    [ -z "$CODE" ] || exit "$CODE"
    while [ -e "$here/$name" ]; do sleep 0.02; done
    exit 137 ;;
rm) for name in "$@"; do :; done; rm -f "$here/$name" ;;
esac
"""


def _in_docker(folder: Path, code: str = "", program: str = "docker") -> subprocess.Popen[bytes]:
    (folder / "containers").mkdir()
    (folder / program).write_text(DOCKER)
    (folder / program).chmod(0o755)
    [(model, _)] = jobs_in_json({"command": ["train"], "container": {program: "image"}})
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "TRAINMASTER_RUN": "12_3.1", "RANK": "2"}
    return subprocess.Popen(
        [*prefix_of(model.container, model.env, grace_ms=1000), "train"],
        env=env | {"CODE": code},
        cwd=folder,
        start_new_session=True,
    )


def test_a_docker_container_that_does_not_end_is_removed_before_its_wrapper_is_killed(
    tmp_path: Path,
) -> None:
    process = _in_docker(tmp_path)
    try:
        name = f"trainmaster-12_3.1-2-{process.pid}"
        until = time.monotonic() + 60
        while not (tmp_path / "containers" / name).exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 137
        assert (tmp_path / "signals").read_text() == "told\n"
        assert not list((tmp_path / "containers").iterdir())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_a_container_that_ends_leaves_its_exit_code_and_nothing_else(
    tmp_path: Path, program: str
) -> None:
    assert _in_docker(tmp_path, code="7", program=program).wait(60) == 7
    assert not list((tmp_path / "containers").iterdir())


@pytest.mark.parametrize(
    ("program", "stays"), [("docker", False), ("podman", False), ("apptainer", True)]
)
def test_stopping_the_client_of_docker_stops_nothing(
    program: str, stays: bool, tmp_path: Path
) -> None:
    [(model, spec)] = jobs_in_json({"command": "x", "container": {program: "image"}})
    asked = submission_of(model, Defaults("me", tmp_path), spec)
    assert asked.recipe.may_stay_in_memory is stays


@pytest.mark.parametrize(
    ("program", "want"),
    [
        ("docker", '--gpus "device=GPU-a,GPU-b"'),
        ("podman", "--device nvidia.com/gpu=GPU-a --device nvidia.com/gpu=GPU-b"),
    ],
)
def test_the_jobs_own_gpus_and_socket_are_passed_through(
    tmp_path: Path, program: str, want: str
) -> None:
    (tmp_path / program).write_text('#!/bin/sh\n[ "$1" = run ] && echo "$@"\nexit 0\n')
    (tmp_path / program).chmod(0o755)
    [(model, _)] = jobs_in_json({"command": ["train"], "container": {program: "image"}})
    env = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "TRAINMASTER_SOCKET": "/tmp/tm/own.sock"}
    said = subprocess.run(
        [*prefix_of(model.container, model.env), "train"],
        env=env | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert want in said
    assert "--volume /tmp/tm/own.sock:/tmp/tm/own.sock" in said
    assert said.rstrip().endswith("image train")


def test_a_container_has_the_jobs_limits_and_a_label_and_no_gpus_unasked(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = run ] && echo "$@"\nexit 0\n')
    (tmp_path / "docker").chmod(0o755)
    [(model, spec)] = jobs_in_json(
        {
            "command": ["train"],
            "gpus": 2,
            "memory": "1GiB",
            "cpus": 1.5,
            "container": {"docker": "image"},
        }
    )
    recipe = submission_of(model, Defaults("me", tmp_path), spec).recipe
    env = {"TRAINMASTER_SOCKET": "/tmp/tm/own.sock", MOST_PIDS: "50", "CUDA_VISIBLE_DEVICES": ""}
    said = subprocess.run(
        [*recipe.prefix, "train"],
        env=env | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    both = 2 << 30
    assert f"--memory {both} --memory-swap {both} --cpus 3 --pids-limit 50 " in said
    assert f"--label {CONTAINER_LABEL}=/tmp/tm/own.sock " in said
    assert "--env NVIDIA_VISIBLE_DEVICES=void " in said
    assert "--gpus" not in said


@pytest.mark.parametrize(("uid", "is_mapped"), [(0, False), (1000, True)])
def test_podman_maps_users_only_where_it_is_not_root(
    tmp_path: Path, uid: int, is_mapped: bool
) -> None:
    (tmp_path / "podman").write_text('#!/bin/sh\n[ "$1" = run ] && echo "$@"\nexit 0\n')
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {uid}\n")
    for name in ("podman", "id"):
        (tmp_path / name).chmod(0o755)
    [(model, _)] = jobs_in_json({"command": ["train"], "container": {"podman": "image"}})
    said = subprocess.run(
        [*prefix_of(model.container, model.env), "train"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"--user {uid}:{uid} " in said
    assert ("--userns=keep-id" in said) == is_mapped


@pytest.mark.parametrize(
    ("options", "is_shared"),
    [([], True), (["--shm-size=8g"], False), (["--ipc", "private"], False)],
)
def test_shared_memory_is_the_machines_unless_the_job_says_otherwise(
    options: list[str], is_shared: bool
) -> None:
    container = {"podman": "image", "options": options}
    [(model, _)] = jobs_in_json({"command": ["train"], "container": container})
    assert ("--ipc host" in prefix_of(model.container, model.env)[2]) == is_shared
