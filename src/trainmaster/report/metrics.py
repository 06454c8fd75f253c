"""The registry of metrics: what each is called, how it is written, and which way is better.

`simulate` and its report read them from a run's summary, `compare` and its report from scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainmaster.text import formatting as wording
from trainmaster.text.formatting import RHO

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run."""

    key: str
    """Its field in the summary of a simulation."""
    label: str
    hint: str
    words: Callable[[float | None], str]
    better: Better | None = "lower"
    group: str = ""
    """Heading over its column in the report's table."""
    is_optional: bool = False
    """Left out where it is absent or zero in every run."""
    score_key: str = ""
    """Its field in the score of a trial, if that has another name."""

    def of(self, run: object) -> float | None:
        """Read it from a summary or from a score."""
        name = self.key if hasattr(run, self.key) else self.score_key
        value: float | None = getattr(run, name, None)
        return value

    def best(self, values: Iterable[float | None]) -> str | None:
        """The best value as it is written; None where there is nothing to choose between."""
        known = [value for value in values if value is not None]
        if self.better is None or len({self.words(value) for value in known}) < 2:
            return None
        return self.words(min(known) if self.better == "lower" else max(known))


def signed_duration(value: float | None) -> str:
    """A length of time that may be negative, as the excess of jobs that grow can be."""
    if value is None or value >= 0:
        return wording.duration(value)
    return f"\N{MINUS SIGN}{wording.duration(-value)}"


def _count(value: float | None) -> str:
    return wording.count(None if value is None else round(value))


_time, _share, _decimal = wording.duration, wording.share, wording.decimal
_JOBS, _JCT, _WAIT, _CLUSTER = "Jobs", "Completion time", "Waiting", "Cluster"
_COST, _MOVES, _FAIR = "Cost", "Disruption", "Fairness"

METRICS = {
    metric.key: metric
    for metric in (
        Metric("finished", "done", "Jobs that ended", _count, "higher", _JOBS),
        Metric("unfinished", "unfinished jobs", "Jobs that did not end", _count, "lower", _JOBS, True),
        Metric("rejected", "rejected jobs", "Jobs that can never fit", _count, "lower", _JOBS, True),
        Metric("avg_jct_s", "mean JCT", "Mean job completion time", _time, "lower", _JCT,
               score_key="mean_jct_s"),
        Metric("avg_jct_lower_bound_s", "at least",
               "Mean JCT with unfinished jobs counted up to the horizon", _time, None, _JCT, True,
               score_key="lower_bound_s"),
        Metric("passed_jct_s", "passed JCT", "Mean JCT of the jobs that succeeded", _time,
               is_optional=True),
        Metric("p50_jct_s", "median JCT", "50th percentile of JCT", _time, "lower", _JCT, score_key="p50_s"),
        Metric("p95_jct_s", "p95 JCT", "95th percentile of JCT", _time, "lower", _JCT,
               score_key="p95_s"),
        Metric("p99_jct_s", "p99 JCT", "99th percentile of JCT", _time, "lower", _JCT,
               score_key="p99_s"),
        Metric("avg_queue_s", "mean queueing", "Mean wait before the first start", _time, "lower",
               _WAIT, score_key="queue_s"),
        Metric("avg_excess_s", "excess", "Mean JCT beyond the service alone", signed_duration, "lower",
               _WAIT, score_key="excess_s"),
        Metric("makespan_s", "makespan", "First submission to last finish", _time, "lower",
               _CLUSTER),
        Metric("gpu_util", "utilisation", "Part of the GPU time making progress", _share, "higher",
               _CLUSTER),
        Metric("gpu_hours_wasted", "wasted GPU-h", "Switching, lost work, failed runs", _decimal,
               "lower", _CLUSTER),
        Metric("cost", "cost of jobs", "Price of the GPU time that jobs held, by share", _decimal,
               "lower", _COST, True),
        Metric("cost_wasted", "wasted cost", "Price of switching, lost work, failed runs", _decimal,
               "lower", _COST, True),
        Metric("cost_idle", "idle cost", "Price of GPUs that no job held, over the makespan",
               _decimal, "lower", _COST, True),
        Metric("preemptions", "preemptions", "Suspensions, without migrations", _count, None, _MOVES),
        Metric("migrations", "migrations", "Moves to other GPUs", _count, None, _MOVES),
        Metric("p99_rho", f"p99 {RHO}", "99th percentile of JCT over that of a fair share", _decimal,
               "lower", _FAIR, score_key="rho_p99"),
        Metric("rho_over_1", f"{RHO} > 1", "Jobs slower than with a fair share", _share),
        Metric("max_rho", f"max {RHO}", "Highest JCT over that of a fair share", _decimal, "lower",
               _FAIR, score_key="rho_max"),
        Metric("jain_index", "Jain's index", "Jain's fairness index over the queues", _decimal,
               "higher", _FAIR),
    )
}  # fmt: skip
BAR_METRICS = tuple(METRICS[key] for key in ("avg_jct_s", "p95_jct_s", "p99_jct_s"))


def named(*keys: str) -> tuple[Metric, ...]:
    return tuple(METRICS[key] for key in keys)


def shown(metrics: Iterable[Metric], runs: Sequence[object]) -> list[Metric]:
    """Without the optional ones that no run has; a count of zero is not shown either."""

    def is_there(metric: Metric, run: object) -> bool:
        value = metric.of(run)
        return value is not None and not (isinstance(value, int) and value == 0)

    return [m for m in metrics if not m.is_optional or any(is_there(m, run) for run in runs)]
