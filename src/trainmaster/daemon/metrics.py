"""The daemon's own counters and histograms for Prometheus; `api/metrics.py` adds the current state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

from trainmaster.core.state import JobRecord
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL, SECOND

WAITS_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 24 * 3_600, 7 * 24 * 3_600)
SWITCHES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
PASSES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
RATIOS = (1.0, 1.05, 1.1, 1.25, 1.5, 2, 3, 5)


class Metrics:
    """One daemon's counters and histograms, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._wait = self._histogram(
            "admission_wait_seconds",
            "How long jobs waited from submission to their first start.",
            WAITS_S,
            "queue",
        )
        self._preempted = self._counter(
            "preempted_jobs", "Suspensions ordered by the policy.", "queue"
        )
        self._evicted = self._counter(
            "evicted_jobs",
            "Runs that left their devices without having ended, by cause: policy, owner, failure, lost.",
            "queue",
            "cause",
        )
        self._finished = self._counter("finished_jobs", "Jobs that have ended.", "queue", "state")
        self._suspend = self._histogram(
            "suspend_latency_seconds",
            "From the order to suspend until the devices were free: freeze or halt.",
            SWITCHES_S,
            "how",
        )
        self._lost_work = self._counter(
            "lost_work_seconds", "Work at nominal speed that was done and lost."
        )
        self._slowdown = self._histogram(
            "packing_slowdown_ratio",
            "Speed of a job alone, divided by its speed beside others on its device.",
            RATIOS,
        )
        self._pass = self._histogram(
            "scheduling_pass_seconds",
            "How long one step of the controller took, the policy's pass in it.",
            PASSES_S,
        )
        self._steps = self._counter("steps", "Steps of the controller.")
        self._store_errors = self._counter(
            "store_errors", "Times that the store could not be used."
        )

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"trainmaster_{name}", help_text, labels, registry=self.registry)

    def _histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"trainmaster_{name}", help_text, labels, registry=self.registry, buckets=buckets
        )

    def admitted(self, queue: str, waited_ms: int) -> None:
        """A job started for the first time."""
        self._wait.labels(queue).observe(waited_ms / 1000)

    def preempted(self, queue: str) -> None:
        self._preempted.labels(queue).inc()

    def evicted(self, queue: str, cause: str) -> None:
        self._evicted.labels(queue, cause).inc()

    def finished(self, queue: str, state: str) -> None:
        self._finished.labels(queue, state).inc()

    def suspended(self, how: str, took_ms: int) -> None:
        """`how` is freeze or halt."""
        self._suspend.labels(how).observe(took_ms / 1000)

    def lost_work(self, work_ms: float) -> None:
        self._lost_work.inc(max(0.0, work_ms / 1000))

    def packed(self, slowdown: float) -> None:
        """A job's speed beside others was measured: 1.25 is a fifth slower than alone."""
        self._slowdown.observe(slowdown)

    def stepped(self, took_s: float) -> None:
        """One step of the controller has been made."""
        self._pass.observe(took_s)
        self._steps.inc()

    def store_failed(self) -> None:
        self._store_errors.inc()


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
    event, queue = logged.event, live.job.queue
    if isinstance(event, e.RunStarted) and record.first_start_ms == now:
        metrics.admitted(queue, now - live.job.submit_ms)
    elif isinstance(event, e.RunSuspended) and "took_s" in logged.detail:
        metrics.suspended(
            "freeze" if event.frozen else "halt", round(_number(logged, "took_s") * SECOND)
        )
        metrics.evicted(queue, "owner" if record.is_held else "policy")
        if not record.is_held:
            metrics.preempted(queue)
    elif isinstance(event, e.RunFailed | e.RunLost):
        metrics.evicted(queue, "failure" if isinstance(event, e.RunFailed) else "lost")
    elif isinstance(event, e.RunSpeedChanged) and event.speed_ppm:
        placement = record.placement
        if placement is not None and placement.sharing is not Sharing.EXCLUSIVE:
            metrics.packed(NOMINAL / event.speed_ppm)
    if "lost_s" in logged.detail:
        metrics.lost_work(_number(logged, "lost_s") * SECOND)


def _number(logged: LoggedEvent, name: str) -> float:
    found = logged.detail[name]
    assert isinstance(found, float | int)
    return found
