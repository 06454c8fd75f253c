"""What `down --ray` takes back, and what it says of the jobs that are left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainmaster.cli.down import end_without_nodes
from trainmaster.cli.main import main
from trainmaster.cli.support import manager_log
from trainmaster.cli.support.engine_option import remember_engine
from trainmaster.daemon.folder_lock import FolderLock
from trainmaster.engines.engine_settings import EngineChoice
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.gateway_client import Gateway

AT = "10.0.0.1:6379"


@pytest.fixture
def taken_back(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of clusters that were connected to, and left."""
    left: list[str] = []
    log_files: list[Path] = []

    async def connect(self: Gateway) -> None:
        assert [each.name for each in log_files] == ["manager.log"]  # not on the terminal

    async def leave(self: Gateway) -> None:
        left.append(self.address)

    monkeypatch.setattr(manager_log, "log_to", log_files.append)
    monkeypatch.setattr(Gateway, "connect", connect)
    monkeypatch.setattr(Gateway, "withdraw", leave)
    monkeypatch.setattr(local_cluster, "stop", lambda folder: 27)
    return left


def test_without_a_manager_a_cluster_of_this_machine_ends(
    tmp_path: Path, taken_back: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    remember_engine(tmp_path, EngineChoice("ray", nodes=4))
    assert main(["down", "--ray", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Its Ray cluster has ended (27 processes).\n"
    assert taken_back == []


def test_without_a_manager_launchers_and_reservations_are_taken_back(
    tmp_path: Path, taken_back: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    remember_engine(tmp_path, EngineChoice("ray", AT))
    assert main(["down", "--ray", "--json", "--data", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["pid"], said["ray"]["address"]) == (None, AT)
    assert taken_back == [AT]


def test_a_cluster_that_does_not_answer_is_a_failure(
    tmp_path: Path,
    taken_back: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def away(self: Gateway) -> None:
        raise EngineError("No Ray cluster answers.")

    monkeypatch.setattr(Gateway, "connect", away)
    remember_engine(tmp_path, EngineChoice("ray", AT))
    assert main(["down", "--ray", "--data", str(tmp_path)]) == 1
    assert "taken back from Ray: No Ray cluster answers" in capsys.readouterr().err


def test_one_that_was_never_on_ray_or_is_in_use_is_left_alone(
    tmp_path: Path, taken_back: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--ray", "--data", str(tmp_path)]) == 1
    assert "It was not on Ray" in capsys.readouterr().err
    remember_engine(tmp_path, EngineChoice("ray", AT))
    lock = FolderLock(tmp_path, "sqlite://")
    lock.take()
    assert main(["down", "--ray", "--data", str(tmp_path)]) == 1
    lock.release()
    assert "No Trainmaster runs in" in capsys.readouterr().err
    assert taken_back == []


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["running"], "1 job ends within 1m: the next `trainmaster up` starts it again"),
        (["running", "running", "pending"], "checkpoint; 1 job waits."),
        (["pending"], "1 job waits for the next `trainmaster up`."),
    ],
)
def test_jobs_that_lose_their_nodes_do_not_go_on(states: list[str], said: str) -> None:
    assert said in end_without_nodes(states, 60.0)
