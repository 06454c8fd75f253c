"""What a job, a user or a broken machine cannot do to the manager."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.live.daemons import live

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
