"""`trainmaster.simulate`: a trace on a cluster under one or several policies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.frames.arguments import (
    PathLike,
    path_of,
    policies_of,
    settings_of,
    trace_file,
)
from trainmaster.frames.user_errors import as_value_errors
from trainmaster.scenarios import inputs
from trainmaster.scenarios.cautions import cautions, for_report
from trainmaster.scenarios.policies import lineup
from trainmaster.scenarios.runs import Ran, run_policy
from trainmaster.scenarios.scenario import scenario_of
from trainmaster.sim.driver import Scenario
from trainmaster.sim.result_json import to_json

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SimulationResults:
    """What each policy made of the trace; the numbers are those of `trainmaster simulate --json`."""

    scenario: Scenario
    runs: tuple[Ran, ...]
    trace_name: str
    notes: tuple[str, ...]
    """What the command writes beside its table: notes and warnings."""

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The JSON, an entry for each policy."""
        wall_s = {ran.result.policy: ran.wall_s for ran in self.runs}
        found: list[dict[str, Any]] = json.loads(
            to_json([ran.result for ran in self.runs], wall_s)
        )["results"]
        return found

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row for each policy."""
        import pandas as pd

        policies = pd.Index([each["policy"] for each in self.entries], name="policy")
        return pd.DataFrame([each["summary"] for each in self.entries], index=policies)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """A row for each policy and job."""
        import pandas as pd

        return pd.DataFrame(
            [{"policy": each["policy"], **job} for each in self.entries for job in each["jobs"]]
        )

    def report(self, folder: PathLike) -> Path:
        """Write the report with its charts; its page."""
        from trainmaster.report.page import write_report
        from trainmaster.text.formatting import listing

        results = for_report(self.scenario, self.runs)
        policies = listing([result.policy for result in results])
        title = f"{self.trace_name} on {self.scenario.cluster} under {policies}"
        return write_report(results, Path(folder), title=title, trace_name=self.trace_name)

    def __repr__(self) -> str:
        return (
            f"<SimulationResults of {self.trace_name} on {self.scenario.cluster}>\n{self.summary}"
        )

    def _repr_html_(self) -> str:
        return str(self.summary.to_html(escape=True))


def simulate(
    trace: PathLike | pd.DataFrame,
    cluster: PathLike | None = None,
    policy: PathLike | Sequence[PathLike] = "trainmaster",
    *,
    options: Mapping[str, Any] | None = None,
    format: str | None = None,
    queues: PathLike | None = None,
    perf: PathLike | None = None,
    estimates: str = "exact",
    failures: str | None = None,
    failure_rules: str | None = None,
    until_s: float | None = None,
    seed: int = 0,
) -> SimulationResults:
    """Replay a trace, as `trainmaster simulate` does: a file, a recorded folder, or a frame with its columns.

    `policy` is a name, a path, or several. `options` are theirs, as after --set:
    `{"quantum_s": 300, "fifo.backfill": "easy"}`. Bad input is a ValueError.
    """
    with as_value_errors(), trace_file(trace) as path:
        policies = lineup(policies_of(policy), settings_of(options))
        scenario = scenario_of(
            path,
            None if cluster is None else str(cluster),
            format=format,
            queues=path_of(queues),
            perf=None if perf is None else str(perf),
            estimates=estimates,
            failures=failures,
            failure_rules=failure_rules,
            until_s=until_s,
            seed=seed,
            keep_stints=True,
        )
        said = [
            *scenario.trace.notes,
            *inputs.idle_limits(scenario.queues, policies),
            *inputs.unmet_guarantees(scenario.queues, scenario.topology, policies),
        ]
    runs = tuple(_run(scenario, each) for each in policies)
    return SimulationResults(
        scenario, runs, path.resolve().name, (*said, *cautions(scenario, runs))
    )


def _run(scenario: Scenario, policy: Any) -> Ran:
    ran = run_policy(scenario, policy, lambda *_: None)
    if ran.interrupted:
        raise KeyboardInterrupt
    return ran
