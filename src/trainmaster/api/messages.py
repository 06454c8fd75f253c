"""How facts about jobs are said to people: why one waits, what happened to it, how long, how much."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from trainmaster.daemon.service_api import Forecast, JobStatus
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import DAY, GIB, HOUR, MIB, MINUTE, SECOND, WHOLE
from trainmaster.store.rows import StoryRow

ENDS = frozenset({"succeeded", "failed", "cancelled"})
WAITS = frozenset({"pending", "held", "suspended"})
HELD = "Held"
"""The code of what keeps a job back that no policy decided: its owner, another job, its array's limit."""
NAMED = 4
"""Jobs that are named in a sentence before they are only counted."""


def gpus(thousandths: int) -> str:
    """`8`, `0.5`."""
    return f"{thousandths / WHOLE:g}"


def gpus_needed(thousandths: int) -> str:
    """`8 GPUs`, `1 GPU`, `0.5 GPU`."""
    return f"{gpus(thousandths)} GPU{'s' if thousandths > WHOLE else ''}"


def counted(number: int, what: str) -> str:
    """`1 failure`, `2 failures`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def length(ms: int) -> str:
    """A length of time in one or two units: `45 s`, `3 min`, `2 h 10 min`, `3 d 4 h`."""
    if ms < MINUTE:
        return f"{ms / SECOND:.0f} s" if ms >= SECOND else f"{ms / SECOND:.1f} s"
    if ms < HOUR:
        return f"{ms // MINUTE} min"
    large, small, unit, part, each = (
        (DAY, HOUR, "d", "h", 24) if ms >= DAY else (HOUR, MINUTE, "h", "min", 60)
    )
    rest = ms // small % each
    return f"{ms // large} {unit} {rest} {part}" if rest else f"{ms // large} {unit}"


def size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def clock(ms: int) -> str:
    """A time of day with its date, in UTC."""
    return datetime.fromtimestamp(ms / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def when(ms: int, now: int) -> str:
    """`in 5 min`, `now`, `5 min ago`."""
    if abs(ms - now) < SECOND:
        return "now"
    return f"in {length(ms - now)}" if ms > now else f"{length(now - ms)} ago"


def names(ids: Sequence[str]) -> str:
    """`job 3`, `jobs 3 and 4`, `jobs 3, 4, 5, 6 and 12 more`."""
    if not ids:
        return "other jobs"
    if len(ids) == 1:
        return f"job {ids[0]}"
    if len(ids) > NAMED:
        return f"jobs {', '.join(ids[:NAMED])} and {len(ids) - NAMED} more"
    return f"jobs {', '.join(ids[:-1])} and {ids[-1]}"


def _not_enough(reason: Reason) -> str:
    held = f"; {names(reason.held_by)} hold{'s' if len(reason.held_by) == 1 else ''} the others"
    return f"It needs {gpus_needed(reason.need)} and {_are(reason.free)} free{held if reason.held_by else ''}"


def _fragmented(reason: Reason) -> str:
    return (
        f"It needs {gpus_needed(reason.need)} together: {_are(reason.free)} free, but at most"
        f" {gpus(reason.largest_block)} of them where it may use them together"
    )


def _behind(reason: Reason) -> str:
    first = names(reason.held_by)
    return f"{first[0].upper()}{first[1:]} {'goes' if len(reason.held_by) == 1 else 'go'} first"


def _share(reason: Reason) -> str:
    return (
        f"Its queue already holds its share; the job needs {gpus_needed(reason.need)} more and"
        f" {_are(reason.free)} free"
    )


def _reserved(reason: Reason) -> str:
    return f"The GPUs that it could use are held for {names(reason.held_by)}"


def _releasing(reason: Reason) -> str:
    return f"Its GPUs are promised to it; {names(reason.held_by)} must leave them first"


def _deadline(_reason: Reason) -> str:
    return "Its deadline is accepted and leaves time: others go first"


def _never(reason: Reason) -> str:
    return (
        f"It needs {gpus_needed(reason.need)}, which its queue or this cluster can never give it:"
        " ask for fewer, or for another type"
    )


SENTENCES = {
    Why.NOT_ENOUGH_FREE: _not_enough,
    Why.FRAGMENTED: _fragmented,
    Why.BEHIND_OTHERS: _behind,
    Why.SHARE_USED_UP: _share,
    Why.RESERVED: _reserved,
    Why.WAITING_FOR_RELEASE: _releasing,
    Why.DEADLINE_LEAVES_TIME: _deadline,
    Why.NEVER_FITS: _never,
}


def _are(thousandths: int) -> str:
    return f"{gpus(thousandths)} {'is' if thousandths <= WHOLE and thousandths else 'are'}"


def reason_sentence(reason: Reason, now: int) -> str:
    """Why a job waits, as one sentence."""
    until, said = reason.until_ms, _said(reason)
    if until is None or until <= now or reason.why is Why.NEVER_FITS:
        return f"{said}."
    return f"{said}, for {length(until - now)} at the latest."


@lru_cache(maxsize=1024)
def _said(reason: Reason) -> str:
    """Worked out once: in a long list many wait for the same."""
    return SENTENCES[reason.why](reason)


def why_waiting(sheet: JobStatus, now: int) -> tuple[str, str] | None:
    """Code and sentence; None for a job that does not wait, or of which nothing was said yet."""
    if sheet.held_for:
        return HELD, _sentence(sheet.held_for)
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
    return _sentence(str(failure["why"]))


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


def forecast_sentence(forecast: Forecast, now: int) -> str:
    """When it is expected to start."""
    basis = forecast.basis.rstrip(".")
    if forecast.start_ms is None:
        return f"No start can be foretold: {basis or 'nothing is known of the others'}."
    because = f" ({basis})" if basis else ""
    return f"It is expected to start {when(forecast.start_ms, now)}{because}."


def story_sentence(row: StoryRow) -> str:
    """What happened, with the details that matter to people."""
    detail = details(row.detail_json)
    said = detail.get("sentence") or detail.get("why")
    worded = (
        DETAILS.get(key, _named)(key, value)
        for key, value in detail.items()
        if key not in ("sentence", "why", "tail") and value not in (None, "", [], {})
    )
    rest = [each for each in worded if each]
    start = f"{row.what[:1].upper()}{row.what[1:]}"
    listed = f" ({', '.join(rest)})" if rest else ""
    return f"{start}{listed}: {said}" if said else f"{start}{listed}"


def details(text: str) -> dict[str, object]:
    """The object in a text of the store; empty where it is none."""
    try:
        found = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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
    "at_step": lambda _, value: f"at step {value}",
    "code": lambda _, value: f"exit code {value}",
    "how": lambda _, value: str(value),
    "killed": lambda _, value: f"killed, as {value}",
    "lost_s": _work_lost,
    "name": lambda _, value: f"as {value}",
    "pids": _processes,
    "took_s": lambda _, value: f"took {length(_seconds(value))}",
}
"""How a detail is said where its name and value alone would be odd."""


def _detail(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key.endswith("_ms"):
        return clock(value) if value > 10 * 365 * DAY else length(value)
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return str(value)


def _sentence(words: str) -> str:
    text = words[:1].upper() + words[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
