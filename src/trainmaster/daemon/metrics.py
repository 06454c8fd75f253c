"""The manager's own counters and histograms for Prometheus; `api/metrics.py` adds the current state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from trainmaster.core.state import JobRecord
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL, SECOND, WHOLE

WAITS_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 24 * 3_600, 7 * 24 * 3_600)
SWITCHES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
PASSES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
RATIOS = (1.0, 1.05, 1.1, 1.25, 1.5, 2, 3, 5)


class Metrics:
    """One manager's counters and histograms, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.admission_wait = self._histogram(
            "admission_wait_seconds",
            "How long jobs waited from submission to their first start.",
            WAITS_S,
            "queue",
        )
        self.preempted = self._counter(
            "preempted_jobs", "Suspensions ordered by the policy.", "queue"
        )
        self.evicted = self._counter(
            "evicted_jobs",
            "Runs that left their devices without having ended, by cause: policy, owner, failure, lost.",
            "queue",
            "cause",
        )
        self.hung = self._counter("hung_runs", "Times that a run was found to hang.", "queue")
        self.finished = self._counter("finished_jobs", "Jobs that have ended.", "queue", "state")
        self.suspend_latency = self._histogram(
            "suspend_latency_seconds",
            "From the order to suspend until the devices were free: freeze or halt.",
            SWITCHES_S,
            "how",
        )
        self.lost_work = self._counter(
            "lost_work_seconds", "Time that runs trained for work that was lost."
        )
        self.packing_slowdown = self._histogram(
            "packing_slowdown_ratio",
            "Speed of a job alone, divided by its speed beside others on its device.",
            RATIOS,
        )
        self.failed_runs = self._counter(
            "failed_runs", "Runs that failed or were lost, by reason.", "reason", "blame"
        )
        self.lost_gpu_seconds = self._counter(
            "lost_gpu_seconds",
            "Run time x GPUs of runs that failed or were lost, by reason.",
            "reason",
            "blame",
        )
        self.passes = self._histogram(
            "scheduling_pass_seconds",
            "How long one step of the controller took, the policy's pass in it.",
            PASSES_S,
        )
        self.steps = self._counter("steps", "Steps of the controller.")
        self.store_errors = self._counter("store_errors", "Times that the store could not be used.")

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"trainmaster_{name}", help_text, labels, registry=self.registry)

    def _histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"trainmaster_{name}", help_text, labels, registry=self.registry, buckets=buckets
        )


def count_events(
    metrics: Metrics, events: Iterable[LoggedEvent], jobs: Mapping[str, LiveJob], now: int
) -> None:
    """Count what happened to runs; the jobs are as they were after the step."""
    for logged in events:
        run = getattr(logged.event, "run", None)
        live = None if run is None else jobs.get(run.job)
        if live is not None and live.record is not None:
            _count(metrics, logged, live, live.record, now)


def _count(
    metrics: Metrics, logged: LoggedEvent, live: LiveJob, record: JobRecord, now: int
) -> None:
    event, detail, queue = logged.event, logged.detail, live.job.queue
    if isinstance(event, e.RunStarted) and record.first_start_ms == now:
        metrics.admission_wait.labels(queue).observe((now - live.job.submit_ms) / SECOND)
    elif isinstance(event, e.RunSuspended) and "took_s" in detail:
        how = "freeze" if event.frozen else "halt"
        metrics.suspend_latency.labels(how).observe(detail["took_s"])
        metrics.evicted.labels(queue, "owner" if record.is_held else "policy").inc()
        if not record.is_held:
            metrics.preempted.labels(queue).inc()
    elif isinstance(event, e.RunHung):
        metrics.hung.labels(queue).inc()
    elif isinstance(event, e.RunFailed | e.RunLost):
        cause = "failure" if isinstance(event, e.RunFailed) else "lost"
        metrics.evicted.labels(queue, cause).inc()
        _count_failure(metrics, detail.get("cost"))
    elif isinstance(event, e.RunSpeedChanged) and event.speed_ppm:
        placement = record.placement
        if placement is not None and placement.sharing is not Sharing.EXCLUSIVE:
            metrics.packing_slowdown.observe(NOMINAL / event.speed_ppm)
    if "lost_s" in detail:
        metrics.lost_work.inc(max(0.0, detail["lost_s"]))


def _count_failure(metrics: Metrics, cost: Mapping[str, Any] | None) -> None:
    """Why a run failed and what that cost (daemon/failure_history.py)."""
    if cost is not None:
        labels = cost["reason"], cost["blame"]
        metrics.failed_runs.labels(*labels).inc()
        metrics.lost_gpu_seconds.labels(*labels).inc(cost["run_s"] * cost["gpus"] / WHOLE)
