"""Two ranks of PyTorch under the daemon: resized and suspended by policy, the same loss curve."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = [pytest.mark.live, pytest.mark.slow]
EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"
STEP = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)
STEPS = 60


def ddp(daemon: LiveDaemon, gpus: object, sleep: float) -> str:
    return daemon.submit(
        name="ddp",
        command=[sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--sleep", str(sleep)],
        workdir=str(daemon.folder),
        gpus=gpus,
        ranks="gpu",
        stays_in_memory=False,
        retries=0,
    )


def nap(daemon: LiveDaemon, gpus: int, priority: int) -> str:
    """Somebody who needs devices for a moment."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(1)"]
    folder = str(daemon.folder)
    return daemon.submit(command=command, workdir=folder, gpus=gpus, priority=priority)


def curve(daemon: LiveDaemon, id: str) -> dict[int, float]:
    logs = sorted(
        (daemon.folder / "runs" / id).glob("*/rank-0.log"), key=lambda p: int(p.parent.name)
    )
    found = [pair for log in logs for pair in STEP.findall(log.read_text())]
    assert len(found) == len({step for step, _ in found}), f"steps were done twice: {found}"
    return {int(step): float(loss) for step, loss in found}


def until_devices(daemon: LiveDaemon, id: str, count: int) -> None:
    """It runs on so many, and has made a step since."""

    def runs() -> bool:
        found = daemon.job(id)
        assert found["state"] not in {"failed", "cancelled", "succeeded"}, daemon.log(id)
        return found["state"] == "running" and len(found["devices"]) == count

    until(runs, f"job {id} to run on {count} devices", 120)
    before = len(curve(daemon, id))
    until(lambda: len(curve(daemon, id)) > before, "it to make a step", 120)


def test_a_gang_that_is_resized_and_suspended_by_policy_learns_as_if_left_alone(
    tmp_path: Path,
) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "max-min") as daemon:
        straight = ddp(daemon, 2, 0.0)
        daemon.until_state(straight, "succeeded")
        wanted = curve(daemon, straight)
        assert len(wanted) == STEPS

        id = ddp(daemon, "1-2", 0.2)
        until_devices(daemon, id, 2)
        nap(daemon, 1, 0)
        until_devices(daemon, id, 1)
        until_devices(daemon, id, 2)
        nap(daemon, 2, 5)
        daemon.until_state(id, "suspended")
        daemon.until_state(id, "succeeded")

        whats = [each["what"] for each in daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]]
        got = curve(daemon, id)
    assert whats.count("resized") >= 2, whats
    assert "suspended" in whats, whats
    assert whats.count("started") >= 2, whats
    assert got == pytest.approx(wanted, rel=1e-4)
