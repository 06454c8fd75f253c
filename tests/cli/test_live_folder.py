"""Where a job runs and as what: the submitter's folder and umask, its processes, what launchers are told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_live_daemon import Line
from tests.live.daemons import live

pytestmark = pytest.mark.live
SECRET = "PGPASSWORD"


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    base = tmp_path_factory.mktemp("folder")
    (base / "project").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET, "hush")
        with live(base / "state", "--slots", "4", "--policy", "fifo") as daemon:
            yield Line(daemon, base / "project")


@pytest.fixture
def project(tm: Line, tmp_path: Path) -> Line:
    """A Git work tree with data that Git ignores: the commonest layout of a project."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.csv").write_text("1\n")
    (tmp_path / ".gitignore").write_text("data/\n")
    (tmp_path / "model.py").write_text("LAYERS = 3\n")
    (tmp_path / "train.py").write_text(
        "print(open('data/x.csv').read()); open('results.txt', 'w').write('ok')\n"
    )
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return Line(tm.daemon, tmp_path)


def with_umask(line: Line, mask: int, *words: str) -> None:
    ended = subprocess.run(
        line.words(*words), cwd=line.folder, env=line.env, umask=mask, timeout=120
    )
    assert ended.returncode == 0


def test_a_job_runs_where_it_was_submitted(project: Line) -> None:
    with_umask(project, 0o022, "run", "-n", "here", "--", sys.executable, "train.py")
    results = project.folder / "results.txt"
    assert results.read_text() == "ok"
    assert results.stat().st_mode & 0o777 == 0o644
    assert f"ran in       {project.folder}\n" in project.ok("show", "here")


def test_files_have_the_umask_of_their_submitter(project: Line) -> None:
    with_umask(project, 0o027, "run", "--", "touch", "closed")
    assert (project.folder / "closed").stat().st_mode & 0o777 == 0o640
    runs = project.daemon.folder / "runs"
    rights = {path.stat().st_mode & 0o077 for path in runs.rglob("*") if not path.is_symlink()}
    assert rights == {0}


def test_the_story_names_files_that_changed_before_the_start(project: Line) -> None:
    file = "command: python3 train.py\n"
    job = project.ok("submit", "-", "--held", "--parsable", typed=file).strip()
    (project.folder / "train.py").write_text("print('something else')\n")
    (project.folder / "model.py").unlink()
    project.ok("resume", job)
    project.daemon.until_state(job, "succeeded")
    assert "changed since submission: train.py model.py" in project.ok("story", job)
    job = project.ok("submit", "-", "--parsable", typed=file).strip()
    project.daemon.until_state(job, "succeeded")
    assert "changed" not in project.ok("story", job)


def test_what_a_job_writes_in_its_copy_is_fetched(project: Line) -> None:
    (project.folder / "train.py").write_text(
        "import os\n"
        "print(open('data/x.csv').read())\n"
        "os.makedirs('runs/1'); open('runs/1/model.pt', 'w').write('weights')\n"
        "os.symlink('runs/1', 'latest'); open('model.py', 'a').write('# changed')\n"
    )
    ended = project.run("run", "--snapshot", "-n", "copied", "--", sys.executable, "train.py")
    assert ended.returncode == 0, ended.stderr
    assert "It runs in a copy of the code: `trainmaster outputs" in ended.stderr
    listed = project.ok("outputs", "copied", "--list")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [
        *("latest", "model.py", "runs/1/model.pt"),
    ]
    assert project.ok("outputs", "copied", "--to", "back") == "Fetched 3 files to back.\n"
    back = project.folder / "back"
    assert (back / "latest/model.pt").read_text() == "weights"
    assert (back / "model.py").read_text() == "LAYERS = 3\n# changed"
    assert (project.folder / "model.py").read_text() == "LAYERS = 3\n"
    assert not (project.folder / "runs").exists()


def test_outputs_of_a_job_in_its_folder_are_there(project: Line) -> None:
    project.ok("run", "-n", "plain", "--", "true")
    said = project.run("outputs", "plain")
    assert said.returncode == 1
    assert f"ran in {project.folder} itself: what it wrote is there." in said.stderr


def test_a_folder_that_is_too_large_to_copy_is_refused_in_a_dry_run_too(project: Line) -> None:
    with (project.folder / "big.bin").open("wb") as big:
        big.truncate(300 << 20)
    for words in (("run", "--snapshot"), ("run", "--snapshot", "--dry-run")):
        said = project.run(*words, "--", "true")
        assert said.returncode == 1
        assert "big.bin alone has 300 MiB" in said.stderr
        assert "--no-snapshot (snapshot: false)" in said.stderr


SAY = "import os; print(*(os.environ.get(each, 'unset') for each in '{}'.split()))"
WHO = SAY.format("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TRAINMASTER_DEVICES")


def test_one_process_sees_all_gpus_of_its_node(tm: Line) -> None:
    said = tm.ok(
        "run", "--no-preflight", "--gpus", "2", "--all-ranks", "--", sys.executable, "-c", WHO
    )
    (line,) = said.splitlines()
    rank, *place, devices = line.removeprefix("[0] ").split()
    assert (rank, *place) == ("0", "1", "unset", "1")
    assert len(devices.split(",")) == 2


def test_one_process_for_each_gpu_where_one_asks_for_it(tm: Line) -> None:
    command = ("--", sys.executable, "-c", WHO)
    said = tm.ok("run", "--no-preflight", "--gpus", "2", "--ranks", "gpu", "--all-ranks", *command)
    assert sorted(line.split()[:5] for line in said.splitlines()) == [
        ["[0]", "0", "2", "0", "2"],
        ["[1]", "1", "2", "1", "2"],
    ]
    refused = tm.run("run", "--ranks", "core", *command)
    assert refused.returncode == 2


def test_a_launcher_in_a_script_is_told_how_many(tm: Line) -> None:
    names = "PET_NPROC_PER_NODE PET_NNODES PET_NODE_RANK PET_MASTER_ADDR"
    said = tm.ok(
        "run", "--no-preflight", "--gpus", "3", "--", sys.executable, "-c", SAY.format(names)
    )
    assert said == "3 1 0 127.0.0.1\n"


@pytest.mark.slow
def test_torchrun_starts_a_process_for_each_gpu(tm: Line) -> None:
    pytest.importorskip("torch")
    (tm.folder / "sum.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "value = torch.tensor([dist.get_rank() + 1.0])\n"
        "dist.all_reduce(value)\n"
        "line = f'{dist.get_rank()} of {dist.get_world_size()}: {value.item():g}\\n'\n"
        "os.write(1, line.encode())  # at once, so that the ranks' lines do not mix\n"
        "dist.destroy_process_group()\n"
    )
    torchrun = Path(sys.executable).with_name("torchrun")
    said = tm.ok("run", "--no-preflight", "--gpus", "2", "--", str(torchrun), "sum.py")
    assert sorted(line for line in said.splitlines() if " of " in line) == [
        "0 of 2: 3",
        "1 of 2: 3",
    ]
    said = tm.ok(
        *(
            "run",
            "--no-preflight",
            "--gpus",
            "2",
            "--",
            sys.executable,
            "-m",
            "torch.distributed.run",
        ),
        *("--nproc-per-node", "1", "sum.py"),
    )
    assert "0 of 1: 1" in said, "what the user says goes before"


# -- the environment -------------------------------------------------------------------------------------


def test_the_submitters_variables_go_along_and_the_managers_do_not(tm: Line) -> None:
    env = tm.env | {"HF_HOME": "/hf", "CUDA_VISIBLE_DEVICES": "9", "MINE": "1", "LOCAL_RANK": "7"}
    (tm.folder / "more.env").write_text("FROM_FILE=yes\n")
    submitter = Line(tm.daemon, tm.folder)
    submitter.env = {name: value for name, value in env.items() if name != SECRET}
    run = ("run", "--no-preflight", "--gpus", "2", "--env-file", "more.env", "--env", "NAMED=x")
    said = variables(submitter.ok(*run, "--", "env"))
    assert (said["HF_HOME"], said["FROM_FILE"], said["NAMED"]) == ("/hf", "yes", "x")
    assert (said["PATH"], said["HOME"]) == (env["PATH"], env["HOME"])
    assert said["CUDA_VISIBLE_DEVICES"] == ""
    assert not {"MINE", "LOCAL_RANK", SECRET} & said.keys()
    everything = variables(submitter.ok(*run, "--export-all", "--", "env"))
    assert (everything["MINE"], everything["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    assert not {"LOCAL_RANK", SECRET} & everything.keys()


def test_a_job_of_the_api_has_little_more_than_a_home(tm: Line) -> None:
    job = tm.daemon.submit(command="env")
    tm.daemon.until_state(job, "succeeded")
    own = ("TRAINMASTER_", "CUDA_", "PET_", "LC_", "LOCAL_", "MASTER_", "PYTHON")
    said = {name for name in variables(tm.daemon.log(job)) if not name.startswith(own)}
    assert said - {"LANG", "TZ", "TMPDIR"} == {
        *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "OMP_NUM_THREADS"),
        *("RANK", "WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
        *(said & {"_", "SHLVL", "OLDPWD"}),
    }
    assert b"hush" not in Path(f"/proc/{fork_server(tm)}/environ").read_bytes()


def variables(said: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def fork_server(tm: Line) -> str:
    assert tm.daemon.process is not None
    children = Path(f"/proc/{tm.daemon.process.pid}/task/{tm.daemon.process.pid}/children")
    found = children.read_text().split()
    return next(pid for pid in found if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes())


def test_the_address_of_the_database_may_be_in_a_file(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere.db"
    (tmp_path / "database").write_text(f"sqlite:///{place}\n")
    with live(tmp_path / "state", "--slots", "1", "--database-file", str(tmp_path / "database")):
        assert place.exists()
        assert not (tmp_path / "state/trainmaster.db").exists()
