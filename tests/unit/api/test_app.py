"""The HTTP API over a daemon in memory: every page, and how it says no."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api import serializers
from trainmaster.api.app import create_app
from trainmaster.api.host_check import names_of
from trainmaster.api.responses import error
from trainmaster.daemon.gpu_use_history import UseCurve, UsePoint
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.response_models import QueueRow
from trainmaster.daemon.service_api import Forecast, JobStatus
from trainmaster.model.job import Source
from trainmaster.model.run_time import RunTimeForecast
from trainmaster.model.units import GIB
from trainmaster.store.errors import StoreError
from trainmaster.store.rows import JobFilter

V1 = "/api/v1"


def submit(client: TestClient, **job: Any) -> str:
    answer = client.post(f"{V1}/jobs", json={"command": "true", **job})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["jobs"][0]["id"])


def sentence(answer: Any) -> str:
    said = answer.json()["error"]
    assert set(said) == {"code", "sentence"}
    assert "\n" not in said["sentence"]
    return str(said["sentence"])


# -- submitting ----------------------------------------------------------------------------------------


def test_a_job_is_submitted_and_shown(client: TestClient) -> None:
    answer = client.post(f"{V1}/jobs", json={"name": "fit", "command": "python fit.py", "gpus": 2})
    assert answer.status_code == 201
    assert answer.json() == {"jobs": [{"id": "1", "name": "fit", "ids": ["1"], "remarks": []}]}
    shown = client.get(f"{V1}/jobs/fit").json()
    assert (shown["id"], shown["state"], shown["gpus"]) == ("1", "running", 2)
    assert shown["devices"] == ["n0:0", "n0:1"]
    assert shown["spec"] == {"name": "fit", "command": "python fit.py", "gpus": 2}


def test_several_jobs_come_as_json_or_as_yaml(client: TestClient) -> None:
    many = client.post(f"{V1}/jobs", json={"jobs": [{"command": "a"}, {"command": "b"}]})
    assert [each["id"] for each in many.json()["jobs"]] == ["1", "2"]
    text = "command: a\narray: 0-2\n---\ncommand: b\n"
    headers = {"content-type": "application/yaml; charset=utf-8"}
    yaml = client.post(f"{V1}/jobs", content=text, headers=headers)
    assert yaml.json()["jobs"] == [
        {"id": "3", "name": "a", "ids": ["3_0", "3_1", "3_2"], "remarks": []},
        {"id": "4", "name": "b", "ids": ["4"], "remarks": []},
    ]


def test_a_key_makes_a_submission_happen_once(client: TestClient, service: MemoryService) -> None:
    headers = {"Idempotency-Key": "abc"}
    first = client.post(f"{V1}/jobs", json={"command": "a", "gpus": 1}, headers=headers)
    again = client.post(f"{V1}/jobs", json={"gpus": 1, "command": "a"}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert len(service.known) == 1
    other = client.post(f"{V1}/jobs", json={"command": "b"}, headers=headers)
    assert other.status_code == 409
    assert "another submission" in sentence(other)


def test_a_dry_run_submits_nothing(client: TestClient, service: MemoryService) -> None:
    answer = client.post(f"{V1}/jobs?dry_run=true", json={"command": "a", "gpus": "2-4"})
    assert answer.status_code == 200
    [checked] = answer.json()["jobs"]
    assert checked["job"]["gpus"] == 2
    assert checked["forecast"]["basis"] == "as if submitted now"
    assert service.known == {}


BAD_BODIES = {
    "no json": (b"{", "application/json", 400, "The body is not JSON"),
    "no utf-8": (b"\xff\xfe", "application/json", 400, "not UTF-8"),
    "no yaml": (b"a: b: c", "application/yaml", 400, "Line 1: this is not YAML"),
    "a form": (b"command=x", "application/x-www-form-urlencoded", 415, "application/json"),
    "no type": (b'{"command": "x"}', "", 415, "application/json"),
    "a list": (b"[]", "application/json", 422, "A job must be a mapping"),
    "no jobs": (b'{"jobs": []}', "application/json", 422, "at least one job"),
    "half a character": (b'{"command": "\\ud800"}', "application/json", 422, "cannot be stored"),
    "too deep": (b'{"env": ' * 30 + b"1" + b"}" * 30, "application/json", 422, "nested too deeply"),
    "unknown": (
        b'{"command": "x", "gpu_count": 1}',
        "application/json",
        422,
        "did you mean gpus?",
    ),
    "no such job": (b'{"command": "x", "depends_on": 9}', "application/json", 404, "no job 9"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_bad_body_is_one_sentence(client: TestClient, case: str, service: MemoryService) -> None:
    body, kind, status, said = BAD_BODIES[case]
    headers = {"content-type": kind} if kind else {}
    answer = client.post(f"{V1}/jobs", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert said in sentence(answer)
    assert service.known == {}


def test_a_body_that_is_too_large_is_refused(client: TestClient) -> None:
    big = b'{"command": "' + b"x" * (33 << 20) + b'"}'
    headers = {"content-type": "application/json"}
    assert client.post(f"{V1}/jobs", content=big, headers=headers).status_code == 413
    pieces = (big[low : low + (1 << 20)] for low in range(0, len(big), 1 << 20))
    answer = client.post(f"{V1}/jobs", content=pieces, headers=headers)
    assert answer.status_code == 413
    assert "several parts" in sentence(answer)


def test_cpu_slots_are_taken_where_there_are_no_gpus(
    client: TestClient, service: MemoryService
) -> None:
    service.device_type = "cpu"
    submit(client)
    assert service.known["1"].asked.job.demand.gpu_type == "cpu"


# -- looking -------------------------------------------------------------------------------------------


def test_a_list_has_pages_and_filters(client: TestClient, service: MemoryService) -> None:
    for number in range(7):
        submit(client, name=f"job-{number}", queue="even" if number % 2 == 0 else "odd")
    page = client.get(f"{V1}/jobs?limit=3").json()
    assert [each["id"] for each in page["jobs"]] == ["7", "6", "5"]
    assert page["next"] == "5"
    assert page["counts"] == {"running": 4, "pending": 3}
    rest = client.get(f"{V1}/jobs", params={"limit": 4, "before": page["next"]}).json()
    assert [each["id"] for each in rest["jobs"]] == ["4", "3", "2", "1"]
    last = client.get(f"{V1}/jobs", params={"limit": 4, "before": rest["next"]}).json()
    assert (last["jobs"], last["next"]) == ([], None)

    def ids(**query: Any) -> list[str]:
        return [each["id"] for each in client.get(f"{V1}/jobs", params=query).json()["jobs"]]

    assert ids(queue="odd") == ["6", "4", "2"]
    assert ids(state="pending,suspended") == ["7", "6", "5"]
    assert ids(state=["pending", "running"], text="job-3") == ["4"]
    service.advance(10_000)
    submit(client)
    assert ids(since=service.now / 1000) == ["8"]


def test_a_row_has_seconds_with_three_decimals(client: TestClient, service: MemoryService) -> None:
    service.advance(123)
    submit(client, gpus=0.5, user="ada")
    service.report("1", 10, float("nan"), 100)
    service.advance(2_500)
    [row] = client.get(f"{V1}/jobs").json()["jobs"]
    assert row == {
        "id": "1",
        "name": "true",
        "user": "ada",
        "queue": "default",
        "state": "running",
        "transition": None,
        "reason": None,
        "suspended_by": None,
        "gpus": 0.5,
        "nodes": ["n0"],
        "devices": ["n0:0"],
        "submit_s": 1800000000.123,
        "start_s": 1800000000.123,
        "finish_s": None,
        "gpus_now": None,
        "min_gpus": None,
        "max_gpus": None,
        "queue_s": 0.0,
        "waiting_s": None,
        "run_s": 2.5,
        "gpu_s": 1.25,
        "priority": 0,
        "attempt": 1,
        "restarts": 0,
        "preemptions": 0,
        "lost_s": 0.0,
        "exit_code": None,
        "end_reason": None,
        "deadline": None,
        "array": None,
        "array_index": None,
        "progress": {
            "step": 10,
            "total_steps": 100,
            "loss": None,
            "samples_per_s": 100.0,
            "steps_per_s": None,
            "at_s": 1800000000.123,
        },
        "hung": None,
        "prerun": None,
    }


def test_a_waiting_job_says_why(client: TestClient) -> None:
    submit(client, gpus=3)
    waiting = submit(client, gpus=2)
    never = submit(client, gpus=9)
    held = submit(client, held=True)
    said = client.get(f"{V1}/jobs/{waiting}/explain").json()
    assert said["code"] == "NotEnoughFree"
    assert said["sentence"] == "It needs 2 GPUs and 1 is free; job 1 holds the others."
    assert said["numbers"] == {"need": 2, "free": 1, "largest_block": 1, "until_s": None}
    assert [each["id"] for each in said["held_by"]] == ["1"]
    assert said["forecast"]["sentence"].startswith("It is expected to start in 1 min")
    assert client.get(f"{V1}/jobs/{never}/explain").json()["code"] == "NeverFits"
    on_hold = client.get(f"{V1}/jobs/{held}/explain").json()
    assert (on_hold["code"], on_hold["numbers"]) == ("Held", None)
    running = client.get(f"{V1}/jobs/1/explain").json()
    assert (running["code"], running["forecast"]) == (None, None)
    assert running["sentence"] == "It is running on n0:0, n0:1, n0:2."


def test_an_array_says_what_its_first_waiting_element_waits_for(
    client: TestClient, service: MemoryService
) -> None:
    submit(client, gpus=4)
    array = submit(client, array="0-2")
    said = client.get(f"{V1}/jobs/{array}/explain").json()
    assert (said["id"], said["code"]) == (f"{array}_0", "NotEnoughFree")
    assert said["array"] == array
    assert said["remarks"] == [f"Array {array}: 3 jobs: 3 pending."]


def test_story_progress_and_environment(client: TestClient, service: MemoryService) -> None:
    submit(client, env={"LR": 1})
    service.report("1", 5, 0.25)
    story = client.get(f"{V1}/jobs/1/story").json()["story"]
    assert [each["what"] for each in story] == ["submitted", "started"]
    assert story[1]["sentence"] == "Started (attempt 1, on n0:0)"
    assert client.get(f"{V1}/jobs/1/progress").json()["progress"][0]["loss"] == 0.25
    assert client.get(f"{V1}/jobs/1/environment").json()["environment"] == {"RANK": "0", "LR": "1"}


def test_curves_attempts_and_placement(client: TestClient, service: MemoryService) -> None:
    job = submit(client, gpus=2)
    empty = client.get(f"{V1}/jobs/{job}/curves").json()
    assert (empty["gpu"], empty["progress"]) == ([], [])
    assert empty["gpu_sentence"].startswith("None of its processes was seen on a GPU")
    service.curves[job] = UseCurve(2_000, [UsePoint(1_000, 250_000, 5), UsePoint(3_000, None, 7)])
    for step in (5, 25, 3):
        service.report(job, step, float("inf"))
        service.advance(4_000)
    found = client.get(f"{V1}/jobs/{job}/curves").json()
    assert found["gpu"] == [
        {"at_s": 1.0, "util": 0.25, "memory_bytes": 5},
        {"at_s": 3.0, "util": None, "memory_bytes": 7},
    ]
    assert (found["gpu_every_s"], found["gpu_sentence"]) == (2.0, "")
    assert [each["steps_per_s"] for each in found["progress"]] == [None, 5.0, None]
    assert found["progress"][0]["loss"] is None
    attempts = client.get(f"{V1}/jobs/{job}/attempts").json()["attempts"]
    assert attempts == [{"attempt": 1, "ranks": [0, 1]}]
    (node,) = client.get(f"{V1}/jobs/{job}/placement").json()["nodes"]
    assert [each["share"] for each in node["islands"][0]] == [1.0, 1.0, 0.0, 0.0]


def test_an_expected_end_counts_from_now_or_from_the_expected_start(
    client: TestClient, service: MemoryService
) -> None:
    status = asyncio.run(service.job(submit(client)))
    left = RunTimeForecast(Source.STEPS, 0, 9_000, 8_000, 10_000, 15_000, is_calibrated=True)
    assert serializers.end_forecast_row(status, None, 1_000) is None
    status = replace(status, run_time=left)
    running = serializers.end_forecast_row(status, None, 1_000)
    assert running is not None
    assert (running.low_s, running.end_s, running.high_s) == (9, 11, 16)
    waiting = replace(status, row=replace(status.row, state="pending"))
    later = serializers.end_forecast_row(waiting, Forecast(60_000, ""), 1_000)
    unknown = serializers.end_forecast_row(waiting, Forecast(None, ""), 1_000)
    assert later is not None
    assert unknown is not None
    assert (later.low_s, later.end_s, later.high_s) == (68, 70, 75)
    assert (unknown.end_s, unknown.run_low_s, unknown.run_high_s) == (None, 8, 15)
    assert unknown.sentence.startswith("It is expected to run for 10 s more once it starts")


def test_stacks_of_a_job_that_hung(client: TestClient, service: MemoryService) -> None:
    submit(client)
    missing = client.get(f"{V1}/jobs/1/stacks")
    assert missing.status_code == 404
    assert missing.json()["error"]["sentence"] == (
        "No attempt of job 1 has hung: there are no stacks."
    )
    service.hang("1", "rank 0, process 7, sleeping: python train.py\n")
    assert client.get(f"{V1}/jobs/1/stacks").text.startswith("rank 0, process 7")
    assert client.get(f"{V1}/jobs/1/stacks?attempt=1").status_code == 200
    assert client.get(f"{V1}/jobs/1/stacks?attempt=2").status_code == 404


@pytest.mark.parametrize(
    "page",
    [
        *("", "/explain", "/story", "/progress", "/logs", "/environment", "/logs?follow=true"),
        *("/curves", "/attempts", "/placement"),
    ],
)
def test_an_unknown_job_is_not_found(client: TestClient, page: str) -> None:
    answer = client.get(f"{V1}/jobs/77{page}")
    assert answer.status_code == 404
    assert sentence(answer) == "There is no job 77."


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("since=nan", "since"),
        ("before=x", "before"),
        ("state=runing", "did you mean running?"),
        ("user=%00", "user"),
    ],
)
def test_a_bad_parameter_is_named(client: TestClient, query: str, said: str) -> None:
    answer = client.get(f"{V1}/jobs?{query}")
    assert answer.status_code == 422
    assert said in sentence(answer)


# -- doing ---------------------------------------------------------------------------------------------


def test_jobs_are_suspended_resumed_saved_moved_changed_and_cancelled(client: TestClient) -> None:
    job = submit(client, name="fit")
    assert client.post(f"{V1}/jobs/{job}/save").status_code == 200
    assert client.post(f"{V1}/jobs/fit/suspend").json()["state"] == "suspended"
    assert client.post(f"{V1}/jobs/{job}/resume").json()["state"] == "running"
    assert client.post(f"{V1}/jobs/{job}/resume").status_code == 409
    stays = client.post(f"{V1}/jobs/{job}/move", json={"node": "n0"})
    assert (stays.status_code, sentence(stays)) == (409, f"Job {job} is on n0 already.")
    assert client.post(f"{V1}/jobs/{job}/move", json={"node": "n1"}).status_code == 200
    assert client.post(f"{V1}/jobs/{job}/move", json={"node": "n9"}).status_code == 404
    assert client.post(f"{V1}/jobs/{job}/move", json={"nod": "n9"}).status_code == 422
    changed = client.patch(
        f"{V1}/jobs/{job}", json={"priority": 5, "name": "new", "max_runtime": "2h"}
    )
    assert (changed.json()["priority"], changed.json()["name"]) == (5, "new")
    assert client.post(f"{V1}/jobs/{job}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{V1}/jobs/{job}/cancel").status_code == 409


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "There is nothing to change"),
        ({"priorty": 1}, "did you mean priority?"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"deadline": "soon"}, "deadline must be a length of time"),
        ({"name": "12"}, "must not look like a job's id"),
        ({"queue": None}, "queue"),
    ],
)
def test_a_bad_change_is_one_sentence(client: TestClient, body: dict[str, Any], said: str) -> None:
    answer = client.patch(f"{V1}/jobs/{submit(client)}", json=body)
    assert answer.status_code == 422
    assert said in sentence(answer)


def test_an_array_is_cancelled_as_one(client: TestClient, service: MemoryService) -> None:
    array = submit(client, array="0-4%2")
    assert client.post(f"{V1}/jobs/{array}/cancel").status_code == 200
    assert {known.row.state for known in service.known.values()} == {"cancelled"}


# -- cluster -------------------------------------------------------------------------------------------


def test_nodes_queues_and_policy(client: TestClient) -> None:
    submit(client, queue="vision")
    [node] = client.get(f"{V1}/nodes").json()["nodes"]
    device = node["devices"][0]
    assert (device["name"], device["jobs"]) == ("n0:0", ["1"])
    assert (device["gpu"]["uuid"], device["gpu"]["memory_used_bytes"]) == ("GPU-0", 3 * GIB)
    assert node["cpus"] == 8
    made = client.put(f"{V1}/queues/vision", json={"weight": 3, "guaranteed_gpus": 1.5})
    assert made.status_code == 200
    assert (made.json()["weight"], made.json()["guaranteed_gpus"], made.json()["gpus"]) == (
        3,
        1.5,
        1,
    )
    assert client.put(f"{V1}/queues/deep", json={"parent": "vision"}).status_code == 200
    circle = client.put(f"{V1}/queues/vision", json={"parent": "deep"})
    assert "circle" in sentence(circle)
    lost = client.put(f"{V1}/queues/a", json={"parent": "visoin"})
    assert sentence(lost).startswith("queue 'a': its parent 'visoin' is not a queue; did you mean")
    none = client.put(f"{V1}/queues/vision", json={"guaranteed_gpus": 1.5, "maximum_gpus": 0})
    assert sentence(none) == "queue 'vision': guaranteed_gpus, 1.5, is more than maximum_gpus, 0."
    for slash in (client.put(f"{V1}/queues/a%2Fb", json={}), client.delete(f"{V1}/queues/a/b")):
        assert slash.status_code == 422
        assert "name cannot be 'a/b'" in sentence(slash)
    assert {each["name"] for each in client.get(f"{V1}/queues").json()["queues"]} == {
        "vision",
        "deep",
        "default",
    }
    assert client.get(f"{V1}/policy").json()["name"] == "fifo"
    chosen = client.put(f"{V1}/policy", json={"name": "las", "options": {"quantum_s": 30}})
    assert chosen.json()["options"] == {"quantum_s": "30"}
    assert "did you mean las" in sentence(client.put(f"{V1}/policy", json={"name": "lass"}))
    assert "future" in sentence(client.put(f"{V1}/policy", json={"name": "srtf"}))
    listed = client.get(f"{V1}/policies").json()["policies"]
    assert {"fifo", "trainmaster"} <= {each["name"] for each in listed}


def test_inputs_that_are_set_aside_are_listed_and_brought_back(
    client: TestClient, service: MemoryService
) -> None:
    assert client.get(f"{V1}/inputs").json() == {"inputs": []}
    service.blocked.append("/data/train.rec")
    (row,) = client.get(f"{V1}/inputs").json()["inputs"]
    assert (row["path"], row["jobs"], row["waiting"]) == ("/data/train.rec", ["3", "4", "5"], ["6"])
    back = client.delete(f"{V1}/inputs/%2Fdata%2Ftrain.rec")
    assert (back.status_code, back.json()) == (200, row)
    again = client.delete(f"{V1}/inputs/%2Fdata%2Ftrain.rec")
    assert (again.status_code, again.json()["error"]["sentence"]) == (
        404,
        "The input /data/train.rec is not set aside.",
    )


def test_history_and_schema(client: TestClient) -> None:
    submit(client)
    assert client.get(f"{V1}/record/trace").text.startswith("job_id,submit_s,gpus,duration_s\n1,")
    lines = client.get(f"{V1}/record/events").text.splitlines()
    assert json.loads(lines[0]) == {"snapshot": 0}
    assert client.get(f"{V1}/schema/job").json()["properties"]["gpus"]["default"] == 1


# -- the root ------------------------------------------------------------------------------------------


def test_health_says_the_role_and_the_trouble(client: TestClient, service: MemoryService) -> None:
    assert client.get("/healthz").json()["role"] == "active"
    service.trouble = "The disk is full: free some space."
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["trouble"]) == (503, service.trouble)
    refused = client.post(f"{V1}/jobs", json={"command": "x"})
    assert refused.status_code == 503
    assert sentence(refused) == service.trouble
    service.role, service.trouble = "standby", ""
    assert client.get("/healthz").status_code == 200
    for page in ("jobs", "nodes", "queues", "policy", "record/events", "changes"):
        assert client.get(f"{V1}/{page}").status_code == 503, page


def test_reading_while_the_database_is_away_says_so(
    client: TestClient, service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_wanted: JobFilter) -> list[JobStatus]:
        raise StoreError("The database is away: start it.")

    monkeypatch.setattr(service, "jobs", away)
    answer = client.get(f"{V1}/jobs")
    assert (answer.status_code, sentence(answer)) == (503, "The database is away: start it.")
    assert answer.headers["Retry-After"]


def test_metrics_count_what_happens(service: MemoryService) -> None:
    metrics = Metrics()
    metrics.admission_wait.labels("default").observe(1.5)
    metrics.preempted.labels("default").inc()
    metrics.evicted.labels("default", "policy").inc()
    metrics.suspend_latency.labels("freeze").observe(0.02)
    metrics.lost_work.inc(3)
    metrics.packing_slowdown.observe(1.2)
    metrics.passes.observe(0.002)
    metrics.steps.inc()
    metrics.store_errors.inc()
    with TestClient(by_us(create_app(service, metrics)), base_url="http://localhost") as client:
        submit(client, gpus=3)
        submit(client, gpus=2)
        submit(client, held=True)
        text = client.get("/metrics").text
    for line in (
        'trainmaster_pending_jobs{queue="default"} 2.0',
        'trainmaster_running_jobs{queue="default"} 1.0',
        'trainmaster_queue_allocated_gpus{queue="default"} 3.0',
        'trainmaster_unadmitted_jobs{reason="NotEnoughFree"} 1.0',
        'trainmaster_unadmitted_jobs{reason="Held"} 1.0',
        'trainmaster_admission_wait_seconds_bucket{le="5.0",queue="default"} 1.0',
        'trainmaster_preempted_jobs_total{queue="default"} 1.0',
        'trainmaster_evicted_jobs_total{cause="policy",queue="default"} 1.0',
        'trainmaster_suspend_latency_seconds_count{how="freeze"} 1.0',
        "trainmaster_lost_work_seconds_total 3.0",
        'trainmaster_packing_slowdown_ratio_bucket{le="1.25"} 1.0',
        "trainmaster_scheduling_pass_seconds_count 1.0",
        "trainmaster_steps_total 1.0",
        "trainmaster_store_errors_total 1.0",
        'trainmaster_up{role="active"} 1.0',
    ):
        assert line in text.splitlines(), line


# -- who may ask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8470", 200),
        ("127.0.0.1", 200),
        ("[::1]:8470", 200),
        ("LOCALHOST", 200),
        ("tower", 200),
        ("evil.example", 400),
        ("evil.example:8470", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost:8470@evil.example", 400),
        ("", 400),
    ],
)
def test_only_our_host_names_are_served(service: MemoryService, host: str, status: int) -> None:
    with TestClient(by_us(create_app(service, hosts=["tower"]))) as client:
        answer = client.get("/healthz", headers={"host": host})
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("address", "names"), [("127.0.0.1", {"tower.lan"}), ("0.0.0.0", {"tower.lan", "127.0.0.1"})]
)
def test_a_daemon_goes_by_the_names_of_its_machine(
    address: str, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_HOSTS", "tower.lan, ")
    with socket.socket() as sock:
        sock.bind((address, 0))
        found = names_of(sock)
    assert names <= found
    assert (socket.gethostname() in found) is (address == "0.0.0.0")


def test_another_web_site_may_not_ask_what_is_costly_to_answer(client: TestClient) -> None:
    job = submit(client)
    cross = {"sec-fetch-site": "cross-site"}
    followed = {**cross, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for path in (f"{V1}/jobs/{job}/explain", f"{V1}/jobs"):
        for headers in (cross, followed, {"origin": "http://evil.example"}):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 403
            assert "another web site" in sentence(answer)
        assert client.get(path, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    page = "/metrics"
    assert client.get(page, headers=followed).status_code == 200  # a link that a person follows
    assert client.get(page, headers=cross).status_code == 403


def test_another_site_may_not_change_anything(client: TestClient) -> None:
    job = submit(client)
    evil = client.post(f"{V1}/jobs/{job}/cancel", headers={"origin": "http://evil.example"})
    assert evil.status_code == 403
    assert client.get(f"{V1}/jobs/{job}").json()["state"] == "running"
    own = client.post(f"{V1}/jobs/{job}/cancel", headers={"origin": "http://127.0.0.1:8470"})
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers


def test_unknown_pages_and_methods_are_errors_of_the_same_kind(client: TestClient) -> None:
    assert sentence(client.get(f"{V1}/nothing")) == "There is no such page."
    answer = client.delete(f"{V1}/jobs/1")
    assert answer.status_code == 405
    assert sentence(answer)
    assert "GET" in answer.headers["allow"]


def test_what_breaks_inside_shows_no_traceback(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(service, "nodes", broken)
    app = by_us(create_app(service))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = client.get(f"{V1}/nodes")
    assert answer.status_code == 500
    assert "secret" not in answer.text


# -- streams -------------------------------------------------------------------------------------------


def events(text: str) -> list[dict[str, str]]:
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        if lines:
            found.append({name: value for name, _, value in lines})
    return found


def test_changes_go_on_after_the_last_one_seen(tmp_path: Path) -> None:
    service = MemoryService(tmp_path, ends_at_once=True)
    with TestClient(by_us(create_app(service)), base_url="http://localhost") as client:
        submit(client)
        all_of_them = events(client.get(f"{V1}/changes", headers={"Last-Event-ID": "0"}).text)
        assert [each["event"] for each in all_of_them] == ["submitted", "started", "succeeded"]
        seen = json.loads(all_of_them[1]["data"])
        assert (seen["seq"], seen["job"], seen["detail"]["on"]) == (2, "1", ["n0:0"])
        rest = events(client.get(f"{V1}/changes", headers={"Last-Event-ID": "2"}).text)
        assert [each["id"] for each in rest] == ["3"]


def test_changes_come_as_they_happen(service: MemoryService) -> None:
    """Through the application itself, because the test client waits for the end of an answer."""

    async def watched() -> list[str]:
        from trainmaster.api.identity import manager_itself
        from trainmaster.api.routes.cluster import _changes

        stream = _changes(service, None, manager_itself())
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        import httpx

        transport = httpx.ASGITransport(by_us(create_app(service)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post(f"{V1}/jobs", json={"command": "x"})
            assert answer.status_code == 201
        found = [await first, await anext(stream)]
        await stream.aclose()
        return [each["event"] for each in events(b"".join(found).decode())]

    assert asyncio.run(watched()) == ["submitted", "started"]


def test_an_element_is_found_by_the_name_of_its_array(client: TestClient) -> None:
    submit(client, name="sweep", array="0-2")
    assert client.get(f"{V1}/jobs/sweep_1").json()["id"] == "1_1"
    assert client.get(f"{V1}/jobs/sweep_1/explain").json()["id"] == "1_1"
    for unknown in ("sweep_9", "nothing_1"):
        answer = client.get(f"{V1}/jobs/{unknown}")
        assert answer.status_code == 404
        assert unknown in answer.json()["error"]["sentence"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("jobs?limit=x", "limit must be a whole number, not 'x'."),
        ("jobs?limit=0", "limit must be at least 1, not '0'."),
        ("jobs?limit=1001", "limit must be at most 1000, not '1001'."),
        ("jobs?since=x", "since must be a number, not 'x'."),
        ("jobs/1/logs?rank=x", "rank cannot be 'x': the API's documentation says how"),
    ],
)
def test_a_bad_parameter_is_named_in_our_own_words(
    client: TestClient, query: str, said: str
) -> None:
    submit(client)
    answer = client.get(f"{V1}/{query}")
    assert answer.status_code == 422
    assert sentence(answer).startswith(said)


def test_states_are_listed_once(client: TestClient) -> None:
    said = sentence(client.get(f"{V1}/jobs?state=xyzzy"))
    assert said.count("suspended") == 1


def test_sentences_begin_with_a_capital_and_fields_as_they_are_written() -> None:
    for given, said in {
        "there is no job 9": "There is no job 9.",
        "job 9 has ended.": "Job 9 has ended.",
        "gpus must be a number.": "gpus must be a number.",
        "a.b: no": "a.b: no.",
    }.items():
        assert json.loads(bytes(error(422, given).body))["error"]["sentence"] == said


def test_default_is_always_among_the_queues() -> None:
    """The daemon lists those that are defined or used."""
    vision = QueueRow("vision", None, 1, 0, None, True, True, 1, 0, 0, 1)
    default = QueueRow("default", None, 1, 0, None, True, False, 2, 0, 0, 2)
    assert [each.name for each in serializers.with_default([vision])] == ["default", "vision"]
    assert serializers.with_default([default, vision]) == [default, vision]


NOT_PRINTABLE = ("\x9b31mC1\x9d0;PWNED\x9c", "ada\u202egpj", "vis\u200bion", "a\x1b[2J", "a\u2028b")


@pytest.mark.parametrize("field", ["name", "user", "queue", "model"])
@pytest.mark.parametrize("text", NOT_PRINTABLE)
def test_a_name_that_a_terminal_would_obey_is_refused(
    client: TestClient, service: MemoryService, field: str, text: str
) -> None:
    said = client.post(f"{V1}/jobs", json={"command": "true", field: text})
    assert said.status_code == 422
    assert "a sign that is not printable" in said.json()["error"]["sentence"]
    assert client.get(f"{V1}/jobs").json()["jobs"] == []


@pytest.mark.parametrize("text", ["\x9b31m", "vis\u200bion", "a\u202eb"])
def test_so_is_a_queue_of_such_a_name(client: TestClient, text: str) -> None:
    said = client.put(f"{V1}/queues/{quote(text)}", json={"weight": 2})
    assert said.status_code == 422
    assert "a sign that is not printable" in said.json()["error"]["sentence"]
