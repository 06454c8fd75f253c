"""A real manager says why real runs failed: one manager for all of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.failures.scores import HERE
from tests.live.daemons import LiveDaemon, live

pytestmark = pytest.mark.live

REASONS = """
reasons:
- key: licence-server
  title: no licence
  blame: platform
  retry: never
  advice: Ask the licence server's owner.
  lines: ['licence server \\S+ is down']
"""
GANG = """
import os, sys, time
if os.environ["RANK"] == "1":
    print("x" * 70_000)  # the cause is at the end of much output
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity)")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    folder = tmp_path_factory.mktemp("failures")
    (folder / "reasons.yaml").write_text(REASONS)
    file = str(folder / "reasons.yaml")
    with live(folder / "data", "--slots", "4", "--failure-reasons", file) as daemon:
        yield daemon


def failure(daemon: LiveDaemon, *command: str, **fields: object) -> dict[str, Any]:
    """The job that runs this command and fails."""
    id = daemon.submit(command=list(command), workdir=str(daemon.folder), retries=0, **fields)
    daemon.until_state(id, "failed")
    return daemon.job(id)


def test_a_missing_file(daemon: LiveDaemon) -> None:
    job = failure(daemon, sys.executable, str(HERE / "programs/missing_file.py"))
    found = job["failure"]
    assert (found["reason"], found["blame"], found["rank"]) == ("missing-file", "user", 0)
    assert found["path"] == "/data/missing/train.csv"
    assert found["lines"][-1].startswith("FileNotFoundError: [Errno 2]")
    assert found["advice"].startswith("Check the path")
    assert job["end_reason"]["sentence"] == "Missing file."
    told = daemon.call("GET", f"/api/v1/jobs/{job['id']}/explain")
    assert told["failure"]["reason"] == "missing-file"
    story = daemon.call("GET", f"/api/v1/jobs/{job['id']}/story")["story"]
    (failed,) = [each for each in story if each["what"] == "failed"]
    assert failed["detail"]["reason"] == "missing-file"
    assert "missing file, blame: user" in failed["sentence"]


def test_a_rank_of_a_gang(daemon: LiveDaemon) -> None:
    found = failure(daemon, sys.executable, "-c", GANG, gpus=2, ranks="gpu", preflight=False)[
        "failure"
    ]
    assert (found["reason"], found["rank"]) == ("cuda-out-of-memory", 1)


def test_a_signal_and_what_is_not_known(daemon: LiveDaemon) -> None:
    found = failure(daemon, "sh", "-c", "kill -SEGV $$")["failure"]
    assert (found["reason"], found["signal"]) == ("core-dump", "SIGSEGV")
    job = failure(daemon, "sh", "-c", "echo the moon is not round; exit 3")
    found = job["failure"]
    assert (found["reason"], found["blame"], found["exit_code"]) == ("unknown", "unknown", 3)
    assert found["advice"] == f"Read the end of its log: trainmaster logs {job['id']}."
    assert job["end_reason"]["sentence"] == "The moon is not round."
    story = daemon.call("GET", f"/api/v1/jobs/{job['id']}/story")["story"]
    assert any("exit code 3, rank 0, the moon is not round" in each["sentence"] for each in story)


def test_a_reason_of_the_operators_own(daemon: LiveDaemon) -> None:
    found = failure(daemon, "sh", "-c", "echo licence server a7 is down; exit 1")["failure"]
    assert (found["reason"], found["title"]) == ("licence-server", "no licence")


def test_a_command_that_is_not_there(daemon: LiveDaemon) -> None:
    found = failure(daemon, "./no-such-program")["failure"]
    assert (found["reason"], found["blame"]) == ("command-not-found", "user")
