"""The Python client with a live manager and real processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import trainmaster
from tests.live.daemons import live, until
from trainmaster.errors import Failed

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[trainmaster.Client]:
    folder = tmp_path_factory.mktemp("client")
    with live(folder / "state", "--slots", "4") as manager:
        yield trainmaster.Client(data=manager.folder, folder=folder / "functions")


@pytest.fixture(autouse=True)
def _by_value() -> Iterator[None]:
    """Functions of this file go along as those of a notebook do."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def train(lr: float, depth: int = 1) -> dict[str, Any]:
    print(f"lr {lr}", flush=True)
    if depth > 2:
        raise ValueError(f"depth {depth} is too much")
    return {"lr": lr, "loss": lr * depth}


def test_a_grid_runs_and_is_a_frame(client: trainmaster.Client) -> None:
    jobs = client.grid(train, lr=[0.1, 0.2], depth=(1, 3), at_once=3)
    first, bad, _, _ = jobs.results(return_exceptions=True)
    assert first == {"lr": 0.1, "loss": 0.1}
    assert isinstance(bad, ValueError)
    assert "raise ValueError" in str(bad.__cause__)
    frame = jobs.to_frame()
    assert list(frame.lr) == [0.1, 0.1, 0.2, 0.2]
    assert list(frame.state) == ["succeeded", "failed"] * 2
    assert jobs[0].logs() == "lr 0.1\n"
    again = client.array(jobs.id)
    assert again[2].result() == {"lr": 0.2, "loss": 0.2}
    assert {job.id for job in trainmaster.as_completed(again)} == {job.id for job in jobs}


def test_a_command_is_followed_and_awaited(client: trainmaster.Client) -> None:
    job = client.submit("echo one; echo two", name="words")
    assert "".join(job.follow()) == "one\ntwo\n"

    async def awaited() -> Any:
        return await job

    assert asyncio.run(awaited()) == "one\ntwo\n"
    assert client.job("words").result() == "one\ntwo\n"


def test_a_job_is_suspended_resumed_and_cancelled(client: trainmaster.Client) -> None:
    job = client.using(gpus=4).submit(time.sleep, 600, name="long")
    until(lambda: job.state == "running", "it to run")
    job.suspend(force=True)
    until(lambda: job.state == "suspended", "it to be suspended")
    assert "suspended by hand" in job.explain() or "resume" in job.explain()
    job.resume()
    until(lambda: job.state == "running", "it to run again")
    job.cancel()
    with pytest.raises(trainmaster.JobCancelled, match=f"Job {job.id} was cancelled"):
        job.result()


def test_what_the_manager_refuses_leaves_nothing_behind(client: trainmaster.Client) -> None:
    before = len(list(client.folder.iterdir()))
    with pytest.raises(Failed, match="type that is not here"):
        client.submit(train, 0.1, gpus="H100:1")
    assert len(list(client.folder.iterdir())) == before


HYDRA_APP = """import hydra

@hydra.main(config_path=None, config_name=None, version_base="1.3")
def train(config):
    print("depth", config.depth)
    if config.depth == 3:
        raise ValueError("depth 3 is too much")
    return config.depth * 2

train()
"""


@pytest.fixture
def environment(client: trainmaster.Client) -> dict[str, str]:
    """Of programs that find the manager by themselves."""
    folder = client.api.place.folder
    assert folder is not None
    paths = os.pathsep.join(map(str, (ROOT / "integrations/hydra", ROOT)))
    return os.environ | {"TRAINMASTER_DATA": str(folder), "PYTHONPATH": paths}


def ran(environment: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=300,
    )


def test_a_sweep_of_hydra_is_an_array(
    client: trainmaster.Client, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(HYDRA_APP)
    sweep = ("app.py", "-m", "hydra/launcher=trainmaster", "hydra.launcher.job.gpus=1")
    said = ran(environment, tmp_path, *sweep, "+depth=1,2,3")
    assert said.returncode == 1
    assert "depth 3 is too much" in said.stderr
    jobs = client.array("app")
    assert [job.state for job in jobs] == ["succeeded", "succeeded", "failed"]
    assert jobs[1].result().return_value == 4
    assert jobs[0].logs() == "depth 1\n"


def test_a_search_of_optuna_tells_results_and_prunes(
    environment: dict[str, str], tmp_path: Path
) -> None:
    program = str(ROOT / "examples/optuna_search.py")
    sizes = ("--trials", "8", "--at-once", "4", "--steps", "6", "--step-s", "0.1")
    said = ran(environment, tmp_path, program, *sizes)
    assert said.returncode == 0, said.stderr
    assert re.search(r"^8 trials: .*complete", said.stdout)
    assert re.search(r"^best: 0\.\d+ with {'lr'", said.stdout, re.M)
