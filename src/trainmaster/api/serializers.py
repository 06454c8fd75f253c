"""Sheets as plain dicts, ready for JSON: seconds and GPUs for people, absent = null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api import messages as wording
from trainmaster.daemon.service_api import (
    Change,
    Forecast,
    JobStatus,
    NodeStatus,
    PolicyStatus,
    Progress,
    QueueStatus,
)
from trainmaster.model.queue import Queue
from trainmaster.model.units import WHOLE
from trainmaster.store.rows import JobRow, ProgressRow, StoryRow
from trainmaster.text.messages import forecast_sentence, story_sentence

Row = dict[str, Any]
DEFAULT_QUEUE = "default"


def seconds(ms: int | None) -> float | None:
    """Exact to the millisecond: dividing by 1000 gives the nearest float, which prints 3 decimals."""
    return None if ms is None else ms / 1000


def amount(thousandths: int) -> float | int:
    """GPUs: a whole number where it is one."""
    whole, rest = divmod(thousandths, WHOLE)
    return whole if rest == 0 else thousandths / WHOLE


def finite(value: float | None) -> float | None:
    """JSON knows no NaN and no infinity: a loss that went wild is no number."""
    return value if value is not None and math.isfinite(value) else None


def _whose(row: JobRow) -> Row:
    """Which job this is, whose, and how it stands: with this every row of a job begins."""
    return {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "queue": row.queue,
        "state": row.state,
    }


def job_row(sheet: JobStatus, now: int) -> Row:
    """A job as lists show it."""
    row = sheet.row
    why = wording.why_waiting(sheet, now)
    first_start = row.start_ms
    waited_until = first_start if first_start is not None else row.finish_ms
    return {
        **_whose(row),
        "reason": None if why is None else {"code": why[0], "sentence": why[1]},
        "gpus": amount(row.gpus),
        "nodes": list(sheet.nodes),
        "devices": list(sheet.devices),
        "submit_s": row.submit_ms / 1000,
        "start_s": seconds(first_start),
        "finish_s": seconds(row.finish_ms),
        "queue_s": max(0, (now if waited_until is None else waited_until) - row.submit_ms) / 1000,
        "run_s": sheet.run_ms / 1000,
        "gpu_s": round(sheet.gpu_ms / WHOLE) / 1000,
        "priority": sheet.priority,
        "attempt": sheet.attempt,
        "restarts": sheet.restarts,
        "preemptions": sheet.preemptions,
        "exit_code": row.exit_code,
        "ended_because": wording.ended_because(sheet),
        "array": row.array,
        "array_index": row.array_index,
        "progress": progress(sheet.progress),
    }


def progress(said: Progress | None) -> Row | None:
    if said is None:
        return None
    return {
        "step": said.step,
        "total_steps": said.total_steps,
        "loss": finite(said.loss),
        "samples_per_s": finite(said.samples_per_s),
        "at_s": said.at_ms / 1000,
    }


def job_file(spec_json: str) -> object:
    """The job file as submitted, without what the daemon made of it."""
    kept = wording.details(spec_json)
    return kept.get("spec", kept)


def job_sheet(sheet: JobStatus, now: int) -> Row:
    """A job with all that is known of it."""
    return {
        **job_row(sheet, now),
        "failures": sheet.failures,
        "retries": sheet.retries,
        "migrations": sheet.migrations,
        "pids": list(sheet.pids),
        "saved_at_s": seconds(sheet.saved_at_ms),
        "remarks": list(sheet.remarks),
        "spec": job_file(sheet.row.spec_json),
        "record": wording.details(sheet.row.record_json),
    }


def forecast(said: Forecast, now: int) -> Row:
    return {
        "start_s": seconds(said.start_ms),
        "basis": said.basis,
        "sentence": forecast_sentence(said.start_ms, said.basis, now),
    }


def explanation(sheet: JobStatus, said: Forecast | None, holders: list[Row], now: int) -> Row:
    """Why a job waits, with the numbers, who is in the way, and when it may start."""
    code, sentence = wording.standing(sheet, now)
    reason = sheet.reason
    numbers = None
    if reason is not None and not sheet.held_for:
        numbers = {
            "need": amount(reason.need),
            "free": amount(reason.free),
            "largest_block": amount(reason.largest_block),
            "until_s": seconds(reason.until_ms),
        }
    return {
        "id": sheet.row.id,
        "name": sheet.row.name,
        "state": sheet.row.state,
        "code": code,
        "sentence": sentence,
        "numbers": numbers,
        "held_by": holders,
        "forecast": None if said is None else forecast(said, now),
        "remarks": list(sheet.remarks),
    }


def holder(sheet: JobStatus) -> Row:
    """A job that is in the way of another."""
    row = sheet.row
    return {
        **_whose(row),
        "gpus": amount(row.gpus),
        "devices": list(sheet.devices),
    }


def told(row: StoryRow) -> Row:
    detail = wording.details(row.detail_json)
    return {
        "at_s": row.at_ms / 1000,
        "step": row.step,
        "what": row.what,
        "sentence": story_sentence(row.what, detail),
        "detail": detail,
    }


def reported(row: ProgressRow) -> Row:
    return {
        "at_s": row.at_ms / 1000,
        "step": row.step,
        "loss": finite(row.loss),
        "samples_per_s": finite(row.samples_per_s),
    }


def node(sheet: NodeStatus) -> Row:
    return {
        "name": sheet.name,
        "type": sheet.device_type,
        "state": sheet.state,
        "devices": [
            {"name": name, "jobs": list(jobs)}
            for name, jobs in zip(sheet.devices, sheet.jobs, strict=True)
        ],
        "frozen": list(sheet.frozen),
        "cpus": amount(sheet.cpus),
        "memory_bytes": sheet.memory,
        "remarks": list(sheet.remarks),
    }


def with_default(sheets: Sequence[QueueStatus]) -> list[QueueStatus]:
    """All queues that a job may name: `default` is always there, even while nobody uses it."""
    if any(each.queue.name == DEFAULT_QUEUE for each in sheets):
        return list(sheets)
    return [QueueStatus(Queue(DEFAULT_QUEUE), False, 0, 0, 0, 0), *sheets]


def queue(sheet: QueueStatus) -> Row:
    stated = sheet.queue
    return {
        "name": stated.name,
        "parent": stated.parent,
        "weight": stated.weight,
        "guaranteed_gpus": amount(stated.guaranteed),
        "maximum_gpus": None if stated.maximum is None else amount(stated.maximum),
        "is_defined": sheet.is_defined,
        "running": sheet.running,
        "waiting": sheet.waiting,
        "held": sheet.held,
        "gpus": amount(sheet.gpus),
    }


def policy(sheet: PolicyStatus) -> Row:
    return {
        "name": sheet.name,
        "options": {name: plain(value) for name, value in sheet.options.items()},
        "since_s": sheet.since_ms / 1000,
        "trouble": sheet.trouble or None,
    }


def change(seen: Change) -> Row:
    return {
        "seq": seen.seq,
        "at_s": seen.at_ms / 1000,
        "what": seen.what,
        "job": seen.job,
        "detail": plain(seen.detail),
    }


def plain(value: object) -> Any:
    """Anything as JSON can say it: what it has no word for becomes a text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value)
