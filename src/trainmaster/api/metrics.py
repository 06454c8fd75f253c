"""The page for Prometheus: what the manager counted, and what it knows now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from trainmaster.api import messages
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.gpu_rows import ratio
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.response_models import GpuRow, NodeRow, QueueRow
from trainmaster.model.job_state import WAITING_STATES
from trainmaster.store.rows import JobFilter

PAGE, MOST_PAGES = 1_000, 10
LOOKED_AT = frozenset(WAITING_STATES)
UNKNOWN = "Unknown"
IsShown = Callable[[str], bool]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Now:
    """Gauges of one moment, as prometheus-client collects them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


QUEUE_GAUGES: tuple[tuple[str, str, Callable[[QueueRow], float]], ...] = (
    ("pending_jobs", "Jobs that have not started.", lambda queue: queue.pending),
    ("running_jobs", "Jobs that hold devices.", lambda queue: queue.running),
    (
        "suspended_jobs",
        "Jobs that have run and are to continue later.",
        lambda queue: queue.suspended,
    ),
    ("queue_allocated_gpus", "GPUs that a queue's jobs hold.", lambda queue: queue.gpus),
    (
        "queue_guaranteed_gpus",
        "GPUs that a queue can always get back.",
        lambda queue: queue.guaranteed_gpus,
    ),
)


async def page(service: Daemon, metrics: Metrics, shown: frozenset[str] | None = None) -> bytes:
    """All of it as text; `shown` are the jobs that are named, None: all."""

    def is_shown(job: str) -> bool:
        return shown is None or job in shown

    health = service.health()
    works = health.role == "active" and not health.trouble
    up = "1 where this manager works; 0 where it has trouble or stands by."
    families = [_gauge("up", up, ("role",), [((health.role,), works)])]
    if health.role == "active":
        queues, counts = service.queries.queues(), await service.queries.counts()
        nodes = service.queries.nodes()
        families += [
            _gauge(name, words, ("queue",), [((each.name,), of(each)) for each in queues])
            for name, words, of in QUEUE_GAUGES
        ]
        families += _quotas(service, queues)
        states = [((state,), count) for state, count in counts.items()]
        families += [
            _gauge("jobs", "Jobs in each state, ended ones included.", ("state",), states),
            await _unadmitted(service, counts),
            *_devices(nodes),
            *_gpus(service, nodes, is_shown),
            *_progress(service, is_shown),
            _hung(service, is_shown),
            _inputs(service, is_shown),
            _slow_ranks(service, is_shown),
        ]
    registry = CollectorRegistry()
    registry.register(_Now(families))
    return generate_latest(metrics.registry) + generate_latest(registry)


def _gauge(
    name: str,
    help_text: str,
    labels: tuple[str, ...],
    values: Iterable[tuple[tuple[str, ...], float]],
) -> Metric:
    gauge = GaugeMetricFamily(f"trainmaster_{name}", help_text, labels=labels)
    for labelled, value in values:
        gauge.add_metric(labelled, value)
    return gauge


def _quotas(service: Daemon, queues: Sequence[QueueRow]) -> list[Metric]:
    """Maxima, budgets and GPU time."""
    most = [((each.name,), each.maximum_gpus) for each in queues if each.maximum_gpus is not None]
    budgets = [
        *(((each.name, ""), each.budget) for each in queues),
        *((("", each.user), each.budget) for each in service.queries.user_limits()),
    ]
    own = ("queue", "user")
    known = [(label, row) for label, row in budgets if row is not None]
    seconds = CounterMetricFamily(
        "trainmaster_gpu_seconds",
        "GPU time that jobs held since the manager started.",
        labels=(*own, "type"),
    )
    for label, value in service.queries.gpu_seconds().items():
        seconds.add_metric(label, value)
    return [
        _gauge("queue_maximum_gpus", "GPUs that a queue may hold.", ("queue",), most),
        _gauge(
            "budget_gpu_hours",
            "GPU-hours of a budget in each period.",
            own,
            [(label, row.gpu_hours) for label, row in known],
        ),
        _gauge(
            "budget_used_ratio",
            "Part of a budget that is used in this period.",
            own,
            [(label, row.used_ratio) for label, row in known],
        ),
        seconds,
    ]


async def _unadmitted(service: Daemon, counts: Mapping[str, int]) -> Metric:
    """Waiting jobs by reason: one source with `explain`. Very long queues are read in part."""
    now = service.queries.now_ms()
    counted: Counter[str] = Counter()
    before = None
    for _ in range(MOST_PAGES):
        statuses = await service.queries.jobs(
            JobFilter(states=LOOKED_AT, before=before, limit=PAGE)
        )
        for status in statuses:
            why = messages.waiting_sentence(status, now)
            counted[UNKNOWN if why is None else why[0]] += 1
        if len(statuses) < PAGE:
            break
        before = statuses[-1].row.id
    unread = sum(counts.get(state, 0) for state in LOOKED_AT) - counted.total()
    counted[UNKNOWN] += max(0, unread)
    found = [((reason,), count) for reason, count in sorted(counted.items()) if count]
    words = "Jobs that wait, by the reason that `explain` gives."
    return _gauge("unadmitted_jobs", words, ("reason",), found)


def _progress(service: Daemon, is_shown: IsShown) -> list[Metric]:
    found = [each for each in service.queries.running_progress() if is_shown(each[0])]
    own = ("job", "name")
    steps = [((id, name), at.step) for id, name, at in found]
    rates = [((id, name), at.steps_per_s) for id, name, at in found if at.steps_per_s is not None]
    return [
        _gauge("job_step", "Training steps that a running job has made.", own, steps),
        _gauge("job_steps_per_second", "How fast a running job makes steps.", own, rates),
    ]


def _inputs(service: Daemon, is_shown: IsShown) -> Metric:
    found = [
        ((each.path,), len(each.waiting))
        for each in service.queries.inputs()
        if all(is_shown(job) for job in (*each.jobs, *each.waiting))
    ]
    words = "Jobs that wait for an input which is set aside."
    return _gauge("input_waiting_jobs", words, ("path",), found)


def _slow_ranks(service: Daemon, is_shown: IsShown) -> Metric:
    found = [
        ((live.id, live.recipe.name, str(rank), device), live.history.slow_percent / 100)
        for live, rank, device in service.queries.stragglers()
        if is_shown(live.id)
    ]
    words = "Step time of a rank that is slower than its peers, divided by theirs."
    return _gauge("job_straggler_ratio", words, ("job", "name", "rank", "device"), found)


def _hung(service: Daemon, is_shown: IsShown) -> Metric:
    now = service.queries.now_ms()
    found = [
        ((id, name), max(0, now - hang.since_ms) / 1000)
        for id, name, hang in service.queries.running_hangs()
        if is_shown(id)
    ]
    words = "Since the last sign of life of a job that hangs."
    return _gauge("job_hung_seconds", words, ("job", "name"), found)


GPU_GAUGES: tuple[tuple[str, str, Callable[[GpuRow], float | None]], ...] = (
    ("gpu_memory_bytes", "Memory of a GPU.", lambda gpu: gpu.memory_bytes),
    ("gpu_memory_used_bytes", "Memory in use, whoever uses it.", lambda gpu: gpu.memory_used_bytes),
    ("gpu_utilization_ratio", "Part of the time in which a GPU computed.", lambda gpu: gpu.util),
    ("gpu_temperature_celsius", "Temperature of a GPU.", lambda gpu: gpu.temperature_c),
    ("gpu_power_watts", "Power that a GPU draws.", lambda gpu: gpu.power_w),
    ("gpu_ecc_errors", "Uncorrected memory errors of a GPU.", lambda gpu: gpu.ecc_errors),
    ("gpu_xid_events", "XID events since the manager started.", lambda gpu: gpu.xid_events),
    ("gpu_up", "1 where a GPU answers, 0 where it has trouble.", lambda gpu: gpu.trouble is None),
)


def _gpus(service: Daemon, nodes: Sequence[NodeRow], is_shown: IsShown) -> list[Metric]:
    found = [
        ((node.name, node.type, device.name, device.gpu.uuid), device.gpu)
        for node in nodes
        for device in node.devices
        if device.gpu is not None
    ]
    own = ("node", "type", "device", "uuid")
    made = [
        _gauge(name, words, own, _known((label, of(gpu)) for label, gpu in found))
        for name, words, of in GPU_GAUGES
        if found
    ]
    uses = [each for each in service.queries.running_gpu_use() if is_shown(each[0])]
    jobs = ("job", "name")
    memory = [((id, name), use.total_memory) for id, name, use in uses]
    busy = _known(((id, name), ratio(use.mean_util_ppm)) for id, name, use in uses)
    return [
        *made,
        _gauge("job_gpu_memory_bytes", "GPU memory of a job's processes.", jobs, memory),
        _gauge("job_gpu_utilization_ratio", "Part of the time in which they compute.", jobs, busy),
    ]


def _known(
    values: Iterable[tuple[tuple[str, ...], float | None]],
) -> list[tuple[tuple[str, ...], float]]:
    return [(label, value) for label, value in values if value is not None]


def _devices(nodes: Sequence[NodeRow]) -> list[Metric]:
    total = [((each.name, each.type, each.state), len(each.devices)) for each in nodes]
    used = [((each.name, each.type), sum(bool(d.jobs) for d in each.devices)) for each in nodes]
    aside = [
        ((each.name, each.type, device.name), 1)
        for each in nodes
        for device in each.devices
        if device.set_aside is not None
    ]
    own = ("node", "type")
    return [
        _gauge("node_devices", "Devices of a node.", (*own, "state"), total),
        _gauge("node_used_devices", "Devices of a node that a job is on.", own, used),
        _gauge("device_set_aside", "1 for a device that is set aside.", (*own, "device"), aside),
    ]
