"""The report's one HTML page: everything inline, nothing fetched, light and dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from trainmaster.model.units import to_seconds
from trainmaster.report import bar_chart as bars
from trainmaster.report import cdf_chart as distributions
from trainmaster.report import deadlines, palette, tables
from trainmaster.report.axes import Axis
from trainmaster.report.gantt import Gantt, GanttHour
from trainmaster.report.gantt_chart import gantt_chart
from trainmaster.report.headline import headline
from trainmaster.report.report_data import Findings, Followed
from trainmaster.report.series import Contender
from trainmaster.report.style import asset, drawing_styles
from trainmaster.report.timeseries_chart import strips_chart
from trainmaster.text import formatting as wording


@dataclass(frozen=True, slots=True)
class Heading:
    """What the caller says of the comparison."""

    title: str
    trace_name: str


def page(findings: Findings, heading: Heading) -> str:
    """The whole page."""
    contenders = findings.contenders
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(heading.title)}</title>"
        f"<style>{drawing_styles(len(contenders))}{asset('page.css')}{_job_colours()}</style>"
        "</head><body>"
        f"{_header(contenders, heading)}{_navigation(contenders)}"
        f"<main>{_sections(findings)}</main>"
        f"<script>{asset('page.js')}</script></body></html>\n"
    )


def _job_colours() -> str:
    return "".join(f".j{i}{{fill:{colour}}}" for i, colour in enumerate(palette.JOBS))


def _header(contenders: Sequence[Contender], heading: Heading) -> str:
    found = headline(contenders)
    details = "".join(f'<p class="detail">{escape(detail)}</p>' for detail in found.details)
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in _facts(contenders, heading)
    )
    return (
        f'<header><p class="kicker">{escape(heading.title)}</p>'
        f"<h1>{_unbroken(escape(found.sentence))}</h1>{details}"
        f'<dl class="facts">{facts}</dl></header>'
    )


def _unbroken(sentence: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:ms|s|min|h|d|%|times)\b|%)", "&nbsp;", sentence)


def _facts(contenders: Sequence[Contender], heading: Heading) -> list[tuple[str, str]]:
    facts = [("Trace", heading.trace_name)]
    if contenders:
        first = contenders[0].result
        facts.append(("Jobs", wording.count(first.summary.jobs)))
        facts.append(("Cluster", f"{first.cluster} · {wording.plural(first.gpus, 'GPU')}"))
        if first.summary.load is not None:
            facts.append(("Load", f"{first.summary.load:.2f}"))
    facts.append(("Policies", wording.count(len(contenders))))
    return facts


def _navigation(contenders: Sequence[Contender]) -> str:
    buttons = "".join(
        f'<button type="button" class="s{each.slot}" data-slot="s{each.slot}" aria-pressed="false">'
        f'<span class="chip s{each.slot}"></span>{escape(each.label)}</button>'
        for each in contenders
    )
    return f'<nav aria-label="Point at a policy to pick it out, click to keep it">{buttons}</nav>'


def _sections(findings: Findings) -> str:
    contenders = findings.contenders
    return "".join(
        [
            _summary(contenders),
            _section(
                "Job completion time",
                "From submission to finish; each panel has its own scale.",
                bars.jct_bars(contenders),
                is_wide=True,
            ),
            _section(
                "How many jobs are done after how long",
                "Further left is better. A line that ends below 100 % left jobs unfinished.",
                _line_legend(contenders) + distributions.jct_chart(findings.jct),
            ),
            _section(
                "Completion time by job size",
                "Mean over the jobs of each size that ended.",
                _chip_legend(contenders) + bars.size_bars(contenders),
            ),
            _section(
                "Fairness",
                f"{wording.RHO} above 1 (dotted): slower than with an equal share of the cluster.",
                _line_legend(contenders) + distributions.rho_chart(findings.rho),
            ),
            _section(
                "Why jobs waited",
                "All waiting of all jobs, by its cause.",
                _cause_legend() + bars.delay_bars(contenders),
            ),
            _queue_costs(contenders),
            _deadlines(contenders),
            *(_over_time(each, findings.time) for each in findings.followed),
            _gantt_section(findings),
            _notes(contenders),
        ]
    )


def _section(title: str, explained: str, body: str, is_wide: bool = False) -> str:
    css = ' class="wide"' if is_wide else ""
    return f"<section{css}><h2>{escape(title)}</h2><p>{escape(explained)}</p>{body}</section>"


def _summary(contenders: Sequence[Contender]) -> str:
    explained = (
        "The best of each column is marked; click a heading to sort, point at it to read on."
    )
    return _section("Summary", explained, tables.summary_table(contenders), is_wide=True)


def _queue_costs(contenders: Sequence[Contender]) -> str:
    table = tables.queue_costs_table(contenders)
    if not table:
        return ""
    explained = "The price of the GPU time that each queue's jobs held."
    return _section("Cost by queue", explained, table, is_wide=True)


def _deadlines(contenders: Sequence[Contender]) -> str:
    """Only where some job has one."""
    if not deadlines.has_deadlines(contenders):
        return ""
    explained = (
        "Accepted: promised at submission. A policy that does not judge deadlines promises nothing."
    )
    return _section("Deadlines", explained, deadlines.deadline_table(contenders), is_wide=True)


def _line_legend(contenders: Sequence[Contender]) -> str:
    items = []
    for each in contenders:
        dash = palette.policy_dash(each.slot)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        sample = f'<svg viewBox="0 0 26 10"><path d="M0 5H26" class="line"{dashed}/></svg>'
        items.append(f'<li class="s{each.slot}">{sample}{escape(each.label)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _chip_legend(contenders: Sequence[Contender]) -> str:
    items = "".join(
        f'<li><span class="chip s{each.slot}"></span>{escape(each.label)}</li>'
        for each in contenders
    )
    return f'<ul class="legend">{items}</ul>'


def _cause_legend() -> str:
    items = "".join(
        f'<li><span class="chip cause{place}"></span>{cause.title}</li>'
        for place, cause in enumerate(bars.CAUSES)
    )
    return f'<ul class="legend">{items}</ul>'


def _over_time(followed: Followed, time: Axis) -> str:
    quantity = followed.quantity
    explained = quantity.explained
    if any(strip.is_dense for strip in followed.strips):
        explained += " Bold: the mean over short stretches; pale: every swing between."
    chart = strips_chart(quantity, followed.strips, time)
    return _section(quantity.title, explained, chart, is_wide=True)


def _gantt_section(findings: Findings) -> str:
    hour, origin_s = findings.hour, findings.origin_s
    if hour is None:
        return _section("Who held which GPU", "No stay on a GPU was recorded.", "", is_wide=True)
    start_s = to_seconds(hour.window.start_ms) - origin_s
    explained = (
        f"From {wording.clock(start_s)} after the first submission: {hour.window.chosen} "
        f"under {findings.contenders[0].label}, shown for every policy. "
        "One colour per job, the same in every chart; point at a bar to see all stays of its job. "
        "A dark end means that the job left its GPUs there and came back later (suspended, moved "
        "or run again), so the gap until its next bar is time suspended."
    )
    body = "".join(_gantt_figure(chart, hour, origin_s) for chart in hour.charts)
    return _section("Who held which GPU in the busiest hour", explained, body, is_wide=True)


def _gantt_figure(chart: Gantt, hour: GanttHour, origin_s: float) -> str:
    label = f'<span class="chip s{chart.contender.slot}"></span>{escape(chart.contender.label)}'
    said = "".join(f"<p>{escape(cut)}</p>" for cut in _cuts(chart))
    return f"<h3>{label}</h3>{said}{gantt_chart(chart, hour.window, origin_s)}"


def _cuts(chart: Gantt) -> list[str]:
    """What a chart leaves out, in words."""
    cuts = []
    if chart.hidden_nodes:
        shown = len({row.label for row in chart.rows})
        cuts.append(f"Shown: the first {shown} of {shown + chart.hidden_nodes:,} nodes.")
    if chart.hidden_stays:
        stays = len(chart.stays)
        cuts.append(f"Shown: the {stays:,} longest of {stays + chart.hidden_stays:,} stays.")
    return cuts


def _notes(contenders: Sequence[Contender]) -> str:
    body = (
        f"<h3>Options in effect</h3>{tables.options_table(contenders)}"
        f"{tables.warning_list(contenders)}"
    )
    explained = "The same plots lie beside this page as PNG, and their numbers as CSV."
    return _section("Notes", explained, body, is_wide=True)
