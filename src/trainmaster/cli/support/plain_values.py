"""Options whose values need no conversion: for these Typer does not have to load pydantic.

That is a third of the time that `trainmaster ps` takes to start.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any


def take_plain_values(parameters: Iterable[Any]) -> None:
    """Let these parameters take absent values, texts and defaults as they are."""
    for each in parameters:
        vars(each).setdefault("process_value", _processing(each))


def _processing(parameter: Any) -> Any:
    converted = parameter.process_value

    def process(context: Any, value: Any) -> Any:
        if not _is_converted(parameter, value):
            return converted(context, value)
        return (
            value if parameter.callback is None else parameter.callback(context, parameter, value)
        )

    return process


def _is_converted(parameter: Any, value: Any) -> bool:
    """Whether the value has its type already."""
    if parameter.multiple or parameter.nargs != 1:
        return False
    if value is None:
        return not parameter.required
    # Before 0.29 Typer has none: every text is converted then.
    kind = getattr(parameter, "type_descriptor", None)
    is_text = isinstance(value, str) and getattr(kind, "annotation", None) is str
    return is_text or isinstance(value, Enum)
