"""Ten thousand jobs at once: nothing is lost, and others are answered meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live

pytestmark = pytest.mark.live

MANY = 10_000
JOB = {"command": "true", "snapshot": False}


@pytest.fixture
def full(tmp_path: Path) -> Iterator[LiveDaemon]:
    """All slots are taken, so that whatever is submitted waits."""
    with live(tmp_path / "data", "--slots", "1") as daemon:
        daemon.until_state(daemon.submit(command="exec sleep 1000"), "running")
        yield daemon


def listed(daemon: LiveDaemon, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    before = ""
    while True:
        page = daemon.call("GET", f"/api/v1/jobs?limit=1000&{query}{before}")
        found += page["jobs"]
        if page["next"] is None:
            return found
        before = f"&before={page['next']}"


def test_ten_thousand_jobs_of_one_request_outlive_the_daemon(full: LiveDaemon) -> None:
    answers: list[Any] = []
    body = {"jobs": [JOB] * MANY}
    asking = threading.Thread(
        target=lambda: answers.append(full.call("POST", "/api/v1/jobs", body))
    )
    asking.start()
    others = 0
    while asking.is_alive():
        assert full.job("1")["state"] == "running"
        others += 1
    asking.join()
    assert others > 3, "nobody else was answered while they were taken in"
    ids = {each["id"] for each in answers[0]["jobs"]}
    assert len(ids) == MANY
    full.kill()
    full.start()
    full.until_active()
    found = listed(full, "state=pending")
    assert {row["id"] for row in found} == ids
    assert all(row["reason"] for row in found)


def test_an_array_of_ten_thousand_is_cancelled_as_a_whole(full: LiveDaemon) -> None:
    (answer,) = full.call("POST", "/api/v1/jobs", JOB | {"array": f"0-{MANY - 1}"})["jobs"]
    assert len(answer["ids"]) == MANY
    assert len(listed(full, f"array={answer['id']}")) == MANY
    full.call("POST", f"/api/v1/jobs/{answer['id']}/cancel")
    counts = full.call("GET", "/api/v1/jobs?limit=1")["counts"]
    assert counts == {"running": 1, "cancelled": MANY}
