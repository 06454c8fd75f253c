"""A trace in four plots: sizes, run times, ends, arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from trainmaster.model.trace import Trace
from trainmaster.model.units import WHOLE, to_seconds
from trainmaster.traces.stats import LARGEST_CLASS, SIZE_CLASSES, TraceStats, describe, size_class

BLUE, RED, GREEN, GREY = "#2f6db5", "#c2503f", "#4d9a5b", "#8a8f98"
LINES = (GREY, BLUE, GREEN, "#d59b2c", RED)
TICKS = ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (86400, "1 d"), (864000, "10 d"))


def draw(trace: Trace, name: str, out: IO[bytes], kind: str) -> None:
    """Write the figure to an open file."""
    from matplotlib.figure import Figure

    stats = describe(trace)
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    figure.suptitle(f"{name}: {stats.jobs:,} jobs", fontweight="bold")
    (sizes, times), (ends, arrivals) = figure.subplots(2, 2)
    _draw_sizes(sizes, stats)
    _draw_run_times(times, trace)
    _draw_ends(ends, stats)
    _draw_arrivals(arrivals, stats.arrivals_by_hour)
    for axes in (sizes, times, ends, arrivals):
        axes.spines[["top", "right"]].set_visible(False)
    stamp = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    figure.savefig(out, format=kind, dpi=150, metadata={stamp[kind]: None})


def _draw_sizes(axes: Any, stats: TraceStats) -> None:
    labels = [f"{size.gpus:g}" for size in stats.sizes]
    places = range(len(labels))
    axes.bar(places, [size.jobs for size in stats.sizes], color=BLUE)
    step = -(-len(labels) // 12)
    axes.set_xticks(places[::step], labels[::step])
    axes.set(title="Jobs by size", xlabel="GPUs", ylabel="jobs")


def _draw_run_times(axes: Any, trace: Trace) -> None:
    """The part of each size class that runs no longer than a time."""
    for colour, label in zip(
        LINES, [*(each for each, _ in SIZE_CLASSES), LARGEST_CLASS], strict=True
    ):
        times = sorted(
            max(0.001, to_seconds(traced.service_ms))
            for traced in trace.jobs
            if size_class(traced.job.demand.nominal.total_share) == label
        )
        if times:
            parts = [(rank + 1) / len(times) for rank in range(len(times))]
            unit = "GPU" if label in ("1", f"<{WHOLE // WHOLE}") else "GPUs"
            axes.step(times, parts, where="post", color=colour, label=f"{label} {unit}")
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
