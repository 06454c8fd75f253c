"""The summary table and the tables of options, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape

from trainmaster.model.result import Summary
from trainmaster.report.headline import advantage_over_first
from trainmaster.report.series import Contender
from trainmaster.text import formatting as wording

MOST_WARNINGS = 20


class Better(Enum):
    """Which end of a column is the good one."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Column:
    """A number of the summary: where it is, how it is worded, and which end is good."""

    title: str
    explained: str
    value: Callable[[Summary], float | int | None]
    worded: Callable[[float | None], str]
    better: Better | None = Better.LOWER
    is_optional: bool = False
    """Left out when it is nought or absent for every policy."""


@dataclass(frozen=True, slots=True)
class Section:
    """Columns under a common heading."""

    title: str
    columns: tuple[Column, ...]


def _times(value: float | None) -> str:
    return wording.ABSENT if value is None else f"{wording.significant(value)}{wording.TIMES}"


def _whole(value: float | None) -> str:
    return wording.count(None if value is None else int(value))


SECTIONS = (
    Section(
        "Jobs",
        (
            Column("done", "Jobs that ended", lambda s: s.finished, _whole, Better.HIGHER),
            Column("left", "Unfinished jobs", lambda s: s.unfinished, _whole, is_optional=True),
            Column("refused", "Can never fit", lambda s: s.rejected, _whole, is_optional=True),
        ),
    ),
    Section(
        "Completion time",
        (
            Column("mean", "Mean JCT", lambda s: s.avg_jct_s, wording.duration),
            Column(
                "at least",
                "Mean JCT with unfinished jobs counted up to the horizon",
                lambda s: s.avg_jct_lower_bound_s,
                wording.duration,
                better=None,
                is_optional=True,
            ),
            Column("p50", "Median JCT", lambda s: s.p50_jct_s, wording.duration),
            Column("p95", "95th percentile of JCT", lambda s: s.p95_jct_s, wording.duration),
            Column("p99", "99th percentile of JCT", lambda s: s.p99_jct_s, wording.duration),
        ),
    ),
    Section(
        "Waiting",
        (
            Column(
                "queue",
                "Mean wait before the first start",
                lambda s: s.avg_queue_s,
                wording.duration,
            ),
            Column(
                "excess",
                "Mean JCT beyond the service alone",
                lambda s: s.avg_excess_s,
                wording.duration,
            ),
        ),
    ),
    Section(
        "Cluster",
        (
            Column(
                "makespan",
                "First submission to last finish",
                lambda s: s.makespan_s,
                wording.duration,
            ),
            Column(
                "used",
                "GPU time making progress",
                lambda s: s.gpu_util,
                wording.share,
                Better.HIGHER,
            ),
            Column(
                "GPU-h lost",
                "Switching, lost work, failed runs",
                lambda s: s.gpu_hours_wasted,
                wording.decimal,
            ),
        ),
    ),
    Section(
        "Cost",
        (
            Column(
                "jobs",
                "Price of the GPU time that jobs held, by share",
                lambda s: s.cost,
                wording.decimal,
                is_optional=True,
            ),
            Column(
                "lost",
                "Price of switching, lost work, failed runs",
                lambda s: s.cost_wasted,
                wording.decimal,
                is_optional=True,
            ),
            Column(
                "idle",
                "Price of GPUs that no job held, over the makespan",
                lambda s: s.cost_idle,
                wording.decimal,
                is_optional=True,
            ),
        ),
    ),
    Section(
        "Disruption",
        (
            Column("preempted", "Suspensions, migrations apart", lambda s: s.preemptions, _whole),
            Column("moved", "Migrations", lambda s: s.migrations, _whole),
        ),
    ),
    Section(
        "Fairness",
        (
            Column(
                f"p99 {wording.RHO}",
                "99th percentile of JCT over that of a fair share",
                lambda s: s.p99_rho,
                wording.decimal,
            ),
            Column(
                f"max {wording.RHO}",
                "Highest JCT over that of a fair share",
                lambda s: s.max_rho,
                wording.decimal,
            ),
            Column(
                "Jain",
                "Jain's index over the queues",
                lambda s: s.jain_index,
                wording.decimal,
                Better.HIGHER,
            ),
        ),
    ),
)


def summary_table(contenders: Sequence[Contender]) -> str:
    """A row per policy, the best of each column marked, sortable by a click on a heading."""
    shown = [_shown(section, contenders) for section in SECTIONS]
    sections = [section for section in shown if section.columns]
    groups = "".join(_group_heading(section, contenders) for section in sections)
    heads = [_heading("policy", "")]
    for section in sections:
        heads.extend(_heading(column.title, column.explained) for column in section.columns)
        if _adds_factor(section, contenders):
            heads.append(_heading("gain", f"Mean JCT of {contenders[0].label} over this one's"))
    rows = "".join(_row(each, sections, contenders) for each in contenders)
    return (
        '<div class="scroll"><table class="summary sortable"><thead>'
        f"<tr><td></td>{groups}</tr><tr>{''.join(heads)}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _shown(section: Section, contenders: Sequence[Contender]) -> Section:
    columns = tuple(
        column
        for column in section.columns
        if not column.is_optional or any(column.value(each.result.summary) for each in contenders)
    )
    return Section(section.title, columns)


def _group_heading(section: Section, contenders: Sequence[Contender]) -> str:
    width = len(section.columns) + _adds_factor(section, contenders)
    return f'<th colspan="{width}" scope="colgroup">{section.title}</th>'


def _adds_factor(section: Section, contenders: Sequence[Contender]) -> bool:
    return section.title == "Completion time" and len(contenders) > 1


def _heading(title: str, explained: str) -> str:
    tip = f' title="{escape(explained)}"' if explained else ""
    return f'<th scope="col"><button type="button"{tip}>{escape(title)}</button></th>'


def _row(contender: Contender, sections: Sequence[Section], all_: Sequence[Contender]) -> str:
    chip = f'<span class="chip s{contender.slot}"></span>'
    cells = [f'<th scope="row" data-value="{contender.slot}">{chip}{escape(contender.label)}</th>']
    for section in sections:
        for place, column in enumerate(section.columns):
            value = column.value(contender.result.summary)
            marks = "first " if place == 0 else ""
            words = column.worded(value)
            marks += "best" if words == best_words(column, all_) else ""
            cells.append(_cell(value, words, marks.strip()))
        if _adds_factor(section, all_):
            factor = advantage_over_first(contender, all_[0])
            cells.append(_cell(factor, _times(factor), ""))
    return f'<tr class="series s{contender.slot}">{"".join(cells)}</tr>'


def _cell(value: float | None, words: str, css: str) -> str:
    key = "" if value is None else f"{value!r}"
    mark = f' class="{css}"' if css else ""
    return f'<td{mark} data-value="{key}">{escape(words)}</td>'


def best_words(column: Column, contenders: Sequence[Contender]) -> str | None:
    """The column's best value as it is shown, so that what looks equal is marked alike.

    None when there is nothing to choose between.
    """
    values = [column.value(each.result.summary) for each in contenders]
    known = [value for value in values if value is not None]
    if not known or column.better is None or len({column.worded(value) for value in values}) == 1:
        return None
    return column.worded(min(known) if column.better is Better.LOWER else max(known))


def queue_costs_table(contenders: Sequence[Contender]) -> str:
    """What each queue's jobs cost under each policy; nothing where GPUs have no price."""
    queues = list(dict.fromkeys(q.queue for each in contenders for q in each.result.queues))
    found = {
        (q.queue, each.slot): q.cost
        for each in contenders
        for q in each.result.queues
        if q.cost is not None
    }
    if not found or len(queues) < 2:
        return ""
    heads = _heading("queue", "") + "".join(_heading(each.label, "") for each in contenders)
    rows = []
    for place, queue in enumerate(queues):
        costs = [found.get((queue, each.slot)) for each in contenders]
        cells = "".join(_cell(cost, wording.decimal(cost), "") for cost in costs)
        head = f'<th scope="row" data-value="{place}">{escape(queue)}</th>'
        rows.append(f"<tr>{head}{cells}</tr>")
    return (
        '<div class="scroll"><table class="summary sortable"><thead>'
        f"<tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def options_table(contenders: Sequence[Contender]) -> str:
    """Every policy's effective options."""
    rows = []
    for each in contenders:
        options = each.result.options.items()
        said = "".join(f"<code>{escape(str(k))}={escape(_option(v))}</code> " for k, v in options)
        rows.append(f'<tr><th scope="row">{escape(each.label)}</th><td>{said or "none"}</td></tr>')
    return f'<table class="options"><tbody>{"".join(rows)}</tbody></table>'


def _option(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return "none" if value is None else str(value)


def warning_list(contenders: Sequence[Contender]) -> str:
    """What the simulator had to say, each thing once; long lists are cut, and say so."""
    warnings = list(dict.fromkeys(w for each in contenders for w in each.result.warnings))
    if not warnings:
        return ""
    items = [f"<li>{escape(warning)}</li>" for warning in warnings[:MOST_WARNINGS]]
    if len(warnings) > MOST_WARNINGS:
        items.append(f"<li>and {len(warnings) - MOST_WARNINGS:,} more</li>")
    return f"<h3>Warnings</h3><ul>{''.join(items)}</ul>"
