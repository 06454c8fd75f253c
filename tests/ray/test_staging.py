"""A manager on a real cluster whose nodes share no storage with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, until
from tests.ray.cluster import RayCluster, two_racks
from tests.ray.conftest import OWN_CLUSTER
from tests.ray.test_manager import ENDS, FENCE, cancel_all, lines, nodes, story

pytestmark = OWN_CLUSTER
PROGRAM = """
import pathlib, time, trainmaster_sdk
with trainmaster_sdk.run() as tm:
    found = tm.load()
    first = found.step + 1 if found else 1
    print("first", first, pathlib.Path("words").read_text(), flush=True)
    for step in range(first, 2000):
        with open("history", "a") as history:
            history.write(f"{step}\\n")
        time.sleep(0.1)
        if step % 5 == 0:
            tm.save({"step": step}, step)
        if step > 30 and first > 1:
            break
        if tm.should_stop():
            tm.save({"step": step}, step)
            raise SystemExit
"""


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What only the manager's machine has: its data folder, and the user's."""
    return tmp_path_factory.mktemp("unseen")


@pytest.fixture(scope="module")
def cluster(unseen: Path) -> Iterator[RayCluster]:
    with RayCluster.running(*two_racks(2, gpus=1), hidden=unseen) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def daemon(cluster: RayCluster, unseen: Path) -> Iterator[LiveDaemon]:
    words = ("--engine", "ray", "--address", cluster.address, "--fence", FENCE)
    found = LiveDaemon(unseen / "data", *words)
    found.start()
    try:
        found.until_active()
        until(lambda: len(nodes(found)) == 2, "both nodes")
        yield found
        cancel_all(found)
    finally:
        found.kill()


def test_a_job_goes_on_elsewhere_with_its_files_after_the_death_of_its_node(
    daemon: LiveDaemon, cluster: RayCluster, unseen: Path
) -> None:
    work = unseen / "work"
    work.mkdir()
    (work / "train.py").write_text(PROGRAM)
    (work / "words").write_text("as they were")
    asked = {"command": [sys.executable, "train.py"], "gpus": 1, "workdir": str(work)}
    job = str(daemon.call("POST", "/api/v1/jobs", asked)["jobs"][0]["id"])
    (work / "words").write_text("changed since")
    saved = daemon.folder / "jobs" / job / "checkpoints" / "latest"
    until(saved.exists, "a checkpoint to be brought")
    (where,) = daemon.job(job)["nodes"]
    assert lines(daemon, job) == ["first 1 as they were"]
    said = daemon.call("GET", f"/api/v1/jobs/{job}/outputs")  # it is brought on request
    assert [each["path"] for each in said["files"]] == ["history"]
    cluster.kill_node(where)
    daemon.until_state(job, *ENDS)
    assert daemon.job(job)["state"] == "succeeded"
    first = int(lines(daemon, job)[-1].split()[1])
    assert first > 1
    assert first % 5 == 1
    history = (daemon.folder / "jobs" / job / "code" / "history").read_text().split()
    assert history[-1] == "31"
    assert f"brought from there, of step {first - 1}" in story(daemon, job)


def test_a_job_in_its_folder_is_told_that_no_node_sees_that(
    daemon: LiveDaemon, unseen: Path
) -> None:
    work = unseen / "own"
    work.mkdir()
    job = daemon.submit(command="pwd", gpus=1, workdir=str(work), snapshot=False)
    until(lambda: f"does not see {work}" in story(daemon, job), "its story to say so")
    assert "--snapshot" in story(daemon, job)
