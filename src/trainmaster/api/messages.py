"""Sentences about a job: why it waits, how it ended, what it does now."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainmaster.daemon.service_api import JobStatus
from trainmaster.model.job_state import ENDED_STATES, WAITING_STATES, JobState
from trainmaster.text.formatting import as_sentence, when
from trainmaster.text.reasons import reason_sentence

HELD = "Held"
"""The code for a job that its owner, another job or its array's limit holds, not the policy."""


def waiting_sentence(status: JobStatus, now: int) -> tuple[str, str] | None:
    """Code and sentence; None for a job that does not wait, or whose reason is not known yet."""
    if status.held_for:
        return HELD, _capitalised(status.held_for)
    if status.reason is not None and status.row.state not in ENDED_STATES:
        return status.reason.why.value, reason_sentence(status.reason, now)
    return None


def ended_because(status: JobStatus) -> str | None:
    """Why a job failed or was cancelled, as a sentence; None where it succeeded or the cause is unknown."""
    row = status.row
    if row.state not in (JobState.FAILED, JobState.CANCELLED):
        return None
    failure = status.history.failure
    if not failure.get("why"):
        return None
    if row.state == JobState.CANCELLED and "code" in failure:
        return None  # an earlier attempt failed so; it is not why the job was cancelled
    return _capitalised(str(failure["why"]))


def status_sentence(status: JobStatus, now: int) -> tuple[str | None, str]:
    """Code and sentence for a job in any state: what it waits for, or what it does instead."""
    waits = waiting_sentence(status, now)
    if waits is not None:
        return waits
    row = status.row
    if row.state in ENDED_STATES:
        code = f" with exit code {row.exit_code}" if row.exit_code is not None else ""
        ended = f", {when(row.finish_ms, now)}" if row.finish_ms is not None else ""
        how = "was cancelled" if row.state == JobState.CANCELLED else row.state
        return None, f"It {how}{code}{ended}. {ended_because(status) or ''}".rstrip()
    if row.state in WAITING_STATES:
        return None, "It waits for the next scheduling pass."
    place = f" on {', '.join(status.devices)}" if status.devices else ""
    return None, f"It is {row.state}{place}."


def ran_in(stored: Mapping[str, object]) -> str | None:
    """The folder of its processes, by what is stored of its submission."""
    kept = stored.get("kept")
    recipe = kept.get("recipe") if isinstance(kept, Mapping) else None
    folder = recipe.get("workdir") if isinstance(recipe, Mapping) else None
    return folder if isinstance(folder, str) else None


def details(text: str) -> dict[str, object]:
    """The JSON object in a text of the store; empty if the text is not one."""
    try:
        found = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _capitalised(text: str) -> str:
    return as_sentence(text[:1].upper() + text[1:])
