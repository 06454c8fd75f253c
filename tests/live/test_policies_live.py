"""Every policy that needs no oracle drives real processes, one after another in one daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.live.daemons import LiveDaemon, live
from trainmaster.catalog import policy_class, policy_names

pytestmark = pytest.mark.live
ORACLES = [name for name in policy_names() if policy_class(name).needs_oracle]
POLICIES = [name for name in policy_names() if name not in ORACLES]
WORK = (
    {"gpus": 1, "seconds": 0.4},
    {"gpus": 2, "seconds": 0.3},
    {"gpus": "1-2", "seconds": 0.3},
    {"gpus": 1, "seconds": 0.2, "queue": "other"},
    {"gpus": 1, "seconds": 0.1, "class": "opportunistic"},
    {"gpus": 1, "seconds": 0.1, "priority": 3},
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("policies"), "--slots", "2x2") as started:
        yield started


@pytest.mark.parametrize("policy", POLICIES)
def test_all_jobs_of_a_mixed_lot_end(daemon: LiveDaemon, policy: str) -> None:
    said = daemon.call("PUT", "/api/v1/policy", {"name": policy, "options": {}})
    assert said["name"] == policy
    ids = []
    for work in WORK:
        rest = {key: value for key, value in work.items() if key != "seconds"}
        command = [sys.executable, "-S", "-c", f"import time; time.sleep({work['seconds']})"]
        own = {"preflight": True, "env": {"POLICY": policy}}  # so that each policy places pre-runs
        ids.append(daemon.submit(command=command, workdir=str(daemon.folder), **rest, **own))
    for id in ids:
        found = daemon.until_state(id, "succeeded", "failed", "cancelled")
        assert found["state"] == "succeeded", (id, found, daemon.log(id))
    assert daemon.call("GET", "/api/v1/policy")["trouble"] is None


@pytest.mark.parametrize("policy", ORACLES)
def test_a_policy_that_must_know_the_future_is_refused(daemon: LiveDaemon, policy: str) -> None:
    before = daemon.call("GET", "/api/v1/policy")["name"]
    with pytest.raises(HTTPError) as refused:
        daemon.call("PUT", "/api/v1/policy", {"name": policy, "options": {}})
    assert refused.value.code in {400, 422}
    assert daemon.call("GET", "/api/v1/policy")["name"] == before


def test_the_policy_outlives_the_daemon(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2") as first:
        options = {"quantum_s": "5"}
        first.call("PUT", "/api/v1/policy", {"name": "las", "options": options})
        first.kill()
        first.start()
        first.until_active()
        found = first.call("GET", "/api/v1/policy")
    assert found["name"] == "las"
    assert found["options"]["quantum_s"] == 5
