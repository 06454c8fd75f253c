"""A real DDP job is resized 1, 2, 4, 2 by each policy that resizes, and learns as if left alone."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from tests.live.elastic_job import BATCH, SAMPLES

pytestmark = pytest.mark.live
JOB = Path(__file__).with_name("elastic_job.py")
LOSS = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)
STEPS = 2400
SIZES = (1, 2, 4, 2)
PATIENCE_S = 240.0
ALL = "TRAINMASTER_TEST_ALL_RESIZES"
ALWAYS = "max-min"
POLICIES: dict[str, dict[str, str]] = {
    "max-min": {},
    "afs-l": {},
    "optimus": {"interval_s": "5"},
    "gandiva": {"quantum_s": "5"},
    "trainmaster": {},
}


def train(
    daemon: LiveDaemon, folder: Path, gpus: object, sleep: float, *, steps: int = STEPS
) -> str:
    folder.mkdir()
    command = [sys.executable, str(JOB), str(folder), str(steps), str(sleep)]
    return daemon.submit(
        name="elastic",
        command=command,
        workdir=str(folder),
        gpus=gpus,
        ranks="gpu",
        stays_in_memory=False,
        retries=0,
    )


def neighbour(daemon: LiveDaemon) -> str:
    """Somebody who needs one device until he is cancelled."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
    return daemon.submit(command=command, workdir=str(daemon.folder), gpus=1, preemptible=False)


def cancel(daemon: LiveDaemon, id: str) -> None:
    daemon.call("POST", f"/api/v1/jobs/{id}/cancel", {})


def story(daemon: LiveDaemon, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]
    return found


def losses(daemon: LiveDaemon, id: str) -> dict[int, float]:
    logs = (daemon.folder / "runs" / id).glob("*/rank-*.log")
    found = [pair for log in logs for pair in LOSS.findall(log.read_text())]
    assert len(found) == len({step for step, _ in found}), "steps were done twice"
    return {int(step): float(loss) for step, loss in found}


def until_over(daemon: LiveDaemon, id: str) -> None:
    """It has made all its steps, which takes a while on a busy machine."""
    ends = {"succeeded", "failed", "cancelled"}
    state = until(
        lambda: (found := daemon.job(id)["state"]) in ends and found, "its end", PATIENCE_S
    )
    assert state == "succeeded", daemon.log(id)


def until_size(daemon: LiveDaemon, id: str, folder: Path, count: int) -> None:
    """It trains on so many devices."""

    def trains() -> bool:
        found = daemon.job(id)
        assert found["state"] not in {"failed", "cancelled", "succeeded"}, daemon.log(id)
        if len(found["devices"]) != count:
            return False
        rows = [
            line.split(" ")
            for file in folder.glob("seen-*")
            for line in file.read_text().splitlines()
        ]
        newest = max((int(row[0]) for row in rows), default=0)
        return any(int(row[0]) == newest and int(row[2]) == count for row in rows)

    until(trains, f"job {id} to train on {count} devices: {story(daemon, id)}", PATIENCE_S)


def samples_by_epoch(folder: Path) -> dict[int, Counter[int]]:
    found: dict[int, Counter[int]] = {}
    for file in folder.glob("seen-*"):
        for line in file.read_text().splitlines():
            step, *_, samples = line.split(" ")
            epoch = (int(step) - 1) // (SAMPLES // BATCH)
            found.setdefault(epoch, Counter()).update(map(int, filter(None, samples.split(","))))
    return found


@pytest.mark.parametrize(
    "policy", [pytest.param(name, marks=pytest.mark.slow) for name in POLICIES]
)
def test_resized_by_policy_it_learns_as_if_left_alone(tmp_path: Path, policy: str) -> None:
    if policy != ALWAYS and ALL not in os.environ:
        pytest.skip(f"each policy takes a minute or more: `make resizes` sets {ALL}")
    with live(tmp_path / "data", "--slots", "4") as daemon:
        daemon.call("PUT", "/api/v1/policy", {"name": policy, "options": POLICIES[policy]})
        folder = tmp_path / "elastic"
        first = [neighbour(daemon) for _ in range(3)]
        for each in first:
            daemon.until_state(each, "running")
        id = train(daemon, folder, "1-4", 0.8)
        until_size(daemon, id, folder, 1)
        (pid,) = daemon.job(id)["pids"]
        cancel(daemon, first[0])
        until_size(daemon, id, folder, 2)
        for each in first[1:]:
            cancel(daemon, each)
        until_size(daemon, id, folder, 4)
        later = [neighbour(daemon) for _ in range(2)]  # the second may come while it is resized
        for each in later:
            daemon.until_state(each, "running")
        until_size(daemon, id, folder, 2)
        assert daemon.job(id)["pids"][0] == pid
        (folder / "hurry").touch()
        until_over(daemon, id)
        told = story(daemon, id)
        assert [each["what"] for each in told].count("started") == 1, told
        resizes = [each["detail"] for each in told if each["what"] == "resized"]
        assert [each["in_place"] for each in resizes] == [True] * len(resizes), resizes
        assert {pid} == {each["pids"][0] for each in resizes}
        assert [len(each["pids"]) for each in resizes][-1] == SIZES[-1]
        timed = [each["detail"] for each in told if each["what"] == "resize timed"]
        print(policy, json.dumps(timed))
        assert len(timed) == len(resizes)
        for each in later:
            cancel(daemon, each)

        epochs = samples_by_epoch(folder)
        assert len(epochs) == STEPS * BATCH // SAMPLES
        assert all(seen == Counter(range(SAMPLES)) for seen in epochs.values())
        alone = train(daemon, tmp_path / "alone", 1, 0.0)
        until_over(daemon, alone)
        got, wanted = losses(daemon, id), losses(daemon, alone)
    assert got.keys() == wanted.keys() == set(range(1, STEPS + 1))
    assert got[STEPS] == pytest.approx(wanted[STEPS], rel=1e-2)
