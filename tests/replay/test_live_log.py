"""A real daemon's event log through a fresh controller gives the same orders; an altered one does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live
from trainmaster.model.actions import Freeze, Launch, Thaw
from trainmaster.whatif.replay import LogError, replay

pytestmark = pytest.mark.live
Line = dict[str, Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Gangs, suspensions of both kinds by hand and by policy, a change of policy, a failure."""
    with live(tmp_path_factory.mktemp("log"), "--slots", "2x2", "--policy", "fifo") as daemon:
        stays, leaves = slept(daemon, 3.0, gpus=2), slept(daemon, 3.0, stays_in_memory=False)
        daemon.until_state(stays, "running")
        daemon.until_state(leaves, "running")
        for id in (stays, leaves):
            daemon.call("POST", f"/api/v1/jobs/{id}/suspend?force=true")
        for id in (stays, leaves):
            daemon.until_state(id, "suspended")
            daemon.call("POST", f"/api/v1/jobs/{id}/resume")
        daemon.call("PUT", "/api/v1/policy", {"name": "las", "options": {"quantum_s": "1"}})
        rest = [slept(daemon, 0.2 * number, gpus=1 + number % 2) for number in range(8)]
        rest.append(daemon.submit(command=["false"], workdir=str(daemon.folder), retries=1))
        for id in (stays, leaves, *rest):
            daemon.until_state(id, "succeeded", "failed")
        with daemon.open("/api/v1/record/events") as answer:
            return answer.read().decode().splitlines()


def slept(daemon: LiveDaemon, seconds: float, **fields: object) -> str:
    command = [sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"]
    return daemon.submit(command=command, workdir=str(daemon.folder), **fields)


def unlike(lines: list[str]) -> list[int]:
    return [each.seq for each in replay(lines) if not each.is_same]


def altered(lines: list[str], change: Callable[[Line], bool]) -> list[str]:
    """With the first line changed that lets itself be changed."""
    found = list(lines)
    for place, line in enumerate(lines):
        said = json.loads(line)
        if "events" in said and change(said):
            found[place] = json.dumps(said)
            return found
    raise AssertionError("there was nothing to alter")


def test_a_whole_live_run_gives_the_same_orders(log: list[str]) -> None:
    steps = list(replay(log))
    assert [step.seq for step in steps if not step.is_same] == []
    kinds = {type(order) for step in steps for order in step.kept}
    assert kinds >= {Launch, Freeze, Thaw}


def lose(word: str) -> Callable[[Line], bool]:
    def change(said: Line) -> bool:
        kept = [event for event in said["events"] if event["is"] != word]
        was_there = len(kept) < len(said["events"])
        said["events"] = kept
        return was_there

    return change


def test_an_event_that_is_missing_shows(log: list[str]) -> None:
    for word in ("JobSubmitted", "RunSucceeded", "RunSuspended"):
        assert unlike(altered(log, lose(word))), f"{word} was lost, and nobody saw it"


def test_an_order_that_was_changed_shows(log: list[str]) -> None:
    def forget_orders(said: Line) -> bool:
        had = bool(said["orders"])
        said["orders"] = []
        return had

    assert len(unlike(altered(log, forget_orders))) == 1


def test_a_log_without_its_beginning_is_refused(log: list[str], tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not begin with a snapshot"):
        list(replay(log[1:]))
