"""A Grafana dashboard for the manager's metrics, from a table of its panels."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
"""Of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    queries: tuple[tuple[str, str], ...]
    """What each line shows: its expression, and its legend."""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    about: str = ""
    """What to do about it."""


def _share(used: str, all_of: str) -> str:
    return f"sum({used}) / sum({all_of})"


def _quantile(name: str, by: str = "") -> tuple[tuple[str, str], ...]:
    inner = f"sum by (le{', ' + by if by else ''}) (rate({name}_bucket[$__rate_interval]))"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (f"histogram_quantile({q}, {inner})", f"p{round(100 * q)}{legend}") for q in (0.5, 0.95)
    )


STATS = (
    Panel(
        "Manager",
        (("max(trainmaster_up)", ""),),
        kind="stat",
        width=4,
        height=4,
        about="1: it works. 0: /healthz says why.",
    ),
    Panel(
        "Devices in use",
        ((_share("trainmaster_node_used_devices", "trainmaster_node_devices"), ""),),
        "percentunit",
        "stat",
        4,
        4,
    ),
    Panel(
        "GPU utilisation",
        (("avg(trainmaster_gpu_utilization_ratio)", ""),),
        "percentunit",
        "stat",
        4,
        4,
        about="Far below the devices in use: jobs hold GPUs that they leave idle.",
    ),
    Panel("Running", (("sum(trainmaster_running_jobs)", ""),), kind="stat", width=4, height=4),
    Panel("Pending", (("sum(trainmaster_pending_jobs)", ""),), kind="stat", width=4, height=4),
    Panel(
        "Devices set aside",
        (("count(trainmaster_device_set_aside) or vector(0)", ""),),
        kind="stat",
        width=4,
        height=4,
        about="`trainmaster node list --devices` says why, `node unblock` gives one back.",
    ),
)
CHARTS = (
    Panel(
        "GPUs by queue",
        (("trainmaster_queue_allocated_gpus", "{{queue}}"),),
        stacked=True,
    ),
    Panel(
        "Allocated and used",
        (
            (_share("trainmaster_node_used_devices", "trainmaster_node_devices"), "allocated"),
            ("avg(trainmaster_gpu_utilization_ratio)", "utilised"),
        ),
        "percentunit",
        about="The gap is what packing could use.",
    ),
    Panel(
        "Why jobs wait",
        (("trainmaster_unadmitted_jobs", "{{reason}}"),),
        stacked=True,
    ),
    Panel(
        "Wait until the first start",
        _quantile("trainmaster_admission_wait_seconds", "queue"),
        "s",
    ),
    Panel(
        "Jobs that ended",
        (("sum by (state) (increase(trainmaster_finished_jobs_total[1h]))", "{{state}}"),),
        stacked=True,
        about="In the last hour.",
    ),
    Panel(
        "GPU hours lost, by reason",
        (
            (
                "sum by (reason) (increase(trainmaster_lost_gpu_seconds_total[1d])) / 3600",
                "{{reason}}",
            ),
        ),
        "h",
        stacked=True,
        about="In the last day. `trainmaster history --failures` says whose.",
    ),
    Panel(
        "Preemptions",
        (("sum(increase(trainmaster_preempted_jobs_total[1h]))", "in the last hour"),),
    ),
    Panel(
        "Suspending takes",
        _quantile("trainmaster_suspend_latency_seconds", "how"),
        "s",
    ),
    Panel(
        "Slowdown of packed jobs",
        _quantile("trainmaster_packing_slowdown_ratio"),
        about="2 or more for two jobs on a GPU: packing gains nothing.",
    ),
    Panel(
        "GPU memory",
        (("trainmaster_gpu_memory_used_bytes / trainmaster_gpu_memory_bytes", "{{device}}"),),
        "percentunit",
    ),
    Panel("GPU temperature", (("trainmaster_gpu_temperature_celsius", "{{device}}"),), "celsius"),
    Panel("GPU power", (("sum(trainmaster_gpu_power_watts)", "all GPUs"),), "watt"),
    Panel(
        "Errors of GPUs",
        (
            ("trainmaster_gpu_xid_events", "XID {{device}}"),
            ("trainmaster_gpu_ecc_errors", "ECC {{device}}"),
        ),
    ),
    Panel(
        "Hung jobs",
        (("trainmaster_job_hung_seconds", "{{job}} {{name}}"),),
        "s",
        about="`trainmaster explain JOB` shows where its processes wait.",
    ),
    Panel("One step of the manager", _quantile("trainmaster_scheduling_pass_seconds"), "s"),
)


def dashboard() -> dict[str, object]:
    """The dashboard as Grafana imports it; it asks which Prometheus to use."""
    return {
        "title": "Trainmaster",
        "uid": "trainmaster",
        "tags": ["trainmaster", "gpu"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": _placed((*STATS, *CHARTS)),
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, object]]:
    """Row by row, as far as each fits."""
    placed, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        grid = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        placed.append(_as_grafana(panel, number) | {"gridPos": grid})
        x, tallest = x + panel.width, max(tallest, panel.height)
    return placed


def _as_grafana(panel: Panel, number: int) -> dict[str, object]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
        for at, (query, legend) in enumerate(panel.queries)
    ]
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
    }
