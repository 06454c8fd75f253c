"""The numbers of a trace: as tables with bars, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from trainmaster.text.formatting import count, decimal, duration, plural, share
from trainmaster.traces.stats import GroupUsage, TraceStats

BAR = 24
EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = " ▁▂▃▄▅▆▇█"
TENANTS = 5


def to_json(stats: TraceStats) -> str:
    """All numbers to 3 decimals, enumerations by their word."""
    exact = json.dumps(asdict(stats), default=lambda member: member.value)
    return json.dumps(json.loads(exact, parse_float=_rounded), indent=2) + "\n"


def _rounded(number: str) -> float:
    return round(float(number), 3)


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
    load = f"load {stats.load or 0:.2f} on {plural(stats.gpus or 0, 'GPU')}"
    kinds = {
        "elastic": stats.elastic,
        "fractional": stats.fractional,
        "opportunistic": stats.opportunistic,
        "with failed attempts": stats.with_failures,
    }
    parts = [
        plural(stats.jobs, "job"),
        f"{duration(stats.span_s)} of arrivals",
        f"{decimal(stats.gpu_hours)} GPU-h",
        f"largest job {stats.largest_gpus:g} GPUs",
        *([] if stats.load is None else [load]),
        *(f"{count(number)} {kind}" for kind, number in kinds.items() if number),
    ]
    return ", ".join(parts)


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with an empty line below; what has bars is to the left, numbers are to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left", pad_edge=False)
    table.add_column(f"[bold]{title}[/]", no_wrap=True)
    for heading in headings:
        side: JustifyMethod = "left" if heading.startswith("of ") else "right"
        table.add_column(heading, justify=side, no_wrap=True)
    for row in (*rows, ("",)):
        table.add_row(*row)
    return table


def _sizes(stats: TraceStats) -> Table:
    largest = max((size.jobs for size in stats.sizes), default=0)
    rows = (
        (label, count(jobs), share(jobs / stats.jobs), bar(jobs, largest))
        for label, jobs in _fold([(size.gpus, size.jobs) for size in stats.sizes])
    )
    return _table("GPUs", ("jobs", "part", "of jobs"), rows)


def _fold(sizes: Sequence[tuple[float, int]], most: int = 12) -> Iterable[tuple[str, int]]:
    """All sizes, or the commonest and one line for the rest."""
    common, rest = sizes, []
    if len(sizes) > most:
        common = sorted(sorted(sizes, key=lambda size: -size[1])[: most - 1])
        others = sum(jobs for _, jobs in sizes) - sum(jobs for _, jobs in common)
        rest = [("others", others)]
    return [*((f"{gpus:g}", jobs) for gpus, jobs in common), *rest]


def _run_times(stats: TraceStats) -> Table:
    rows = (
        (
            *(each.label, count(each.jobs), duration(each.mean_s), duration(each.p10_s)),
            *map(duration, (each.p50_s, each.p90_s, each.p99_s, each.longest_s)),
        )
        for each in stats.run_times
    )
    headings = ("jobs", "mean", "p10", "p50", "p90", "p99", "longest")
    return _table("run time by GPUs", headings, rows)


def _outcomes(stats: TraceStats) -> Table:
    hours = stats.gpu_hours or 1.0
    rows = (
        (
            *(each.outcome.value, count(each.jobs), _bar_and_share(each.jobs / stats.jobs)),
            *(decimal(each.gpu_hours), _bar_and_share(each.gpu_hours / hours)),
        )
        for each in stats.outcomes
    )
    return _table("end", ("jobs", "of jobs", "GPU-h", "of GPU time"), rows)


def _bar_and_share(part: float) -> str:
    return f"{bar(part, 1, 12):12} {share(part)}"


def _tenants(title: str, portions: Sequence[GroupUsage], known: int) -> Table:
    largest = max((each.gpu_hours for each in portions), default=0.0)
    rows = (
        (
            *(escape(each.name), count(each.jobs), decimal(each.gpu_hours)),
            bar(each.gpu_hours, largest),
        )
        for each in portions[:TENANTS]
    )
    return _table(f"{title} ({known:,})", ("jobs", "GPU-h", "of GPU time"), rows)
