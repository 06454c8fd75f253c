"""The daemon's own counters and histograms for Prometheus; `api/metrics.py` adds the current state."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

WAITS_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 24 * 3_600, 7 * 24 * 3_600)
SWITCHES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
PASSES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
RATIOS = (1.0, 1.05, 1.1, 1.25, 1.5, 2, 3, 5)


class Metrics:
    """One daemon's counters and histograms, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._wait = Histogram(
            "trainmaster_admission_wait_seconds",
            "How long jobs waited from submission to their first start.",
            ("queue",),
            registry=self.registry,
            buckets=WAITS_S,
        )
        self._preempted = self._counter(
            "trainmaster_preempted_jobs", "Suspensions ordered by the policy.", "queue"
        )
        self._evicted = self._counter(
            "trainmaster_evicted_jobs",
            "Runs that left their devices without having ended, by cause: policy, owner, failure, lost.",
            "queue",
            "cause",
        )
        self._finished = self._counter(
            "trainmaster_finished_jobs", "Jobs that have ended.", "queue", "state"
        )
        self._suspend = Histogram(
            "trainmaster_suspend_latency_seconds",
            "From the order to suspend until the devices were free: freeze or halt.",
            ("how",),
            registry=self.registry,
            buckets=SWITCHES_S,
        )
        self._lost_work = self._counter(
            "trainmaster_lost_work_seconds", "Work at nominal speed that was done and not kept."
        )
        self._slowdown = Histogram(
            "trainmaster_packing_slowdown_ratio",
            "Speed of a job alone, divided by its speed beside others on its device.",
            registry=self.registry,
            buckets=RATIOS,
        )
        self._pass = Histogram(
            "trainmaster_scheduling_pass_seconds",
            "How long one step of the controller took, the policy's pass in it.",
            registry=self.registry,
            buckets=PASSES_S,
        )
        self._steps = self._counter("trainmaster_steps", "Steps of the controller.")
        self._store_errors = self._counter(
            "trainmaster_store_errors", "Times that the store could not be used."
        )

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

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
