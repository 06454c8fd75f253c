"""Points of time as people write them in options."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time

from trainmaster.cli.support.format import seconds_of
from trainmaster.errors import BadInput


def moment_of(text: str, option: str) -> float:
    """A point of time that is past: a date, a date and time, a time of day, or how long ago."""
    stated = stated_moment(text, is_ahead=False)
    if stated is not None:
        return stated
    try:
        return time.time() - seconds_of(text, option)
    except BadInput:
        raise BadInput(
            f"{option} `{text}` is not a point of time: write 2026-11-15, `2026-11-15 18:00`, 18:00, or 2h,"
            " 7d for so long ago."
        ) from None


def moment_ahead(text: str, option: str, duration_option: str) -> float:
    """A point of time that is to come: a date, a date and time, or a time of day."""
    stated = stated_moment(text, is_ahead=True)
    if stated is None:
        raise BadInput(
            f"{option} `{text}` is not a date and time: write 2026-12-01T22:00, or 22:00 for the next time"
            f" that it is ten; `{duration_option} 2h` is from now."
        )
    return stated


def stated_moment(text: str, *, is_ahead: bool) -> float | None:
    """In local time unless it says otherwise; a time of day is the next one ahead, or else the last one."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        pass
    hour, colon, _ = text.partition(":")
    try:
        of_day = clock_time.fromisoformat(text.zfill(len(text) + len("22") - len(hour)))
    except ValueError:
        return None
    if not (hour and colon) or of_day.tzinfo is not None:
        return None
    now = datetime.now(UTC).astimezone()
    today = datetime.combine(now, of_day)
    is_over = today.astimezone() <= now
    days = int(is_over) if is_ahead else int(is_over) - 1
    return (today + timedelta(days=days)).astimezone().timestamp()
