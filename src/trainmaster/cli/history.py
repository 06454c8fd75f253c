"""`trainmaster history`: jobs that have ended, and what they used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, TextIO

from trainmaster.cli.support import format as words
from trainmaster.cli.support.console import (
    Output,
    Styled,
    cell,
    remark,
    show_table,
    write,
    write_json,
    write_styled,
)
from trainmaster.cli.support.failure_tables import show_failures
from trainmaster.cli.support.files import check_writable, write_text
from trainmaster.cli.support.job_table import states_of
from trainmaster.cli.support.moments import moment_of
from trainmaster.cli.support.options import AsJson, OnlyMe, OnlyQueue, OnlyUser, option
from trainmaster.cli.support.plain_table import drawn, fit_table, screen_width
from trainmaster.client.job_lists import list_jobs
from trainmaster.client.manager_api import Json, ManagerApi, Query
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import BadInput
from trainmaster.input_files import STDIO
from trainmaster.model.job_state import ENDED_STATES
from trainmaster.text.formatting import plural, utc_time
from trainmaster.text.spreadsheet import write_csv

COLUMNS = (
    *("id", "name", "user", "queue", "state", "exit_code", "gpus", "priority"),
    *("submit_s", "start_s", "finish_s", "queue_s", "run_s", "prerun_s", "gpu_s"),
    *("attempt", "restarts", "preemptions", "array", "array_index"),
)
REASON_COLUMNS = (
    *("reason", "blame", "trials", "jobs", "users", "p50_min", "p90_min", "p95_min", "run_share"),
    *("trials_1", "trials_2_4", "trials_more", "gpu_hours", "gpu_share"),
)
UNKNOWN_STATE = "No job ends as `{state}`: there are {known}; `ps` lists live jobs."
HEADINGS = (
    *("id", "name", "user", "queue", "state", "code", "gpus", "waited", "pre-run", "run"),
    *("gpu hours", "preempted", "ended"),
)
GIVES_WAY = ("preempted", "queue", "user", "waited", "code", "pre-run", "run")
SINCE = "Only jobs submitted since this date (2026-11-15) or this long ago (7d)."
USAGE_COLUMNS = (
    *("user", "queue", "job", "gpu_type", "jobs", "gpu_hours", "lost_gpu_hours", "cost"),
    *("currency", "unpriced_gpu_hours"),
)
NEW_NAMES = ("outcome", "begin", "lost_to")
USAGE_NAMES = ("job", "user", "queue", "gpu_type", *NEW_NAMES)
TITLES = {"begin": "from (UTC)", "lost_to": "lost to"}
MEMORY_HEADINGS = (
    *("GPU memory, judging by", "estimates", "within range", "not above its top", "median error"),
)
SHOWN_HOURS = 0.005
"""Less is 0.00 in the tables."""
USAGE = "Show GPU-hours and cost instead: by user, or as --by says."
UNTIL = "With --usage: only what was used until this date, or until this long ago."
BY = (
    "With --usage: a row for each user, queue, job or GPU type, for each state that jobs ended in, for each"
    " day or hour of UTC, or for what work was lost to: preemption or a reason of failures."
)
FAILURES = "Show what failed runs cost instead: by reason, program, user, node, device and input."
CALIBRATION = "Show instead how good forecasts of run time and of GPU memory were, by their basis."
CSV = "Write CSV with a header to this file; - is standard output."
STATES = "Only jobs with these ends: succeeded, failed, timed_out, cancelled."


def history(
    client: ManagerApi,
    since: Annotated[str | None, option("--since WHEN", SINCE)] = None,
    user: OnlyUser = None,
    me: OnlyMe = False,
    queue: OnlyQueue = None,
    state: Annotated[str | None, option("--state STATE,…", STATES)] = None,
    limit: Annotated[int | None, option("--limit N", "Show at most the N newest.", min=1)] = None,
    failures: Annotated[bool, option("--failures", FAILURES)] = False,
    usage: Annotated[bool, option("--usage", USAGE)] = False,
    calibration: Annotated[bool, option("--calibration", CALIBRATION)] = False,
    by: Annotated[
        Literal["user", "queue", "job", "gpu-type", "outcome", "day", "hour", "lost-to"] | None,
        option("--by user|queue|job|gpu-type|outcome|day|hour|lost-to", BY),
    ] = None,
    until: Annotated[str | None, option("--until WHEN", UNTIL)] = None,
    as_json: AsJson = False,
    csv_file: Annotated[Path | None, option("--csv FILE", CSV)] = None,
) -> None:
    """List jobs that have ended, newest first: how each ended, how long it ran and what it used.

    Examples:
        trainmaster history
        trainmaster history --since 7d --user alice
        trainmaster history --state failed --json
        trainmaster history --since 2026-11-01 --csv november.csv
        trainmaster history --failures --since 30d
        trainmaster history --calibration
        trainmaster history --usage --since 30d
        trainmaster history --usage --by queue --since 2026-11-01 --until 2026-12-01 --csv bill.csv
        trainmaster history --usage --by lost-to --since 7d
    """
    if as_json and csv_file is not None:
        raise BadInput("--json and --csv exclude each other: choose one.")
    if usage and (failures or state is not None or limit is not None):
        raise BadInput("--usage sums up all jobs: leave --failures, --state and --limit out.")
    if not usage and (by is not None or until is not None):
        raise BadInput("--by and --until are for --usage.")
    if failures and (state is not None or limit is not None):
        raise BadInput("--failures counts the runs of all jobs: leave --state and --limit out.")
    if calibration:
        if usage or failures or csv_file or any((since, user, me, queue, state, limit)):
            raise BadInput("--calibration is of all jobs: give it alone, or with --json.")
        _show_calibration(client.get("/calibration"), as_json=as_json)
        return
    check_writable(csv_file, "--csv")
    states = states_of(state or ",".join(ENDED_STATES), ENDED_STATES, UNKNOWN_STATE)
    query: Query = {
        "queue": queue,
        "since": None if since is None else f"{moment_of(since, '--since'):.3f}",
        "user": client.my_name() if me else user or client.only_own(),
    }
    if usage:
        query = {
            **query,
            "by": by or "user",
            "until": None if until is None else f"{moment_of(until, '--until'):.3f}",
        }
        _show_usage(client.get("/usage", query), as_json=as_json, csv_file=csv_file)
        return
    if failures:
        _show_failures(client.get("/failures", query), as_json=as_json, csv_file=csv_file)
        return
    query = {**query, "state": states}
    found = list(list_jobs(client, query, limit))
    if as_json:
        write_json({"jobs": found})
    elif csv_file is not None:
        _write_csv(csv_file, COLUMNS, (_with_prerun(row) for row in found))
    else:
        _show(found)


def _show_calibration(report: Json, *, as_json: bool) -> None:
    if as_json:
        write_json(report)
        return
    if not report["rows"]:
        write("No forecast of run time has come true yet.\n")
    else:
        cells = [
            (
                row["words"],
                str(row["forecasts"]),
                words.percent(row["within"] / row["forecasts"]),
                words.percent(row["median_error"]),
            )
            for row in report["rows"]
        ]
        show_table(("judging by", "forecasts", "within 80 % range", "median error"), cells)
    if report.get("memory"):  # an earlier manager does not say
        write("\n")
        show_table(MEMORY_HEADINGS, [_memory_cells(row) for row in report["memory"]])


def _memory_cells(row: Json) -> list[str]:
    parts = (words.percent(row[count] / row["estimates"]) for count in ("within", "covered"))
    error = words.percent(row["median_error"])
    return [row["words"], str(row["estimates"]), *parts, error]


def _with_prerun(row: Json) -> Json:
    """Its run time is without that of its pre-run."""
    return row | {"prerun_s": (row["prerun"] or {"run_s": None})["run_s"]}


def _write_csv(file: Path, columns: Sequence[str], rows: Iterable[Json]) -> None:
    """A header and a line for each row, to a file or to standard output."""

    def write_rows(out: TextIO | Output) -> None:
        write_csv(out, columns, rows)

    if str(file) == STDIO:
        write_rows(Output())
    else:
        write_text(file, write_rows)


def _show_usage(report: Json, *, as_json: bool, csv_file: Path | None) -> None:
    rows = report["rows"]
    if as_json:
        write_json(report)
    elif csv_file is not None:
        priced = [_with_begin(row) | {"currency": report["currency"]} for row in rows]
        others = [name for name in NEW_NAMES if any(row.get(name) is not None for row in priced)]
        _write_csv(csv_file, (*USAGE_COLUMNS, *others), priced)
    elif not rows:
        write("No GPU time was used that matches.\n")
    else:
        rows = [_with_begin(row) for row in rows]
        named = [key for key in USAGE_NAMES if rows[0].get(key) is not None]
        total = dict.fromkeys(named) | report["total"] | {named[0]: "total"}
        is_priced = any(row["cost"] or not row["unpriced_gpu_hours"] for row in rows)
        cost = f"cost {report['currency']}".strip()
        titles = [TITLES.get(name, name) for name in named]
        headings = (*titles, "jobs", "gpu hours", "of which lost", *([cost] if is_priced else []))
        show_table(headings, [_usage_cells(row, named, is_priced) for row in (*rows, total)])
        left = report["total"]["unpriced_gpu_hours"]
        if is_priced and left >= SHOWN_HOURS:
            remark("Note", [f"{left:.2f} GPU-hours had no price, and are not in the cost"])


def _with_begin(row: Json) -> Json:
    begin_s = row.get("begin_s")  # an earlier manager does not say
    return row | {"begin": None if begin_s is None else utc_time(round(begin_s * 1000))}


def _usage_cells(row: Json, named: list[str], is_priced: bool) -> list[str]:
    cells = [*(cell(row[key]) for key in named), str(row["jobs"])]
    cells += [f"{row['gpu_hours']:.2f}", f"{row['lost_gpu_hours']:.2f}"]
    return [*cells, f"{row['cost']:.2f}"] if is_priced else cells


def _show_failures(report: Json, *, as_json: bool, csv_file: Path | None) -> None:
    if as_json:
        write_json(report)
    elif csv_file is not None:
        sizes = ("trials_1", "trials_2_4", "trials_more")
        rows = (row | dict(zip(sizes, row["sizes"], strict=True)) for row in report["reasons"])
        _write_csv(csv_file, REASON_COLUMNS, rows)
    else:
        write_styled(Styled("\n".join(show_failures(report))))


def _show(found: list[Json]) -> None:
    if not found:
        write("No job has ended that matches.\n")
        return
    rows = [JobRow.from_json(each) for each in found]
    cells = [
        (
            *(row.id, row.name, row.user, row.queue),
            words.state(row),
            *map(cell, (row.exit_code, row.gpus)),
            words.length_cell(row.queue_s),
            words.length_cell(row.prerun.run_s if row.prerun is not None else None),
            words.length_cell(row.run_s),
            f"{row.gpu_s / 3600:.2f}",
            str(row.preemptions),
            words.at(row.finish_s),
        )
        for row in rows
    ]
    shown = [n for n, name in enumerate(HEADINGS) if name != "pre-run" or _has_prerun(rows)]
    headings, table = [HEADINGS[n] for n in shown], [[line[n] for n in shown] for line in cells]
    write_styled(drawn(fit_table(headings, table, screen_width(), GIVES_WAY)))
    hours = sum(row.gpu_s for row in rows) / 3600
    write(f"{plural(len(rows), 'job')}, {hours:.2f} GPU hours.\n")


def _has_prerun(rows: Sequence[JobRow]) -> bool:
    """Most jobs need none."""
    return any(row.prerun is not None for row in rows)
