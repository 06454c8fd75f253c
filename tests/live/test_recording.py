"""What really happened, recorded and simulated: the same jobs start in the same order."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import live, until
from trainmaster.catalog import policy_class
from trainmaster.config.cluster import cluster_from
from trainmaster.config.options import read_options
from trainmaster.config.performance import perf_model_from
from trainmaster.config.queues import queues_from
from trainmaster.sim.driver import Estimates, Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.traces import native

pytestmark = pytest.mark.live
JOBS: tuple[dict[str, Any], ...] = (
    {"name": "first", "command": "sleep 0.9"},
    {"name": "second", "command": "sleep 0.5; exit 1", "queue": "lab", "retries": 0},
    {"name": "sweep", "command": "sleep 0.4", "array": "0-2%1"},
    {"name": "wide", "command": "sleep 0.2", "gpus": 2},
)
APART_S = 0.2
"""Real starts that are nearer to each other than this may come either way."""


def test_a_recorded_trace_starts_its_jobs_in_the_order_in_which_they_really_did(
    tmp_path: Path,
) -> None:
    with live(tmp_path / "data", "--slots", "2") as manager:
        manager.call("PUT", "/api/v1/queues/lab", {"weight": 2, "guaranteed_gpus": 1})
        ids = {each["name"]: manager.submit(**each) for each in JOBS}
        manager.submit(command="sleep 0.2", depends_on=[f"{ids['first']}"], name="then")
        manager.submit(command="sleep 0.2", depends_on=[f"{ids['second']}:fail"], name="repair")
        manager.submit(command="sleep 0.2", depends_on=[f"{ids['second']}"], name="never")

        def rows() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = manager.call("GET", "/api/v1/jobs?arrays=false")["jobs"]
            return found

        ended = {"succeeded", "failed", "cancelled"}
        until(lambda: all(row["state"] in ended for row in rows()), "all jobs to end")
        real = {row["id"]: row["start_s"] for row in rows() if row["start_s"] is not None}
        said = manager.call("GET", "/api/v1/record/scenario")
        trace = tmp_path / "trace.csv"
        trace.write_bytes(manager.open("/api/v1/record/trace").read())
    policy = policy_class(said["policy"])
    scenario = Scenario(
        trace=native.read(trace),
        topology=cluster_from(said["cluster"]).topology,
        cluster="recorded",
        perf=perf_model_from(said["perf"], "recorded"),
        estimates=Estimates(known=False),
        queues=queues_from(said["queues"]),
    )
    options = read_options(said["policy"], policy.options_type, said["options"])
    simulation = Simulation(scenario, policy(options))
    simulation.run()
    starts = {job.job_id: job.start_ms for job in result_of(simulation).jobs}
    assert starts.keys() == real.keys()
    assert len(real) == 8
    apart = [(a, b) for a, b in combinations(real, 2) if abs(real[a] - real[b]) > APART_S]
    assert len(apart) > 15
    for a, b in apart:
        assert (real[a] < real[b]) == ((starts[a] or 0) < (starts[b] or 0)), (a, b, real, starts)
