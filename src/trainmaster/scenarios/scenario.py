"""A scenario from what users say of it."""

from __future__ import annotations

from pathlib import Path

from trainmaster.errors import BadInput
from trainmaster.model.units import to_ms
from trainmaster.scenarios import inputs
from trainmaster.scenarios.recorded_folder import inputs_of
from trainmaster.sim.driver import Scenario
from trainmaster.traces.formats import load


def scenario_of(
    trace: Path,
    cluster: str | None,
    *,
    format: str | None = None,
    queues: Path | None = None,
    perf: str | None = None,
    estimates: str = "exact",
    failures: str | None = None,
    failure_rules: str | None = None,
    until_s: float | None = None,
    seed: int = 0,
    keep_stints: bool = False,
) -> Scenario:
    """Everything but the policies; of a recorded folder what is not stated is what it has.

    `keep_stints` is for reports, which draw who was where.
    """
    files = inputs_of(trace, cluster, queues, perf)
    if files.cluster is None:
        raise BadInput("--cluster is missing: say what to simulate on, such as --cluster 8x8.")
    described = inputs.cluster_of(files.cluster)
    scenario = Scenario(
        cluster=files.cluster,
        topology=described.topology,
        node_changes=described.changes,
        perf=inputs.perf_model_of(files.perf),
        estimates=inputs.estimates_of(estimates),
        queues=inputs.queues_of(files.queues),
        user_limits=inputs.user_limits_of(files.queues),
        until_ms=None if until_s is None else to_ms(inputs.finite(until_s, "--until-s")),
        seed=seed,
        keep_stints=keep_stints,
        failure_rules=inputs.failure_rules_of(failure_rules, failures),
        trace=inputs.failures_of(load(files.trace, format), failures, seed),
    )
    inputs.check_spans(scenario.perf, scenario.topology)
    return scenario
