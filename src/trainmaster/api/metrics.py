"""The page for Prometheus: what the manager counted, and what it knows now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from trainmaster.api import messages as wording
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.response_models import QueueRow
from trainmaster.daemon.service_api import Health, Service
from trainmaster.model.job_state import WAITING_STATES, JobState
from trainmaster.store.rows import JobFilter

PAGE, MOST_PAGES = 1_000, 10
LOOKED_AT = frozenset(WAITING_STATES) - {JobState.HELD}
UNKNOWN = "Unknown"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Now:
    """Gauges of one moment, as prometheus-client collects them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


async def page(service: Service, meters: Metrics) -> bytes:
    """All of it as text."""
    health = service.health()
    families = [_leading(health)]
    if health.role == "active":
        families += _queues(service.queries.queues())
        counts = await service.queries.counts()
        families += [_states(counts), await _unadmitted(service, counts), *_devices(service)]
    registry = CollectorRegistry()
    registry.register(_Now(families))
    return generate_latest(meters.registry) + generate_latest(registry)


def _gauge(name: str, help_text: str, labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"trainmaster_{name}", help_text, labels=list(labels))


def _leading(health: Health) -> Metric:
    found = _gauge(
        "up", "1 where this manager works; 0 where it has trouble or stands by.", ("role",)
    )
    found.add_metric([health.role], float(health.role == "active" and not health.trouble))
    return found


def _queues(queues: Sequence[QueueRow]) -> list[Metric]:
    pending = _gauge("pending_jobs", "Jobs that wait, those that are held included.", ("queue",))
    running = _gauge("running_jobs", "Jobs that hold devices.", ("queue",))
    held = _gauge(
        "held_jobs", "Jobs that wait for their owner, for others, or for their array.", ("queue",)
    )
    allocated = _gauge("queue_allocated_gpus", "GPUs that a queue's jobs hold.", ("queue",))
    guaranteed = _gauge(
        "queue_guaranteed_gpus", "GPUs that a queue can always get back.", ("queue",)
    )
    for queue in queues:
        name = [queue.name]
        pending.add_metric(name, queue.waiting + queue.held)
        running.add_metric(name, queue.running)
        held.add_metric(name, queue.held)
        allocated.add_metric(name, queue.gpus)
        guaranteed.add_metric(name, queue.guaranteed_gpus)
    return [pending, running, held, allocated, guaranteed]


def _states(counts: Mapping[str, int]) -> Metric:
    found = _gauge("jobs", "Jobs in each state, ended ones included.", ("state",))
    for state, count in counts.items():
        found.add_metric([state], count)
    return found


async def _unadmitted(service: Service, counts: Mapping[str, int]) -> Metric:
    """Waiting jobs by reason: one source with `explain`. Very long queues are read in part."""
    now = service.queries.now_ms()
    counted: Counter[str] = Counter()
    before = None
    for _ in range(MOST_PAGES):
        statuses = await service.queries.jobs(
            JobFilter(states=LOOKED_AT, before=before, limit=PAGE)
        )
        for status in statuses:
            why = wording.why_waiting(status, now)
            counted[UNKNOWN if why is None else why[0]] += 1
        if len(statuses) < PAGE:
            break
        before = statuses[-1].row.id
    unread = sum(counts.get(state, 0) for state in LOOKED_AT) - counted.total()
    counted[UNKNOWN] += max(0, unread)
    counted[wording.HELD] += counts.get("held", 0)  # what is held has no other reason
    found = _gauge(
        "unadmitted_jobs", "Jobs that wait, by the reason that `explain` gives.", ("reason",)
    )
    for reason, count in sorted(counted.items()):
        if count:
            found.add_metric([reason], count)
    return found


def _devices(service: Service) -> list[Metric]:
    total = _gauge("node_devices", "Devices of a node.", ("node", "type", "state"))
    used = _gauge("node_used_devices", "Devices of a node that a job is on.", ("node", "type"))
    for node in service.queries.nodes():
        total.add_metric([node.name, node.type, node.state], len(node.devices))
        used.add_metric([node.name, node.type], sum(bool(each.jobs) for each in node.devices))
    return [total, used]
