"""Reasons that are true: what a waiting job says of a real manager, and what is refused before it waits."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.model.units import MIB

pytestmark = pytest.mark.live
ENDED = {"succeeded", "failed", "cancelled"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="module", name="shared")
def fixture_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """A manager of one slot, for all tests that need no other one: each start takes seconds."""
    with live(tmp_path_factory.mktemp("shared") / "data", "--slots", "1") as daemon:
        yield daemon


@pytest.fixture(name="one_slot")
def fixture_one_slot(shared: LiveDaemon) -> Iterator[LiveDaemon]:
    """It has no jobs, and the usual policy."""
    usual = shared.call("GET", "/api/v1/policy")["name"]
    yield shared
    for row in shared.call("GET", "/api/v1/jobs")["jobs"]:
        if row["state"] not in ENDED:
            shared.call("POST", f"/api/v1/jobs/{row['id']}/cancel")
            shared.until_state(row["id"], "cancelled")
    use(shared, usual)


def use(daemon: LiveDaemon, policy: str) -> None:
    daemon.call("PUT", "/api/v1/policy", {"name": policy})


def busy(daemon: LiveDaemon, **fields: object) -> str:
    """A job that runs until the test ends."""
    id = daemon.submit(command="sleep 600", workdir=str(daemon.folder), **fields)
    daemon.until_state(id, "running")
    return id


def waits(daemon: LiveDaemon, **fields: object) -> tuple[str, dict[str, Any]]:
    """A job that waits, and why."""
    id = daemon.submit(command="sleep 600", workdir=str(daemon.folder), **fields)
    return id, reason_of(daemon, id)


def reason_of(daemon: LiveDaemon, id: str) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: daemon.job(id)["reason"], f"why job {id} waits")
    return found


def define(daemon: LiveDaemon, queue: str, **terms: object) -> None:
    daemon.call("PUT", f"/api/v1/queues/{queue}", terms)


@contextmanager
def refused(status: int) -> Iterator[list[str]]:
    """What the manager says that it does not do."""
    said: list[str] = []
    with pytest.raises(urllib.error.HTTPError) as error:
        yield said
    assert error.value.code == status
    said.append(json.loads(error.value.read())["error"]["sentence"])


def test_what_its_queue_can_never_hold_is_refused_with_the_maximum(folder: Path) -> None:
    with live(folder, "--slots", "4") as daemon:
        define(daemon, "nlp", maximum_gpus=2)
        job = {"command": "true", "name": "big", "gpus": 4, "queue": "nlp"}
        for path in ("/api/v1/jobs", "/api/v1/jobs?dry_run=true"):
            with refused(422) as said:
                daemon.call("POST", path, job)
            assert "big asks for 4 GPUs, but queue nlp may hold 2 GPUs at most" in said[0]
        assert daemon.call("GET", "/api/v1/policy")["obeys_queues"]
        with refused(409) as said:
            daemon.call("DELETE", "/api/v1/queues/default")
        assert "queue default is always there" in said[0].lower()
        with refused(422) as said:
            daemon.call("POST", "/api/v1/jobs", job | {"queue": "nlpp", "gpus": 1})
        assert said == ["There is no queue nlpp; did you mean nlp?"]
        busy(daemon, gpus=4)
        id, _ = waits(daemon, gpus=2, queue="nlp")
        define(daemon, "nlp", maximum_gpus=1)
        found = until(
            lambda: (reason := reason_of(daemon, id))["code"] == "NeverFits" and reason,
            "the queue's maximum as the reason",
        )
        assert "its queue nlp may hold 1 GPU at most" in found["sentence"]


def test_a_queue_that_holds_nothing_has_not_used_up_its_share(folder: Path) -> None:
    with live(folder, "--slots", "4", "--policy", "two-level") as daemon:
        define(daemon, "nlp", weight=1)
        holder = busy(daemon, gpus=2)
        _, reason = waits(daemon, gpus=4, queue="nlp")
        assert reason["code"] == "NotEnoughFree"
        assert reason["held_by"] == [holder]
        assert reason["sentence"] == (
            f"It needs 4 GPUs and 2 are free; job {holder} holds the others."
        )
        define(daemon, "nlp", maximum_gpus=1)
        mine = busy(daemon, queue="nlp")
        _, reason = waits(daemon, queue="nlp")
        assert reason["code"] == "ShareUsedUp"
        assert reason["sentence"] == (
            f"Its queue nlp may hold 1 GPU at most and holds 1 GPU (job {mine}); the job needs 1 GPU"
            " more."
        )


def test_a_queue_that_is_owed_gpus_says_which_rule_keeps_them_from_it(folder: Path) -> None:
    arguments = ("--slots", "2", "--policy", "trainmaster", "--set", "min_run_s=900")
    with live(folder, *arguments) as daemon:
        define(daemon, "vision", guaranteed_gpus=2)
        holders = [busy(daemon), busy(daemon)]
        _, reason = waits(daemon, queue="vision")
        assert reason["held_by"] == holders
        assert "its queue vision is guaranteed 2 GPUs and holds none" in reason["sentence"]
        assert f"job {holders[0]} may be suspended in 1" in reason["sentence"]
        assert "at the earliest (min_run_s)" in reason["sentence"]


def test_a_suspended_program_is_not_ended_and_who_keeps_the_memory_is_named(folder: Path) -> None:
    with live(folder, "--slots", "2") as daemon:
        (node,) = daemon.call("GET", "/api/v1/nodes")["nodes"]
        memory = f"{node['memory_bytes'] * 2 // 3 // MIB}M"
        holder = busy(daemon, memory=memory)
        daemon.call("POST", f"/api/v1/jobs/{holder}/suspend")
        daemon.until_state(holder, "suspended")
        id, reason = waits(daemon, memory=memory)
        assert (reason["code"], reason["held_by"]) == ("HostTaken", [holder])
        assert f"job {holder}, suspended in memory, keeps " in reason["sentence"]
        daemon.call("POST", f"/api/v1/nodes/{node['name']}/drain")
        assert reason_of(daemon, id)["code"] == "NotEnoughFree"
        daemon.call("POST", f"/api/v1/nodes/{node['name']}/undrain")
        assert daemon.job(holder)["state"] == "suspended"
        assert not daemon.job(holder)["lost_s"]


def test_who_goes_first_is_named(folder: Path) -> None:
    with live(folder, "--slots", "2", "--policy", "fifo") as daemon:
        busy(daemon)
        first, reason = waits(daemon, gpus=2)
        assert "1 is free" in reason["sentence"]
        _, reason = waits(daemon)
        assert (reason["code"], reason["sentence"]) == ("BehindOthers", f"Job {first} goes first.")


def test_gpus_that_are_reserved_are_not_said_to_be_taken(folder: Path) -> None:
    arguments = ("--slots", "2", "--policy", "fifo", "--set", "backfill=easy")
    with live(folder, *arguments) as daemon:
        holder = busy(daemon)
        first, reason = waits(daemon, gpus=2)
        assert reason["sentence"] == (
            f"It needs 2 GPUs and 1 is free; job {holder} holds the others; the policy fifo never"
            " preempts a running job."
        )
        _, reason = waits(daemon)
        assert reason["code"] == "Reserved"
        assert f"held for job {first}" in reason["sentence"]
        _, reason = waits(daemon, gpus=2)
        assert f"none are free, 1 is reserved for job {first}" in reason["sentence"]


RAISES = """
from dataclasses import dataclass
from trainmaster.mechanisms.base_policy import BasePolicy

@dataclass(frozen=True)
class NoOptions:
    pass

class Raises(BasePolicy[NoOptions]):
    name = "raises"
    options_type = NoOptions

    def plan(self, view, memo, now):
        raise RuntimeError("out of ideas")
"""


def test_a_policy_that_raises_is_named_as_what_is_in_the_way(folder: Path) -> None:
    file = folder.with_name("raises.py")
    file.write_text(RAISES)
    with live(folder, "--slots", "2", "--policy", str(file)) as daemon:
        id, reason = waits(daemon)
        assert (reason["code"], reason["need"], reason["free"]) == ("PolicyFailed", 1, 2)
        assert "out of ideas" in reason["sentence"]
        numbers = daemon.call("GET", f"/api/v1/jobs/{id}/explain")["numbers"]
        assert (numbers["free"], numbers["largest_block"]) == (2, 2)


def test_two_halves_share_one_device(one_slot: LiveDaemon) -> None:
    busy(one_slot, gpus=0.5)
    busy(one_slot, gpus=0.5)
    _, reason = waits(one_slot, gpus=0.5)
    assert reason["code"] == "NotEnoughFree"


def story(daemon: LiveDaemon, id: str) -> list[str]:
    told = daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]
    return [each["sentence"] for each in told]


def test_a_story_says_who_and_which_job_suspended_it(folder: Path) -> None:
    with live(folder, "--slots", "1", "--policy", "trainmaster", "--set", "min_run_s=0") as daemon:
        ada, bob = (daemon.bearer_of(name, "operator") for name in ("ada", "bob"))
        id = busy(daemon, name="low")
        urgent = busy(daemon, name="bert", priority=10)
        suspended = daemon.until_state(id, "suspended")
        assert suspended["suspended_by"] == "policy"
        assert suspended["reason"]["sentence"].startswith("Waiting to resume: it needs 1 GPU")
        explained = daemon.call("GET", f"/api/v1/jobs/{id}/explain")["sentence"]
        assert explained.startswith(f"Suspended to make room for job {urgent}. Waiting to resume:")
        daemon.call("POST", f"/api/v1/jobs/{urgent}/suspend", **ada)
        daemon.until_state(id, "running")
        daemon.call("POST", f"/api/v1/jobs/{urgent}/resume", **ada)
        daemon.until_state(urgent, "running")
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel", **bob)
        ended = daemon.until_state(id, "cancelled")
        assert (ended["end_reason"]["by"], ended["end_reason"]["sentence"]) == (
            "bob",
            "Cancelled by bob.",
        )
        own, others = story(daemon, id), story(daemon, urgent)
        assert own.count(f"Suspended to make room for job {urgent} (bert)") == 2
        assert any(line.startswith("Running again") for line in own)
        assert "Cancelled by bob" in own
        assert own[0] == "Submitted as low"
        assert own[1].startswith("Starting on ")
        assert "Suspended by ada" in others
        assert "Resumed by ada" in others


def test_a_job_that_was_never_started_is_held_and_not_suspended(one_slot: LiveDaemon) -> None:
    ada = one_slot.bearer_of("ada", "operator")
    busy(one_slot)
    id, _ = waits(one_slot)
    one_slot.call("POST", f"/api/v1/jobs/{id}/suspend", **ada)
    row = one_slot.job(id)
    assert (row["state"], row["reason"]["code"]) == ("pending", "Held")
    assert row["reason"]["sentence"].startswith("Held by ada:")
    assert "Held by ada" in story(one_slot, id)
    one_slot.call("POST", f"/api/v1/jobs/{id}/idle")
    assert one_slot.job(id)["state"] == "pending"


def test_an_idle_session_says_that_it_was_idle(one_slot: LiveDaemon) -> None:
    id = busy(one_slot)
    one_slot.call("POST", f"/api/v1/jobs/{id}/idle")
    row = one_slot.until_state(id, "suspended")
    assert (row["suspended_by"], row["reason"]["code"]) == ("idle", "SuspendedIdle")
    assert "Suspended because it was idle" in story(one_slot, id)


def test_a_job_that_was_resumed_counts_its_new_wait(one_slot: LiveDaemon) -> None:
    use(one_slot, "fifo")
    id = busy(one_slot)
    assert one_slot.job(id)["waiting_s"] is None
    one_slot.call("POST", f"/api/v1/jobs/{id}/suspend")
    one_slot.until_state(id, "suspended")
    busy(one_slot)
    one_slot.call("POST", f"/api/v1/jobs/{id}/resume")
    until(lambda: (one_slot.job(id)["waiting_s"] or 0) > 0.1, "the wait to be counted")
    row = one_slot.job(id)
    assert (row["state"], row["suspended_by"]) == ("suspended", "policy")


def test_a_failed_job_shows_its_last_lines(one_slot: LiveDaemon) -> None:
    command = "echo early; for i in $(seq 20); do echo line $i; done; exit 3"
    id = one_slot.submit(command=command, workdir=str(one_slot.folder), retries=0)
    row = one_slot.until_state(id, "failed")
    assert row["last_lines"] == [f"line {number}" for number in range(11, 21)]
    assert row["end_reason"]["code"] == "ExitCode"
    explained = one_slot.call("GET", f"/api/v1/jobs/{id}/explain")
    assert explained["last_lines"] == row["last_lines"]
    assert explained["code"] == "ExitCode"


def test_a_declined_deadline_is_said_wherever_one_looks(one_slot: LiveDaemon) -> None:
    use(one_slot, "trainmaster")
    job = {"command": "sleep 600", "workdir": str(one_slot.folder), "deadline": "30s"}
    (answer,) = one_slot.call("POST", "/api/v1/jobs", job)["jobs"]
    assert len(answer["remarks"]) == 1
    assert "was declined" in answer["remarks"][0]
    row = one_slot.job(answer["id"])
    assert row["deadline"]["what"] == "declined"
    assert "was declined" in row["deadline"]["sentence"]
    explained = one_slot.call("GET", f"/api/v1/jobs/{answer['id']}/explain")
    assert any("was declined" in each for each in explained["remarks"])


def test_a_deadline_is_judged_by_the_time_limit_and_said_before_and_after(folder: Path) -> None:
    with live(folder, "--slots", "1", "--policy", "trainmaster") as daemon:
        job = {"command": "true", "workdir": str(daemon.folder), "deadline": "1h"}
        job["max_runtime"] = "30m"
        met = "Its deadline (in 1 h) is expected to be met."
        (draft,) = daemon.call("POST", "/api/v1/jobs?dry_run=true", job)["jobs"]
        assert met in draft["job"]["remarks"]
        (answer,) = daemon.call("POST", "/api/v1/jobs", job)["jobs"]
        assert answer["remarks"] == [met]
        row = daemon.until_state(answer["id"], "succeeded")
        assert row["deadline"]["what"] == "accepted"
        assert row["deadline"]["sentence"] == "It ended 1 h before its deadline."
        later = "Its deadline is judged when the job is no longer held."
        (held,) = daemon.call("POST", "/api/v1/jobs", {**job, "held": True})["jobs"]
        assert held["remarks"] == [later]
        assert later in daemon.job(held["id"])["remarks"]
        daemon.call("POST", f"/api/v1/jobs/{held['id']}/resume")
        ended = daemon.until_state(held["id"], "succeeded")
        assert (ended["deadline"]["what"], later in ended["remarks"]) == ("accepted", False)
        daemon.call("PUT", "/api/v1/policy", {"name": "fifo"})
        for path in ("/api/v1/jobs", "/api/v1/jobs?dry_run=true"):
            (answer,) = daemon.call("POST", path, job)["jobs"]
            assert answer.get("job", answer)["remarks"][0] == (
                "The policy fifo does not look at deadlines, so its deadline has no effect."
            )
        held = daemon.submit(**job, held=True)
        daemon.call("POST", f"/api/v1/jobs/{held}/cancel")
        row = daemon.until_state(held, "cancelled")
        assert not (row["deadline"] or {}).get("sentence")


def test_a_forecast_ends_jobs_at_their_time_limit(one_slot: LiveDaemon) -> None:
    use(one_slot, "fifo")
    busy(one_slot, max_runtime="20s")
    id, _ = waits(one_slot)
    forecast = one_slot.call("GET", f"/api/v1/jobs/{id}/explain")["forecast"]
    assert forecast["start_s"] - one_slot.job(id)["submit_s"] < 25


def test_a_job_that_may_not_be_preempted_is_named_with_that_rule(one_slot: LiveDaemon) -> None:
    use(one_slot, "trainmaster")
    holder = busy(one_slot, preemptible=False)
    _, reason = waits(one_slot, priority=10)
    assert reason["sentence"] == (
        f"It needs 1 GPU and none are free; job {holder} holds them; job {holder} may not be"
        " suspended (preemptible: false)."
    )
