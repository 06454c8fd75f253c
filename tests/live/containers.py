"""Jobs in containers of real engines, under a real manager: `make containers`.

Needs root and the engines that ENGINES names. The image is made of files of this machine: none is pulled.
GPUs are played: device files of their own stand in for them, and go where the engine is told to put them.
"""

from __future__ import annotations

import grp
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.live.container_image import write_image
from tests.live.daemons import LiveDaemon, live, until
from tests.live.stage import supervisors
from tests.live.unix_users import as_user, asked, shared_folder, system_manager, unix_user
from trainmaster.api.local_socket import SYSTEM
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.model.launch_spec import CONTAINER_LABEL, Account

pytestmark = pytest.mark.live
ENGINES = os.environ.get("TRAINMASTER_CONTAINER_ENGINES", "podman").split()
HANDED_ON = ("DOCKER_HOST", "CONTAINERS_CONF")
"""What the engines' clients are told here is told to jobs as well."""
TAG = "localhost/trainmaster-test:latest"
NOT_FOUND = {"docker": 127, "podman": 1, "apptainer": 255}
"""What they end with where the image does not have the program; Podman's is that of its init."""
MODEST = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
"""For Podman where root may not raise its own limits, as in some virtual machines."""


@dataclass(frozen=True)
class ContainerEngine:
    """A program that runs containers here, with the image that the tests use."""

    program: str
    image: str
    env: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    """What it needs to run anything here."""
    archive: Path = Path()
    """The image as a file."""

    def said(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [self.program, *words],
            env=os.environ | self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    @property
    def is_unseen(self) -> bool:
        return self.program in ("docker", "podman")

    def containers_of(self, daemon: LiveDaemon, job: str = "") -> list[str]:
        """Ids of all containers of a job, or of all jobs of this manager; ended ones too."""
        if not self.is_unseen:
            return []
        words = ("ps", "--all", "--no-trunc", "--filter", f"label={CONTAINER_LABEL}")
        rows = self.said(*words, "--format", "{{.ID}} {{.Names}}").splitlines()
        wanted = f"trainmaster-{job}." if job else "trainmaster-"
        found = [id for id, name in map(str.split, rows) if name.startswith(wanted)]
        return [id for id in found if str(daemon.folder) in self.said("inspect", id, check=False)]


@dataclass(frozen=True)
class Place:
    """A manager with an engine, and the folder that its jobs work in."""

    daemon: LiveDaemon
    engine: ContainerEngine
    workdir: Path

    def submit(self, command: object, options: tuple[str, ...] = (), **fields: Any) -> str:
        container = {
            self.engine.program: self.engine.image,
            "options": self.engine.options + options,
        }
        env = self.engine.env | fields.pop("env", {})
        fields = {"workdir": str(self.workdir), "retries": 0, **fields}
        return self.daemon.submit(command=command, container=container, env=env, **fields)

    def ended(self, command: object, *states: str, **fields: Any) -> tuple[dict[str, Any], str]:
        """The row and the output of a job that has ended so; nothing of it is left."""
        id = self.submit(command, **fields)
        row = self.daemon.until_state(id, *(states or ("succeeded", "failed")))
        assert not self.containers(id), "a container is left"
        return row, self.daemon.log(id)

    def up(self, command: object, word: str = "is-up", **fields: Any) -> str:
        """A job that has said this word."""
        id = self.submit(command, **fields)
        self.says(id, word)
        return id

    def says(self, id: str, word: str) -> None:
        until(lambda: word in self.daemon.log(id), f"job {id} to say {word}: {self.daemon.job(id)}")

    def cancel(self, id: str) -> dict[str, Any]:
        self.daemon.call("POST", f"/api/v1/jobs/{id}/cancel", {})
        row = self.daemon.until_state(id, "cancelled")
        assert not self.containers(id), "a container is left"
        return row

    def containers(self, job: str = "") -> list[str]:
        return self.engine.containers_of(self.daemon, job)

    def run_folder(self, id: str) -> Path:
        return self.daemon.folder / "runs" / id / str(self.daemon.job(id)["attempt"])


# -- the engines -------------------------------------------------------------------------------------------


def loaded(engine: ContainerEngine, folder: Path) -> ContainerEngine:
    """The engine with the image, and with settings under which it runs anything here; else a sentence."""
    archive = folder / "image.tar"
    write_image(archive)
    archive.chmod(0o644)
    if engine.program == "apptainer":
        root = folder / "image"
        root.mkdir()
        subprocess.run(["tar", "-C", str(root), "-xf", str(archive)], check=True)
        return replace(engine, image=str(root), options=("--no-privs", "--no-home"))
    engine = replace(engine, archive=archive)
    engine.said("import", str(archive), engine.image)
    problem = _problem(engine)
    if problem and engine.program == "podman" and "CONTAINERS_CONF" not in engine.env:
        settings = folder / "containers.conf"
        settings.write_text(MODEST)
        settings.chmod(0o644)
        engine = replace(engine, env={"CONTAINERS_CONF": str(settings)})
        problem = _problem(engine)
    if problem:
        pytest.fail(f"{engine.program} runs no container here: {problem}")
    return engine


def _problem(engine: ContainerEngine) -> str:
    """Why it runs no container; empty where it does."""
    words = ("run", "--rm", "--init", "--network", "host", engine.image, "true")
    done = subprocess.run(
        [engine.program, *words],
        capture_output=True,
        text=True,
        env=os.environ | engine.env,
        check=False,
    )
    return done.stderr.strip() if done.returncode else ""


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[ContainerEngine]:
    name = request.param
    if os.geteuid() != 0:
        pytest.fail(
            "These tests start a manager for several users and make device files: run them as root."
        )
    if shutil.which(name) is None:
        pytest.fail(
            f"{name} is not installed: install it, or name others: make containers ENGINES=podman."
        )
    env = {each: os.environ[each] for each in HANDED_ON if each in os.environ}
    with shared_folder() as folder:
        found = loaded(ContainerEngine(name, TAG, env), folder)
        yield found
        if found.is_unseen:
            found.said("rmi", "--force", found.image)


@pytest.fixture
def place(engine: ContainerEngine) -> Iterator[Place]:
    with shared_folder() as folder, live(folder / "data", "--slots", "4") as daemon:
        workdir = folder / "work"
        workdir.mkdir()
        found = Place(daemon, engine, workdir)
        yield found
        for id in found.containers():
            engine.said("rm", "--force", id, check=False)


@pytest.fixture
def unseen(place: Place) -> Place:
    if not place.engine.is_unseen:
        pytest.skip("its processes are children of the supervisor, as those of any job")
    return place


# -- what a program finds ----------------------------------------------------------------------------------


def test_a_program_has_its_command_variables_and_folders(place: Place) -> None:
    secret = place.workdir / "key"
    secret.write_text("w-s3cret")
    secret.chmod(0o600)
    (place.workdir / "input").write_text("from outside\n")
    command = (
        "pwd; cat input; echo $MINE $RANK/$WORLD_SIZE $TRAINMASTER_RUN ${PYTHONPATH-none}; echo key $KEY;"
        " echo $KEY > told; echo made > output; echo w > $TRAINMASTER_CHECKPOINT_DIR/model; exit 7"
    )
    row, said = place.ended(
        command, "failed", env={"MINE": "a b  c", "RANK": "99"}, secrets={"KEY": str(secret)}
    )
    assert row["exit_code"] == 7
    counted = "none" if place.engine.is_unseen else said.split("\n")[2].rpartition(" ")[2]
    assert said.splitlines() == [
        str(place.workdir),
        "from outside",
        f"a b c 0/1 {row['id']}.1 {counted}",
        "key ***",
    ]
    assert (place.workdir / "told").read_text() == "w-s3cret\n"
    assert (place.workdir / "output").stat().st_uid == 0
    model = place.daemon.folder / "jobs" / row["id"] / "checkpoints" / "model"
    assert model.read_text() == "w\n"


def test_words_of_a_command_stay_apart(place: Place) -> None:
    row, said = place.ended(
        ["sh", "-c", 'for each; do echo "<$each>"; done', "sh", "a b", "$HOME", '"']
    )
    assert (row["state"], said) == ("succeeded", '<a b>\n<$HOME>\n<">\n')


def test_a_command_that_the_image_does_not_have_is_not_found(place: Place) -> None:
    row, said = place.ended(["no-such-program"], "failed")
    assert row["exit_code"] == NOT_FOUND[place.engine.program], said


def test_an_image_that_is_not_there_fails_with_the_engines_words(place: Place) -> None:
    container = {
        place.engine.program: "/no/such/image"
        if place.engine.program == "apptainer"
        else "localhost/no-such-image:1"
    }
    id = place.daemon.submit(
        command="true",
        container=container,
        env=place.engine.env,
        retries=0,
        workdir=str(place.workdir),
    )
    row = place.daemon.until_state(id, "failed")
    assert row["exit_code"] != 0
    assert "no" in place.daemon.log(id)
    assert not place.containers()


def test_a_copy_of_the_code_is_what_runs(place: Place) -> None:
    (place.workdir / "program.py").write_text("import os; print('copied', os.getcwd())\n")
    id = place.up(["python3", "program.py"], "copied", snapshot=True)
    place.daemon.until_state(id, "succeeded")
    assert str(place.workdir) not in place.daemon.log(id)


SESSION = """
import time, trainmaster_sdk
with trainmaster_sdk.run() as tm:
    found = tm.load()
    step = found.step if found else 0
    print("from", step, flush=True)
    while step < 1_000_000:
        time.sleep(0.02)
        step += 1
        tm.progress(step=step, total_steps=1_000_000)
        if tm.should_save():
            tm.save({"step": step}, step)
        if tm.should_stop():
            tm.save({"step": step}, step)
            break
"""


def test_the_sdk_reports_saves_stops_and_goes_on(place: Place) -> None:
    job = place.up(["python3", "-c", SESSION], "from 0", stays_in_memory=False)
    until(
        lambda: (place.daemon.job(job)["progress"] or {}).get("step", 0) > 5, "steps to be reported"
    )
    place.daemon.call("POST", f"/api/v1/jobs/{job}/save", {})
    until(lambda: place.daemon.job(job)["saved_at_s"], "a save to be reported")
    place.daemon.call("POST", f"/api/v1/jobs/{job}/suspend", {})
    place.daemon.until_state(job, "suspended")
    until(lambda: not place.containers(), "its container to be gone")
    place.daemon.call("POST", f"/api/v1/jobs/{job}/resume", {})
    place.daemon.until_state(job, "running")
    until(lambda: place.daemon.log(job) not in ("", "from 0\n"), "it to go on")
    assert int(place.daemon.log(job).split()[-1]) > 5
    place.cancel(job)


def test_a_program_reaches_its_own_socket_and_no_other(unseen: Place) -> None:
    other = unseen.up("echo is-up; sleep 600")
    row, said = unseen.ended(
        "ls -A ${TRAINMASTER_SOCKET%/*}; echo own $TRAINMASTER_SOCKET; ls /tmp"
    )
    inside, _, rest = said.partition("own ")
    own = rest.splitlines()[0]
    assert inside.split() == [os.path.basename(own)], said
    assert row["state"] == "succeeded"
    unseen.cancel(other)


def test_ranks_of_a_gang_reach_each_other_and_end_together(place: Place) -> None:
    code = """
import os, socket, sys, time
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as door:
        other, _ = door.accept()
        print("heard", other.recv(100).decode(), flush=True)
    time.sleep(600)
while True:
    try:
        socket.create_connection(place).sendall(b"rank 1"); break
    except OSError:
        time.sleep(0.05)
time.sleep(1); sys.exit(5)
"""
    row, said = place.ended(
        ["python3", "-c", code], "failed", gpus=2, ranks="gpu", grace_period="5s"
    )
    assert row["exit_code"] == 5
    assert "heard rank 1" in said


# -- how it ends -------------------------------------------------------------------------------------------


def test_only_a_program_with_a_handler_gets_the_signal_to_save(place: Place) -> None:
    hears = "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('asked', flush=True))\n"
    wait = "print('is-up', flush=True)\nwhile True: time.sleep(0.1)"
    job = place.up(["python3", "-c", hears + wait])
    place.daemon.call("POST", f"/api/v1/jobs/{job}/save", {})
    place.says(job, "asked")
    deaf = place.up(["python3", "-c", "import time\n" + wait])
    with pytest.raises(urllib.error.HTTPError, match="409"):
        place.daemon.call("POST", f"/api/v1/jobs/{deaf}/save", {})
    place.daemon.call("POST", f"/api/v1/jobs/{job}/save", {})
    until(lambda: place.daemon.log(job).count("asked") == 2, "the other to be asked again")
    assert place.daemon.job(deaf)["state"] == "running"
    place.cancel(job)
    place.cancel(deaf)


def test_a_program_that_is_told_to_end_may_save_first(place: Place) -> None:
    code = "trap 'echo told; exit 3' TERM; echo is-up; while :; do sleep 0.1; done"
    job = place.up(code)
    assert place.cancel(job)["exit_code"] == 3
    assert place.daemon.log(job).count("told") == 1


def test_one_that_does_not_end_is_removed_within_its_grace_period(place: Place) -> None:
    job = place.up(
        "trap 'echo told' TERM; echo is-up; while :; do sleep 0.1; done", grace_period="3s"
    )
    assert place.cancel(job)["exit_code"] == 137
    assert place.daemon.log(job).count("told") == 1


def test_of_a_run_whose_supervisor_is_killed_nothing_is_left_when_it_starts_again(
    place: Place,
) -> None:
    job = place.up(
        "trap '' TERM; echo $TRAINMASTER_RUN is-up; while :; do sleep 0.1; done", retries=3
    )
    [first] = place.containers() if place.engine.is_unseen else [""]
    for pid in supervisors(place.run_folder(job)):
        os.kill(pid, signal.SIGKILL)
    place.says(job, f"{job}.2 is-up")
    left = place.containers()
    assert first not in left or not place.engine.is_unseen
    assert len(left) == (1 if place.engine.is_unseen else 0)
    place.daemon.call("PATCH", f"/api/v1/jobs/{job}", {"grace_period": "2s"})
    place.cancel(job)


def test_of_a_run_whose_client_is_killed_nothing_is_left_when_it_is_over(unseen: Place) -> None:
    """As the kernel does it when memory is short: the shell and the client, but not the container."""
    job = unseen.up("trap '' TERM; echo is-up; while :; do sleep 0.1; done")
    [pid] = unseen.daemon.job(job)["pids"]
    os.killpg(pid, signal.SIGKILL)
    row = unseen.daemon.until_state(job, "failed", "pending")
    assert not unseen.containers()
    assert row["state"] == "failed"
    assert row["failure"]["signal"] == "SIGKILL"


def test_a_container_goes_on_while_the_manager_is_away(place: Place) -> None:
    job = place.up("echo is-up; until [ -e go ]; do sleep 0.1; done; echo went on")
    before = place.containers()
    place.daemon.kill()
    place.daemon.start()
    place.daemon.until_active()
    assert place.daemon.until_state(job, "running")["attempt"] == 1
    assert place.containers() == before
    (place.workdir / "go").touch()
    assert place.daemon.until_state(job, "succeeded")["exit_code"] == 0
    (place.workdir / "go").unlink()
    assert "went on" in place.daemon.log(job)


# -- what it may use ---------------------------------------------------------------------------------------


def test_a_container_has_the_memory_of_its_job(place: Place) -> None:
    code = "x = bytearray(400 << 20); print('made it')"
    row, said = place.ended(["python3", "-c", code], "failed", memory="64MiB")
    assert row["exit_code"] == 137
    assert "made it" not in said
    if place.engine.program == "docker":
        assert "Rank 0 used more host memory than the 64 MiB that it may" in said
        assert row["failure"]["reason"] == "host-out-of-memory"


def test_a_container_has_the_processors_and_the_processes_of_its_job(unseen: Place) -> None:
    job = unseen.up("echo is-up; sleep 600", cpus=0.5)
    [id] = unseen.containers()
    [facts] = json.loads(unseen.engine.said("inspect", id))
    said = facts["HostConfig"]
    assert said["NanoCpus"] == 500_000_000
    assert said["PidsLimit"] == 16_384
    assert said["NetworkMode"] == "host"
    unseen.cancel(job)


def test_a_container_cannot_have_more_processes_than_a_run(engine: ContainerEngine) -> None:
    if not engine.is_unseen:
        pytest.skip("its processes are in the groups of the run, as those of any job")
    many = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; echo all"
    with (
        shared_folder() as folder,
        live(folder / "data", "--slots", "1", "--limit", "pids=40") as daemon,
    ):
        row, said = Place(daemon, engine, folder).ended(many)
        assert row["state"] == "failed", said
        assert "ork" in said
        assert "all" not in said


def test_only_options_that_the_operator_allows_reach_the_engine(engine: ContainerEngine) -> None:
    option = "--env" if engine.is_unseen else "--cleanenv"
    allowed = [word for each in (option, *engine.options) for word in ("--container-option", each)]
    with (
        shared_folder() as folder,
        live(folder / "data", "--slots", "1", *allowed) as daemon,
    ):
        place = Place(daemon, engine, folder)
        with pytest.raises(urllib.error.HTTPError) as refused:
            place.submit("true", options=("--privileged",))
        assert "does not allow" in json.loads(refused.value.read())["error"]["sentence"]
        options = ("--env", "MORE=of it") if engine.is_unseen else (option,)
        row, said = place.ended("echo $MORE.", options=options, env={"MORE": "of the job"})
        assert row["state"] == "succeeded", said
        assert said == ("of it.\n" if engine.is_unseen else ".\n")


def test_shared_memory_is_the_machines_unless_its_size_is_stated(unseen: Place) -> None:
    look = "python3 -c 'import os; s = os.statvfs(\"/dev/shm\"); print(s.f_blocks * s.f_frsize)'"
    ours = os.statvfs("/dev/shm")
    assert unseen.ended(look)[1] == f"{ours.f_blocks * ours.f_frsize}\n"
    assert unseen.ended(look, options=("--shm-size", "16m"))[1] == f"{16 << 20}\n"


# -- GPUs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpus:
    """GPUs that a folder plays, each with a device file of its own that the engine passes through."""

    uuids: list[str]
    files: dict[str, Path]

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.files.values()}


@pytest.fixture
def gpus(engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """For Podman a specification of the container device interface names them, as `nvidia-ctk` writes it."""
    if engine.program != "podman":
        pytest.skip("only Podman puts devices into containers without NVIDIA's own programs")
    with shared_folder() as folder:
        played = fake_driver.make_folder(folder / "gpus", gpus=3)
        monkeypatch.setenv(FAKE_GPUS, str(played))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        uuids = [gpu.uuid for gpu in fake_driver.FakeDriver(played).gpus()]
        files = {}
        for number, uuid in enumerate(uuids):
            files[uuid] = folder / f"tm-gpu{number}"
            os.mknod(files[uuid], stat.S_IFCHR | 0o666, os.makedev(1, 3))
        devices = [
            {
                "name": uuid,
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/{file.name}", "hostPath": str(file)}]
                },
            }
            for uuid, file in files.items()
        ]
        place = Path("/run/cdi", f"trainmaster-test-{os.getpid()}.json")
        place.parent.mkdir(exist_ok=True)
        place.write_text(
            json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})
        )
        try:
            yield Gpus(uuids, files)
        finally:
            place.unlink()


def test_exactly_the_booked_gpus_are_in_the_container(gpus: Gpus, engine: ContainerEngine) -> None:
    look = (
        "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'],"
        " *sorted(each for each in os.listdir('/dev') if each.startswith('tm-gpu')), flush=True);"
        " [os.close(os.open('/dev/' + each, os.O_RDWR)) for each in os.listdir('/dev')"
        " if each.startswith('tm-gpu')]; print('opened', flush=True); time.sleep(600)"
    )
    with shared_folder() as folder, live(folder / "data") as daemon:
        place = Place(daemon, engine, folder)
        pair = place.up(["python3", "-c", look], "opened", gpus=2, preflight=False)
        one = place.up(["python3", "-c", look], "opened", gpus=1, preflight=False)
        seen = {}
        for job in (pair, one):
            uuids, *names = place.daemon.log(job).splitlines()[0].split()
            assert {gpus.files[uuid].name for uuid in uuids.split(",")} == {*names}
            seen[job] = {*names}
        assert [len(seen[pair]), len(seen[one])] == [2, 1]
        assert seen[pair] | seen[one] == gpus.names
        place.cancel(pair)
        place.cancel(one)


HOOK = """#!/bin/sh
exec {python} -c '
import json, sys
bundle = json.load(sys.stdin)["bundle"]
env = dict(each.split("=", 1) for each in json.load(open(bundle + "/config.json"))["process"]["env"])
with open("{told}", "a") as file:
    print(env["TRAINMASTER_JOB"], env["NVIDIA_VISIBLE_DEVICES"], file=file)
'
"""
"""In the place of NVIDIA's: Docker calls it before a container that has GPUs starts."""


@contextmanager
def docker_with_hook(folder: Path) -> Iterator[str]:
    """A Docker of its own that finds the hook in its path; where it listens."""
    at = f"unix://{folder}/docker.sock"
    words = ["dockerd", "--host", at, "--bridge", "none", "--iptables=false", "--ip6tables=false"]
    words += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    words += ["--pidfile", f"{folder}/pid", "--oom-score-adjust", "0"]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            words,
            env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
            stdout=out,
            stderr=out,
        )
    try:
        asking = ["docker", "--host", at, "info"]
        until(
            lambda: (
                process.poll() is not None
                or subprocess.run(asking, capture_output=True, check=False).returncode == 0
            ),
            "Docker to answer",
        )
        assert process.poll() is None, log.read_text()[-2000:]
        yield at
    finally:
        process.terminate()
        process.wait(60)


def test_docker_is_told_exactly_the_booked_gpus(
    engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine.program != "docker":
        pytest.skip("other engines have no such hook")
    with shared_folder() as folder:
        told = folder / "told"
        hook = folder / "nvidia-container-runtime-hook"
        hook.write_text(HOOK.format(python=sys.executable, told=told))
        hook.chmod(0o755)
        monkeypatch.setenv(FAKE_GPUS, str(fake_driver.make_folder(folder / "gpus", gpus=3)))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        with docker_with_hook(folder) as at, live(folder / "state") as daemon:
            own = replace(engine, env=engine.env | {"DOCKER_HOST": at})
            own.said("import", str(engine.archive), engine.image)
            place = Place(daemon, own, folder)
            booked = []
            for gpus in (2, 1):
                row, said = place.ended(
                    "echo $CUDA_VISIBLE_DEVICES", "succeeded", gpus=gpus, preflight=False
                )
                assert said.count("GPU-") == gpus
                booked.append(f"{row['id']} {said}")
            assert told.read_text() == "".join(booked)


# -- jobs of other users -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Users:
    """A manager for everybody, and what a user of it does with an engine."""

    daemon: LiveDaemon
    engine: ContainerEngine

    def submit(self, account: Account, command: str, **fields: Any) -> str:
        env = self.engine.env | {"TMPDIR": "/tmp"}
        body = {
            "command": command,
            "env": env,
            "container": {self.engine.program: self.engine.image},
            "snapshot": False,
            "preflight": False,
            "retries": 0,
            **fields,
        }
        status, said = asked(SYSTEM, account, "POST", "/api/v1/jobs", body)
        assert status == 201, said
        return str(said["jobs"][0]["id"])

    def log(self, account: Account, id: str) -> str:
        status, said = asked(SYSTEM, account, "GET", f"/api/v1/jobs/{id}/logs")
        assert status == 200, said
        return str(said.decode())

    def says(self, account: Account, id: str, word: str) -> None:
        row = f"/api/v1/jobs/{id}"
        until(
            lambda: word in self.log(account, id),
            f"{id} to say {word}: {asked(SYSTEM, None, 'GET', row)}",
        )

    def cancel(self, account: Account, id: str) -> None:
        assert asked(SYSTEM, account, "POST", f"/api/v1/jobs/{id}/cancel", {})[0] == 200
        until(lambda: self.state(id) == "cancelled", f"job {id} to be cancelled")

    def state(self, id: str) -> str:
        return str(asked(SYSTEM, None, "GET", f"/api/v1/jobs/{id}")[1]["state"])

    def done_as(self, account: Account, words: str) -> str:
        """What the engine says to this user."""
        env = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.engine.env.items())
        done = as_user(account, f"{env} {self.engine.program} {words}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make_ready(self, account: Account) -> None:
        """Docker's users are in the group of its socket; each user of Podman has images of their own."""
        if self.engine.program == "docker":
            place = self.engine.env.get("DOCKER_HOST", "unix:///var/run/docker.sock")
            group = str(os.stat(place.removeprefix("unix://")).st_gid)
            names = grp.getgrgid(int(group)).gr_name
            subprocess.run(["usermod", "--append", "--groups", names, account.name], check=True)
        if self.engine.program == "podman":
            if not Path("/dev/mqueue").exists():
                pytest.fail(
                    "Podman without root needs /dev/mqueue: mount -t mqueue none /dev/mqueue."
                )
            self.done_as(account, f"import {self.engine.archive} {self.engine.image}")

    def containers(self, account: Account) -> list[str]:
        if not self.engine.is_unseen:
            return []
        if self.engine.program == "docker":
            return self.engine.containers_of(self.daemon)
        return self.done_as(account, f"ps --all --quiet --filter label={CONTAINER_LABEL}").split()


@pytest.fixture
def people(engine: ContainerEngine) -> Iterator[tuple[Users, Account, Account]]:
    with (
        shared_folder() as base,
        unix_user(base) as ada,
        unix_user(base) as bob,
        system_manager(base / "state", "--slots", "4") as daemon,
    ):
        users = Users(daemon, engine)
        for account in (ada, bob):
            users.make_ready(account)
        try:
            yield users, ada, bob
        finally:
            if engine.program == "podman":  # what is theirs by numbers of their own
                for account in (ada, bob):
                    as_user(account, "podman unshare rm -rf .local/share/containers")


def test_a_container_of_another_user_is_that_user(people: tuple[Users, Account, Account]) -> None:
    users, ada, bob = people
    of_bob = users.submit(bob, "echo is-up; sleep 600")
    users.says(bob, of_bob, "is-up")
    job = users.submit(
        ada,
        "id -u; id -g; pwd; echo mine > made; echo w > $TRAINMASTER_CHECKPOINT_DIR/model;"
        " ls -A ${TRAINMASTER_SOCKET%/*} 2>&1; echo is-up; sleep 600",
    )
    users.says(ada, job, "is-up")
    uid, gid, folder, *inside, _ = users.log(ada, job).splitlines()[-5:]
    assert (int(uid), int(gid), folder) == (ada.uid, ada.gid, ada.home)
    assert len(inside) == 1, "it sees its own socket at most"
    made, model = (
        Path(ada.home, "made"),
        users.daemon.folder / "jobs" / job / "checkpoints" / "model",
    )
    assert (made.stat().st_uid, made.stat().st_gid) == (ada.uid, ada.gid)
    assert model.stat().st_uid == ada.uid
    status, _ = asked(SYSTEM, bob, "GET", f"/api/v1/jobs/{job}/logs")
    assert status == 404
    users.cancel(ada, job)
    users.cancel(bob, of_bob)
    assert [users.containers(each) for each in (ada, bob)] == [[], []]


def test_of_a_run_of_another_user_nothing_is_left_either(
    people: tuple[Users, Account, Account],
) -> None:
    users, ada, _ = people
    job = users.submit(
        ada, "trap '' TERM; echo $TRAINMASTER_RUN is-up; while :; do sleep 0.1; done", retries=3
    )
    users.says(ada, job, f"{job}.1 is-up")
    before = users.containers(ada)
    for pid in supervisors(users.daemon.folder / "runs" / job / "1"):
        os.kill(pid, signal.SIGKILL)
    users.says(ada, job, f"{job}.2 is-up")
    after = users.containers(ada)
    assert not {*before} & {*after}
    assert len(before) == len(after) == (1 if users.engine.is_unseen else 0)
    asked(SYSTEM, ada, "PATCH", f"/api/v1/jobs/{job}", {"grace_period": "2s"})
    users.cancel(ada, job)
    assert not users.containers(ada)
