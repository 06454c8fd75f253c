"""What a job, a user or a broken machine cannot do to the manager."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live


def test_a_job_that_is_lost_again_and_again_has_failed(tmp_path: Path) -> None:
    limits = ("--limit", "losses=2", "--limit", "retry_delay=50ms")
    with live(tmp_path, "--slots", "2", *limits) as daemon:
        lost = daemon.submit(command="kill -9 $PPID; sleep 100", workdir=str(tmp_path), retries=0)
        ended = daemon.until_state(lost, "failed")
        assert (ended["end_reason"]["code"], ended["end_reason"]["times"]) == ("Lost", 3)
        assert ended["attempt"] == 3
        story = daemon.call("GET", f"/api/v1/jobs/{lost}/story")["story"]
        assert [each["what"] for each in story].count("lost") == 3


def test_retries_do_not_follow_each_other_at_once(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--limit", "retry_delay=300s") as daemon:
        fails = daemon.submit(command="exit 1", workdir=str(tmp_path), retries=1000)
        begun = time.monotonic()
        found = daemon.until_state(fails, "pending")
        while (found["reason"] or {}).get("code") != "RetryDelay":
            assert time.monotonic() < begun + 60
            time.sleep(0.1)
            found = daemon.until_state(fails, "pending")
        assert "attempt 2 of 1001, failed 1 time" in found["reason"]["sentence"]
        daemon.kill()
        daemon.start()
        daemon.until_active()
        found = daemon.until_state(fails, "pending")
        assert (found["attempt"], found["reason"]["code"]) == (1, "RetryDelay")
        daemon.call("POST", f"/api/v1/jobs/{fails}/cancel")
        daemon.until_state(fails, "cancelled")


STUBBORN = "trap '' TERM; touch ready; while :; do sleep 0.1; done"


def refused(daemon: LiveDaemon, method: str, path: str, body: object = None) -> tuple[int, str]:
    """The status and the sentence of what the manager refuses."""
    with pytest.raises(HTTPError) as no:
        daemon.call(method, path, body)
    return no.value.code, json.loads(no.value.read())["error"]["sentence"]


def stubborn(daemon: LiveDaemon, folder: Path, grace: str) -> str:
    """A job that does not end when it is asked to."""
    job = daemon.submit(command=STUBBORN, workdir=str(folder), grace_period=grace)
    until((folder / "ready").exists, "the trap to be set")
    return job


def test_a_grace_period_has_a_limit_and_cancel_now_has_none(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--max-grace", "1h") as daemon:
        asked = {"command": "true", "workdir": str(tmp_path), "grace_period": "3650d"}
        code, said = refused(daemon, "POST", "/api/v1/jobs", asked)
        assert code == 422
        assert "its limit max_grace" in said
        job = stubborn(daemon, tmp_path, "1h")
        code, said = refused(daemon, "PATCH", f"/api/v1/jobs/{job}", {"grace_period": "2h"})
        assert code == 422
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
        until(lambda: daemon.job(job)["transition"] == "stopping", "it to be stopping")
        code, said = refused(daemon, "POST", f"/api/v1/jobs/{job}/suspend")
        assert (code, "being ended" in said) == (409, True)
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel?now=true")
        daemon.until_state(job, "cancelled")


def test_a_grace_period_can_be_changed_while_a_job_runs_and_shrinks_with_the_limit(
    tmp_path: Path,
) -> None:
    with live(tmp_path, "--slots", "2", "--max-grace", "1h") as daemon:
        job = stubborn(daemon, tmp_path, "1h")
        daemon.call("PATCH", f"/api/v1/jobs/{job}", {"grace_period": "100ms"})
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
        daemon.until_state(job, "cancelled")
        (tmp_path / "ready").unlink()
        other = stubborn(daemon, tmp_path, "1h")
        daemon.until_state(other, "running")
        daemon.kill()
        daemon.arguments = ("--slots", "2", "--max-grace", "100ms")
        daemon.start()
        daemon.until_active()
        daemon.call("POST", f"/api/v1/jobs/{other}/cancel")
        daemon.until_state(other, "cancelled")
