"""Values that a file or a request may hold at all, whatever they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainmaster.api.units import shown
from trainmaster.api.validation_errors import BadJobFile

MOST_TEXT = 1 << 20
MOST_VALUES = 200_000
DEEPEST = 20
LARGEST = 1 << 53


def check_plain(value: object) -> None:
    """Refuse what no text can hold: endless nesting, NUL and half characters, numbers without bounds."""
    left = MOST_VALUES
    todo: list[tuple[object, int]] = [(value, 0)]
    while todo:
        each, depth = todo.pop()
        left -= 1
        if depth > DEEPEST or left < 0:
            raise BadJobFile("The job file is nested too deeply or has too many values.")
        if isinstance(each, str):
            _check_text(each)
        elif isinstance(each, float) and not math.isfinite(each):
            raise BadJobFile("Numbers of a job file must be finite: .inf and .nan are not.")
        elif isinstance(each, int) and abs(each) > LARGEST:
            raise BadJobFile(f"The number {str(each)[:30]} of the job file is too large.")
        elif isinstance(each, Mapping):
            todo.extend((name, depth + 1) for name in each)
            todo.extend((inner, depth + 1) for inner in each.values())
        elif isinstance(each, list):
            todo.extend((inner, depth + 1) for inner in each)


def _check_text(text: str) -> None:
    if len(text) > MOST_TEXT:
        raise BadJobFile("A text of the job file is longer than a million characters.")
    if "\x00" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadJobFile(
            f"The text {shown(text)} of the job file has a character that cannot be stored."
        )
