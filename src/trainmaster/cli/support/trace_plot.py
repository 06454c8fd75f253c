"""A trace in four plots: sizes, run times, ends, arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from trainmaster.model.trace import Trace
from trainmaster.model.units import WHOLE, to_seconds
from trainmaster.report import palette
from trainmaster.report.charts import WIDE_IN, Chart, styled
from trainmaster.traces.stats import LARGEST_CLASS, SIZE_CLASSES, TraceStats, describe, size_class

BLUE, GREY = palette.POLICIES[0].light, palette.POLICIES[7].light
TICKS = ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (86400, "1 d"), (864000, "10 d"))
HEIGHT_IN = 7.5


def draw(trace: Trace, name: str, out: IO[bytes], kind: str) -> None:
    """Write the figure to an open file."""
    stats = describe(trace)
    chart = _chart(trace, stats, name)
    out.write(chart.written(f"{name}: {stats.jobs:,} jobs", kind))


@styled
def _chart(trace: Trace, stats: TraceStats, name: str) -> Chart:
    chart = Chart(name, WIDE_IN, HEIGHT_IN)
    sizes, times, ends, arrivals = chart.panels(2, 2)
    _draw_sizes(sizes, stats)
    _draw_run_times(times, trace)
    _draw_ends(ends, stats)
    _draw_arrivals(arrivals, stats.arrivals_by_hour)
    return chart


def _draw_sizes(axes: Any, stats: TraceStats) -> None:
    labels = [f"{size.gpus:g}" for size in stats.sizes]
    places = range(len(labels))
    axes.bar(places, [size.jobs for size in stats.sizes], color=BLUE)
    step = -(-len(labels) // 12)
    axes.set_xticks(places[::step], labels[::step])
    axes.set(title="Jobs by size", xlabel="GPUs", ylabel="jobs")


def _draw_run_times(axes: Any, trace: Trace) -> None:
    """The part of each size class that runs no longer than a time."""
    labels = [*(each for each, _ in SIZE_CLASSES), LARGEST_CLASS]
    for slot, label in enumerate(labels):
        times = sorted(
            max(0.001, to_seconds(traced.service_ms))
            for traced in trace.jobs
            if size_class(traced.job.demand.nominal.total_share) == label
        )
        if times:
            parts = [(rank + 1) / len(times) for rank in range(len(times))]
            unit = "GPU" if label in ("1", f"<{WHOLE // WHOLE}") else "GPUs"
            axes.step(
                times,
                parts,
                where="post",
                color=palette.policy_shade(slot).light,
                label=f"{label} {unit}",
            )
    axes.set_xscale("log")
    axes.set_xticks([at for at, _ in TICKS], [label for _, label in TICKS])
    axes.minorticks_off()
    axes.set(title="Run time", ylabel="part of jobs", ylim=(0, 1))
    axes.legend(frameon=False, loc="lower right")


def _draw_ends(axes: Any, stats: TraceStats) -> None:
    names = [each.outcome.value for each in stats.outcomes]
    hours = stats.gpu_hours or 1.0
    jobs = [each.jobs / stats.jobs for each in stats.outcomes]
    time = [each.gpu_hours / hours for each in stats.outcomes]
    places = range(len(names))
    axes.bar([place - 0.2 for place in places], jobs, 0.38, color=BLUE, label="of jobs")
    axes.bar([place + 0.2 for place in places], time, 0.38, color=GREY, label="of GPU time")
    axes.set_xticks(places, names)
    axes.set(title="How jobs end", ylabel="part", ylim=(0, 1))
    axes.legend(frameon=False)


def _draw_arrivals(axes: Any, by_hour: Sequence[int]) -> None:
    axes.bar(range(24), by_hour, color=BLUE)
    axes.set_xticks(range(0, 24, 3))
    axes.set(title="Arrivals", xlabel="hour of the day", ylabel="jobs")
