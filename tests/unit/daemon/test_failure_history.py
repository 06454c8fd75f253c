"""What a failed run cost is recorded with it, and summed up from the store."""

from __future__ import annotations

import json
from dataclasses import replace

from prometheus_client import generate_latest

from tests.builders import cluster, on
from tests.unit.daemon.test_dependencies import a_live
from trainmaster.daemon.failure_history import report_of, with_cost
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.metrics import Metrics, count_events
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.failure import Blame, Failure
from trainmaster.model.job import gpus
from trainmaster.store.rows import Batch, JobFilter, StepRow, StoryRow
from trainmaster.store.store import Store
from trainmaster.text.messages import story_sentence

TOPOLOGY = cluster("2x2")


def a_failing(id: str = "1", user: str = "ada", ran_ms: int = 90_000) -> LiveJob:
    """It runs on three GPUs, and has run before."""
    live = a_live(id)
    live.job = replace(live.job, user=user, submit_ms=int(id) * 1000)
    live.name = f"train-{id}"
    live.history = replace(live.history, run_ms=1000 + ran_ms, before_ms=1000, gpu_ms=7)
    assert live.record is not None
    live.record.placement = on(TOPOLOGY, 0, 1, 2)
    return live


def failed(live: LiveJob, failure: Failure | None) -> LoggedEvent:
    assert live.record is not None
    event = e.RunFailed(live.record.run, failure=failure)
    return with_cost(LoggedEvent(event, {"code": 1}), live, live.record, TOPOLOGY, 5000)


MISSING = Failure("missing-file", Blame.USER, path="/data/x")


def test_the_entry_of_a_failed_run_says_what_it_cost() -> None:
    logged = failed(a_failing(), MISSING)
    devices = [f"{TOPOLOGY.nodes[node].name}:{gpu}" for node, gpu in ((0, 0), (0, 1), (1, 0))]
    assert logged.detail["cost"] == {
        "run_s": 90.0,
        "gpus": 3000,
        "on": tuple(devices),
        "reason": "missing-file",
        "blame": "user",
        "path": "/data/x",
    }
    assert story_sentence("failed", logged.detail) == "Failed (exit code 1)"


def test_a_prerun_costs_its_time_on_one_device() -> None:
    live = a_failing(ran_ms=0)
    assert live.record is not None
    live.record.demand_after_prerun = gpus(8)
    live.record.placement = on(TOPOLOGY, 3)
    live.record.run_since_ms, live.ended_ms = 1000, 4500
    cost = failed(live, MISSING).detail["cost"]
    assert (cost["run_s"], cost["gpus"]) == (3.5, 1000)


def test_other_events_have_no_cost() -> None:
    live = a_failing()
    assert live.record is not None
    saved = LoggedEvent(e.RunSaved(live.record.run, 1))
    assert with_cost(saved, live, live.record, TOPOLOGY, 5000) is saved


def test_a_report_is_made_of_what_is_stored(store: Store) -> None:
    lives = [a_failing("1"), a_failing("2", "bob", 30_000), a_failing("3", "bob")]
    rows = [replace(live.row(0), state="failed") for live in lives[:2]]
    rows.append(replace(lives[2].row(0), state="succeeded"))
    stories = [
        StoryRow("1", 0, 1, "failed", json.dumps(dict(failed(lives[0], MISSING).detail))),
        StoryRow("2", 0, 1, "lost", json.dumps(dict(failed(lives[1], None).detail))),
        StoryRow("3", 0, 1, "failed", json.dumps({"code": 1})),  # by an earlier version
    ]
    store.append([Batch(StepRow(1, 0, "[]", "[]"), tuple(rows), tuple(stories))])
    report = report_of(store, JobFilter())
    assert [(row.reason, row.trials, row.gpu_hours) for row in report.reasons] == [
        ("missing-file", 1, 90 * 3 / 3600),
        ("unknown", 1, 30 * 3 / 3600),
    ]
    assert [row.name for row in report.programs] == ["train-#"]
    assert [row.name for row in report.inputs] == ["/data/x"]
    assert {row.status: row.jobs for row in report.statuses} == {"failed": 2, "succeeded": 1}
    bobs = report_of(store, JobFilter(user="bob", since_ms=2000))
    assert (bobs.trials, [row.reason for row in bobs.reasons]) == (1, ["unknown"])
    assert {row.status: row.jobs for row in bobs.statuses} == {"failed": 1, "succeeded": 1}


def test_failed_runs_are_counted_by_reason() -> None:
    metrics, live = Metrics(), a_failing()
    count_events(metrics, [failed(live, MISSING)], {"1": live}, 0)
    page = generate_latest(metrics.registry).decode()
    assert 'trainmaster_failed_runs_total{blame="user",reason="missing-file"} 1.0' in page
    assert 'trainmaster_lost_gpu_seconds_total{blame="user",reason="missing-file"} 270.0' in page
