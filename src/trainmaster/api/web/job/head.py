"""The top of a job's page: why it waits or what was done to it, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from trainmaster.api.web.parts.plain_text import shown, shown_lines
from trainmaster.daemon.job_rows import JobRow
from trainmaster.text.formatting import ABSENT, duration, plural, significant, utc_time

LAST_OF_STORY = 2
PLACE = "text-xs opacity-70"


def why(explained: Mapping[str, Any], story: Sequence[Mapping[str, Any]]) -> None:
    """In sentences with numbers."""
    ui.label(shown(explained["sentence"], 1_000)).classes("text-base break-words")
    if explained["held_by"]:
        with ui.row().classes("gap-2 items-center text-sm"):
            ui.label("In its way:")
            for holder in explained["held_by"]:
                name = shown(f"{holder['id']} {holder['name']}".strip(), 60)
                ui.link(name, f"/jobs/{holder['id']}")
    said = [explained[part]["sentence"] for part in ("forecast", "end") if explained[part]]
    remarks = [each for each in explained["remarks"] if each not in said]
    for each in (*said, *remarks):
        ui.label(shown(each, 1_000)).classes("text-sm opacity-80 break-words")
    for entry in reversed(story[-LAST_OF_STORY:]):
        at = utc_time(round(entry["at_s"] * 1000))
        ui.label(f"{at}: {shown(entry['sentence'])}").classes(f"{PLACE} break-words")


def failure(job: Mapping[str, Any]) -> None:
    """Why its last run failed, whose fault that is, and what to do."""
    failed = job["failure"]
    lines = job["last_lines"] if failed is None else failed["lines"] or job["last_lines"]
    if failed is None and not lines:
        return
    with ui.card().classes("w-full gap-1 border-l-4 border-red-700").props("flat bordered"):
        if failed is not None:
            ui.label(shown(failed["title"])).classes("text-base font-medium")
            about = [f"Blame: {failed['blame']}"]
            about += [] if failed["rank"] is None else [f"rank {failed['rank']}"]
            about += [] if failed["exit_code"] is None else [f"exit code {failed['exit_code']}"]
            about += [f"signal {failed['signal']}"] if failed["signal"] else []
            about += [shown(failed["path"], 200)] if failed["path"] else []
            ui.label(" \N{MIDDLE DOT} ".join(about)).classes("text-sm opacity-80 break-words")
            for each in (failed["advice"], failed["retry"]):
                if each:
                    ui.label(shown(each, 1_000)).classes("text-sm break-words")
        if lines:
            ui.label(shown_lines("\n".join(shown(each) for each in lines))).classes(
                "font-mono text-xs whitespace-pre-wrap break-all w-full"
            )


def numbers(job: Mapping[str, Any], explained: Mapping[str, Any]) -> None:
    """The same as in `ps`, and when it is expected to start and to end."""
    row = JobRow.from_json(dict(job))
    found = [
        ("GPUs", row.size, ", ".join(shown(each, 40) for each in row.devices[:8])),
        ("Waited", duration(row.queue_s), _again(row)),
        ("Ran", duration(row.run_s), _ran(job)),
        ("GPU-hours", significant(row.gpu_s / 3600), _lost(row)),
    ]
    found += [_start(row, explained), _end(row, explained)]
    if row.progress is not None:
        of = f" of {row.progress.total_steps:,}" if row.progress.total_steps else ""
        loss = "" if row.progress.loss is None else f"loss {significant(row.progress.loss)}"
        found.append(("Step", f"{row.progress.step:,}{of}", loss))
    for name, value, beside in found:
        with ui.column().classes("gap-0 min-w-24"):
            ui.label(name).classes(PLACE)
            number = ui.label(value).classes("text-base font-medium")
            number.props["data-of"] = name
            ui.label(beside).classes(f"{PLACE} max-w-60 break-words")


def _again(row: JobRow) -> str:
    return "" if row.waiting_s is None else f"now for {duration(row.waiting_s)}"


def _ran(job: Mapping[str, Any]) -> str:
    counts = ((job["restarts"], "restart"), (job["preemptions"], "preemption"))
    said = [plural(count, noun) for count, noun in (*counts, (job["migrations"], "move")) if count]
    return ", ".join([f"attempt {job['attempt']}", *said] if job["attempt"] else said)


def _lost(row: JobRow) -> str:
    return f"{duration(row.lost_s)} of work lost" if row.lost_s else ""


def _start(row: JobRow, explained: Mapping[str, Any]) -> tuple[str, str, str]:
    forecast = explained["forecast"]
    if forecast is None:
        started = ABSENT if row.start_s is None else _time(row.start_s)
        return "Started", started, ""
    if forecast["start_s"] is None:
        return "Expected start", "not known", ""
    return "Expected start", _time(forecast["start_s"]), "simulated; no interval is known"


def _end(row: JobRow, explained: Mapping[str, Any]) -> tuple[str, str, str]:
    end = explained["end"]
    if row.finish_s is not None:
        return "Ended", _time(row.finish_s), ""
    if end is None:
        return "Expected end", "not known", "nothing is known of how long it runs"
    if end["end_s"] is None:
        low, high = duration(end["run_low_s"]), duration(end["run_high_s"])
        return "Expected run time", duration(end["run_s"]), f"8 of 10: {low} to {high}"
    within = f"8 of 10: {_time(end['low_s'])} to {_time(end['high_s'])}"
    return (
        "Expected end",
        _time(end["end_s"]),
        within if end["is_calibrated"] else f"{within}, assumed",
    )


def _time(at_s: float) -> str:
    """Of a day that is not today, with the day."""
    day, time = utc_time(round(at_s * 1000)).split(" ", 1)
    return time if day == datetime.now(UTC).date().isoformat() else f"{day} {time}"
