"""The Python client with a live manager and real processes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

import trainmaster
from tests.live.daemons import live, until
from trainmaster.errors import Failed

pytestmark = pytest.mark.live


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


def test_a_manager_is_asked_by_its_url_with_a_token(client: trainmaster.Client) -> None:
    place = client.api.place
    assert place.folder is not None
    token = place.folder / "admin-token"
    remote = trainmaster.Client(place.url, token_file=token, folder=client.folder)
    assert remote.submit(train, 0.5).result() == {"lr": 0.5, "loss": 0.5}
    wrong = client.folder / "token"
    wrong.write_text("not-a-token\n")
    with pytest.raises(Failed, match="does not know this token"):
        trainmaster.Client(place.url, token_file=wrong).submit("true")
    wrong.unlink()


def test_what_the_manager_refuses_leaves_nothing_behind(client: trainmaster.Client) -> None:
    before = len(list(client.folder.iterdir()))
    with pytest.raises(Failed, match="type that is not here"):
        client.submit(train, 0.1, gpus="H100:1")
    assert len(list(client.folder.iterdir())) == before
