"""What earlier runs say about run times, in a real manager: forecasts of starts and policies go by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live

pytestmark = pytest.mark.live
BY_RUNS = "earlier runs of the same program with the same arguments"


def sleeps(daemon: LiveDaemon, seconds: str, **fields: object) -> str:
    return daemon.submit(command=["sleep", seconds], workdir=str(daemon.folder), **fields)


def explained(daemon: LiveDaemon, id: str) -> dict[str, Any]:
    found: dict[str, Any] = daemon.call("GET", f"/api/v1/jobs/{id}/explain")
    return found


def test_earlier_runs_feed_forecasts_dry_runs_and_the_policy(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with live(folder, "--slots", "1", "--policy", "afs-l") as daemon:
        short, long = sleeps(daemon, "0.5"), sleeps(daemon, "6")
        for id in (short, long):
            daemon.until_state(id, "succeeded")
        run_s = daemon.job(long)["run_s"]
    with live(folder, "--slots", "1", "--policy", "afs-l") as daemon:
        blocker = daemon.submit(command="sleep 600", workdir=str(folder))
        daemon.until_state(blocker, "running")
        late = sleeps(daemon, "6", held=True)
        early = sleeps(daemon, "0.5", held=True)
        for id in (late, early):
            daemon.call("POST", f"/api/v1/jobs/{id}/resume")
        remarks = " ".join(explained(daemon, late)["remarks"])
        assert f"judging by {BY_RUNS}" in remarks
        asked = {"command": ["sleep", "6"], "name": "draft", "workdir": str(folder)}
        draft = daemon.call("POST", "/api/v1/jobs?dry_run=true", asked)["jobs"][0]["forecast"]
        assert f"judging by {BY_RUNS}" in draft["basis"]
        daemon.call("POST", f"/api/v1/jobs/{blocker}/cancel")
        daemon.until_state(late, "running")
        assert daemon.job(early)["state"] == "succeeded"
        behind = explained(daemon, sleeps(daemon, "6"))["forecast"]
        assert f"judging by {BY_RUNS}" in behind["basis"]
        assert behind["start_s"] - daemon.job(late)["start_s"] > run_s / 2
