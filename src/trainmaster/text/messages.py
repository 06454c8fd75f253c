"""What happened to a job and what is expected of it, in one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.model.units import DAY, SECOND
from trainmaster.text.formatting import length, utc_time, when


def forecast_sentence(start_ms: int | None, basis: str, now: int) -> str:
    """When a job is expected to start, and what the forecast assumes."""
    basis = basis.rstrip(".")
    if start_ms is None:
        return f"No start can be predicted: {basis or 'nothing is known of the other jobs'}."
    because = f" ({basis})" if basis else ""
    return f"It is expected to start {when(start_ms, now)}{because}."


def story_sentence(what: str, detail: Mapping[str, object]) -> str:
    """What happened to a job, with the details that matter to people."""
    said = detail.get("sentence") or detail.get("why")
    worded = (
        DETAILS.get(key, _named)(key, value)
        for key, value in detail.items()
        if key not in ("sentence", "why", "tail") and value not in (None, "", [], {})
    )
    rest = [each for each in worded if each]
    start = f"{what[:1].upper()}{what[1:]}"
    listed = f" ({', '.join(rest)})" if rest else ""
    return f"{start}{listed}: {said}" if said else f"{start}{listed}"


def _named(key: str, value: object) -> str:
    return f"{key.removesuffix('_ms').replace('_', ' ')} {_detail(key, value)}"


def _seconds(value: object) -> int:
    return round(value * SECOND) if isinstance(value, int | float) else 0


def _work_lost(_key: str, value: object) -> str:
    lost = _seconds(value)
    return f"{length(lost)} of work lost" if lost else ""


def _processes(_key: str, value: object) -> str:
    many = isinstance(value, list) and len(value) > 1
    return f"process{'es' if many else ''} {_detail('', value)}"


DETAILS: Mapping[str, Callable[[str, object], str]] = {
    "changed": lambda _, value: f"changed since submission: {_detail('', value)}",
    "at_step": lambda _, value: f"at step {value}",
    "code": lambda _, value: f"exit code {value}",
    "how": lambda _, value: str(value),
    "killed": lambda _, value: f"killed, as {value}",
    "lost_s": _work_lost,
    "name": lambda _, value: f"as {value}",
    "pids": _processes,
    "retry_in_s": lambda _, value: f"tried again in {length(_seconds(value))}",
    "took_s": lambda _, value: f"took {length(_seconds(value))}",
}
"""Details that need a wording of their own."""


def _detail(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key.endswith("_ms"):
        return utc_time(value) if value > 10 * 365 * DAY else length(value)
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return str(value)
