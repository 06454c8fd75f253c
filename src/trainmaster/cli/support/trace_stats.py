"""The numbers of a trace for people, with bars, and for programs, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING

from trainmaster.text.formatting import count, decimal, duration, plural, share
from trainmaster.traces.stats import Portion, TraceStats

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BAR = 24
EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = " ▁▂▃▄▅▆▇█"
TENANTS = 5


def to_json(stats: TraceStats) -> str:
    return json.dumps(_plain(asdict(stats)), indent=2) + "\n"


def _plain(value: object) -> object:
    """Numbers to 3 decimals, enumerations by their word."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return round(value, 3) if isinstance(value, float) else value


def bar(value: float, largest: float, width: int = BAR) -> str:
    """A horizontal bar, to an eighth of a character."""
    if not largest:
        return ""
    whole, rest = divmod(round(8 * width * value / largest), 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")) or (EIGHTHS[1] if value else "")


def sparkline(values: Sequence[int]) -> str:
    """A column per value."""
    largest = max(values, default=0) or 1
    return "".join(HEIGHTS[-(-8 * value // largest)] for value in values)


def show(stats: TraceStats, name: str, console: Console) -> None:
    console.print(f"{name}: {_headline(stats)}", style="bold", markup=False)
    console.print(_sizes(stats))
    console.print(_run_times(stats))
    console.print(_outcomes(stats))
    console.print("[bold]Arrivals by hour of the day[/] (hour 0 begins at time 0 of the trace)")
    console.print(f"  0 {sparkline(stats.arrivals_by_hour)} 23")
    for title, portions, known in (
        ("queue", stats.queues, stats.queue_count),
        ("user", stats.users, stats.user_count),
        ("model", stats.models, stats.model_count),
    ):
        if known > 1:
            console.print(_tenants(title, portions, known))


def _headline(stats: TraceStats) -> str:
    parts = [
        plural(stats.jobs, "job"),
        f"{duration(stats.span_s)} of arrivals",
        f"{decimal(stats.gpu_hours)} GPU-h",
        f"largest job {stats.largest_gpus:g} GPUs",
    ]
    if stats.load is not None:
        parts.append(f"load {stats.load:.2f} on {plural(stats.gpus or 0, 'GPU')}")
    for number, noun in (
        (stats.elastic, "elastic"),
        (stats.fractional, "fractional"),
        (stats.opportunistic, "opportunistic"),
        (stats.with_failures, "with failed attempts"),
    ):
        if number:
            parts.append(f"{count(number)} {noun}")
    return ", ".join(parts)


def _table(title: str, *headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left", pad_edge=False)
    table.add_column(f"[bold]{title}[/]", no_wrap=True)
    for heading in headings:
        justify = "left" if heading in ("", "of jobs", "of GPU time") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def _sizes(stats: TraceStats) -> Table:
    table = _table("GPUs", "jobs", "part", "of jobs")
    largest = max((size.jobs for size in stats.sizes), default=0)
    for size in _fold([(size.gpus, size.jobs) for size in stats.sizes]):
        label, jobs = size
        table.add_row(label, count(jobs), share(jobs / stats.jobs), bar(jobs, largest))
    table.add_row("")
    return table


def _fold(sizes: Sequence[tuple[float, int]], most: int = 12) -> Iterable[tuple[str, int]]:
    """All sizes, or the commonest and one line for the rest."""
    if len(sizes) <= most:
        return [(f"{gpus:g}", jobs) for gpus, jobs in sizes]
    common = sorted(sorted(sizes, key=lambda size: -size[1])[: most - 1])
    rest = sum(jobs for _, jobs in sizes) - sum(jobs for _, jobs in common)
    return [*((f"{gpus:g}", jobs) for gpus, jobs in common), ("others", rest)]


def _run_times(stats: TraceStats) -> Table:
    table = _table("run time by GPUs", "jobs", "mean", "p10", "p50", "p90", "p99", "longest")
    for each in stats.run_times:
        times = (each.mean_s, each.p10_s, each.p50_s, each.p90_s, each.p99_s, each.longest_s)
        table.add_row(each.label, count(each.jobs), *map(duration, times))
    table.add_row("")
    return table


def _outcomes(stats: TraceStats) -> Table:
    table = _table("end", "jobs", "of jobs", "GPU-h", "of GPU time")
    for each in stats.outcomes:
        hours = each.gpu_hours / stats.gpu_hours if stats.gpu_hours else 0.0
        table.add_row(
            each.outcome.value,
            count(each.jobs),
            f"{bar(each.jobs, stats.jobs, 12):12} {share(each.jobs / stats.jobs)}",
            decimal(each.gpu_hours),
            f"{bar(hours, 1, 12):12} {share(hours)}",
        )
    table.add_row("")
    return table


def _tenants(title: str, portions: Sequence[Portion], known: int) -> Table:
    from rich.markup import escape

    table = _table(f"{title} ({known:,})", "jobs", "GPU-h", "of GPU time")
    largest = max((each.gpu_hours for each in portions), default=0.0)
    for each in portions[:TENANTS]:
        hours = each.gpu_hours
        table.add_row(escape(each.name), count(each.jobs), decimal(hours), bar(hours, largest))
    table.add_row("")
    return table
