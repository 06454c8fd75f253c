"""Options of policies in requests, as the command line writes them."""

from __future__ import annotations

from collections.abc import Mapping


def option_texts(options: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    return {name: _text(value) for name, value in options.items()}


def _text(value: str | int | float | bool) -> str:
    """A switch is on or off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
