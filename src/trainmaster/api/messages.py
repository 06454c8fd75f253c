"""Sentences about a job as the manager keeps it: why it waits, how it ended, what it does now."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainmaster.daemon.service_api import JobStatus
from trainmaster.text.formatting import as_sentence, when
from trainmaster.text.reasons import reason_sentence

ENDS = frozenset({"succeeded", "failed", "cancelled"})
WAITS = frozenset({"pending", "held", "suspended"})
HELD = "Held"
"""The code of what keeps a job back that no policy decided: its owner, another job, its array's limit."""


def why_waiting(sheet: JobStatus, now: int) -> tuple[str, str] | None:
    """Code and sentence; None for a job that does not wait, or of which nothing was said yet."""
    if sheet.held_for:
        return HELD, _capitalised(sheet.held_for)
    if sheet.reason is not None and sheet.row.state not in ENDS:
        return sheet.reason.why.value, reason_sentence(sheet.reason, now)
    return None


def ended_because(sheet: JobStatus) -> str | None:
    """Why a job failed or was cancelled, as a sentence; None where it succeeded or nobody knows."""
    row = sheet.row
    if row.state not in ("failed", "cancelled"):
        return None
    failure = details(row.record_json).get("failure")
    if not isinstance(failure, Mapping) or not failure.get("why"):
        return None
    if row.state == "cancelled" and "code" in failure:
        return None  # an earlier attempt failed so; it is not why the job was cancelled
    return _capitalised(str(failure["why"]))


def standing(sheet: JobStatus, now: int) -> tuple[str | None, str]:
    """Code and sentence for a job in any state: what it waits for, or what it does instead."""
    waits = why_waiting(sheet, now)
    if waits is not None:
        return waits
    row = sheet.row
    if row.state in ENDS:
        code = f" with exit code {row.exit_code}" if row.exit_code is not None else ""
        ended = f", {when(row.finish_ms, now)}" if row.finish_ms is not None else ""
        how = "was cancelled" if row.state == "cancelled" else row.state
        return None, f"It {how}{code}{ended}. {ended_because(sheet) or ''}".rstrip()
    if row.state in WAITS:
        return None, "It waits to be looked at: the next pass says more."
    place = f" on {', '.join(sheet.devices)}" if sheet.devices else ""
    return None, f"It is {row.state}{place}."


def details(text: str) -> dict[str, object]:
    """The object in a text of the store; empty where it is none."""
    try:
        found = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _capitalised(text: str) -> str:
    return as_sentence(text[:1].upper() + text[1:])
