"""From results to the report's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainmaster.model.result import Result
from trainmaster.report import cdf_chart as distributions
from trainmaster.report import csvs
from trainmaster.report import png as images
from trainmaster.report.atomic_write import Document, publish
from trainmaster.report.gantt import GanttHour
from trainmaster.report.page import Heading, page
from trainmaster.report.report_data import Findings, find

PAGE = "index.html"


def write_report(
    results: Sequence[Result], directory: Path, *, title: str, trace_name: str
) -> Path:
    """Write the page, its plots as PNG and its numbers as CSV; the page's path comes back.

    All or nothing: when the directory cannot be written, ReportError says what to do and nothing
    is left behind.
    """
    publish(documents(find(results), Heading(title, trace_name)), directory)
    return directory / PAGE


def documents(findings: Findings, heading: Heading) -> Iterator[Document]:
    """Every file of the report, one at a time, the page last."""
    yield _text("summary.csv", csvs.summary_csv(findings.contenders))
    for each in findings.contenders:
        yield _text(f"jobs-{each.slug}.csv", csvs.jobs_csv(each.result))
    yield _text("queues.csv", csvs.queues_csv(findings.contenders))
    yield from _distributions(findings)
    yield from _bars(findings)
    yield from _curves(findings)
    if findings.hour is not None:
        yield from _gantts(findings.hour)
    yield _text(PAGE, page(findings, heading))


def _distributions(findings: Findings) -> Iterator[Document]:
    jct, rho = findings.jct, findings.rho
    jct_axis = distributions.jct_axis(jct) if jct else None
    rho_axis = distributions.rho_axis(rho) if rho else None
    jct_title = "How many jobs are done after how long"
    yield _text("jct_cdf.csv", csvs.distribution_csv(jct, "jct_s"))
    yield Document("jct_cdf.png", images.distribution_png(jct, jct_axis, jct_title))
    yield _text("rho_cdf.csv", csvs.distribution_csv(rho, "rho"))
    yield Document("rho_cdf.png", images.distribution_png(rho, rho_axis, "Fairness"))


def _bars(findings: Findings) -> Iterator[Document]:
    contenders = findings.contenders
    yield Document("jct_bars.png", images.jct_bars_png(contenders))
    yield _text("jct_by_size.csv", csvs.sizes_csv(contenders))
    yield Document("jct_by_size.png", images.sizes_png(contenders))
    yield _text("delays.csv", csvs.delays_csv(contenders))
    yield Document("delays.png", images.delays_png(contenders))


def _curves(findings: Findings) -> Iterator[Document]:
    for each in findings.followed:
        slug = each.quantity.slug
        yield _text(f"{slug}.csv", csvs.curve_csv(each.quantity, findings.contenders))
        yield Document(f"{slug}.png", images.strips_png(each.quantity, each.strips, findings.time))


def _gantts(hour: GanttHour) -> Iterator[Document]:
    for chart in hour.charts:
        slug, stints = chart.contender.slug, chart.contender.result.stints
        yield _text(f"gantt-{slug}.csv", csvs.stints_csv(stints, hour.window))
        yield Document(f"gantt-{slug}.png", images.gantt_png(chart, hour.window))


def _text(name: str, content: str) -> Document:
    return Document(name, content.encode("utf-8", errors="backslashreplace"))
