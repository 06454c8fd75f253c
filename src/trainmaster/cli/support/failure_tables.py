"""Tables of what failures cost: by reason, by how jobs ended, and by what stands behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainmaster.cli.support.console import Styled, plainly
from trainmaster.cli.support.plain_table import drawn, fit_table, screen_width
from trainmaster.text.formatting import plural

Json = Mapping[str, Any]

REASONS = (
    *("reason", "blame", "trials", "jobs", "users", "p50 min", "p90 min", "p95 min", "time %"),
    *("1 GPU", "2-4", ">4", "GPU hours", "GPU %"),
)
GIVES_WAY = ("users", "p95 min", "time %", "blame", "jobs", "1 GPU", "2-4", ">4", "p90 min")
SOURCES = (
    ("programs", "program"),
    ("users", "user"),
    ("nodes", "node"),
    ("devices", "device"),
    ("inputs", "input"),
)
SHOWN = 5
"""Programs, users, nodes, devices and inputs that are shown, each."""


def show_failures(report: Json) -> Iterator[Styled]:
    """All tables of a report, one text each."""
    if not report["trials"]:
        yield plainly("No run has failed that matches.\n")
    else:
        yield failed_runs(report)
        yield reason_table(report["reasons"])
        yield from filter(None, (_sources(report[key], word) for key, word in SOURCES))
    if report["statuses"]:
        yield status_table(report["statuses"])


def failed_runs(report: Json) -> Styled:
    runs, jobs = plural(report["trials"], "failed run"), plural(report["jobs"], "job")
    return plainly(f"{runs} of {jobs}, {hours(report['gpu_hours'])} GPU hours lost.\n")


def reason_table(reasons: Sequence[Json]) -> Styled:
    cells = [
        (
            *(row["reason"], row["blame"]),
            *(f"{row[key]:,}" for key in ("trials", "jobs", "users")),
            *(f"{row[key]:.2f}" for key in ("p50_min", "p90_min", "p95_min")),
            percent(row["run_share"]),
            *(f"{count:,}" for count in row["sizes"]),
            hours(row["gpu_hours"]),
            percent(row["gpu_share"]),
        )
        for row in reasons
    ]
    return drawn(fit_table(REASONS, cells, screen_width(), GIVES_WAY))


def status_table(statuses: Sequence[Json]) -> Styled:
    cells = [
        (
            *(row["status"], f"{row['jobs']:,}", percent(row["share"], 1)),
            *(hours(row["gpu_hours"]), percent(row["gpu_share"])),
        )
        for row in statuses
    ]
    headings = ("ended as", "jobs", "%", "GPU hours", "GPU %")
    return drawn(fit_table(headings, cells, screen_width()))


def _sources(rows: Sequence[Json], word: str) -> Styled:
    if not rows:
        return Styled("")
    cells = [
        (
            *(row["name"], f"{row['trials']:,}", f"{row['jobs']:,}"),
            *(hours(row["gpu_hours"]), percent(row["gpu_share"]), ", ".join(row["reasons"])),
        )
        for row in rows[:SHOWN]
    ]
    headings = (word, "trials", "jobs", "GPU hours", "GPU %", "reasons")
    more = len(rows) - SHOWN
    rest = f"and {plural(more, f'more {word}')}: --json lists all.\n" if more > 0 else ""
    return Styled(drawn(fit_table(headings, cells, screen_width())) + plainly(rest))


def percent(part: float, digits: int = 2) -> str:
    return f"{100 * part:.{digits}f}"


def hours(value: float) -> str:
    return f"{value:,.2f}"
