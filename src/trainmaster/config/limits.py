"""Limits: what one manager puts up with, each with a default that suits one machine with a few users.

An operator changes them by `trainmaster up --limit NAME=VALUE`; docs/limits.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from trainmaster.config.units import duration_ms
from trainmaster.config.validation import ConfigError, shown
from trainmaster.model.units import MINUTE, SECOND

MOST = 10**9


def _count(value: object) -> int:
    text = str(value).strip().replace("_", "")
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) <= MOST:
        raise ValueError(f"must be a whole number from 1 to {MOST:,}, not {shown(value)}")
    return int(text)


def _number(default: int, says: str) -> Any:
    return field(default=default, metadata={"read": _count, "says": says})


def _time(default: int, says: str) -> Any:
    return field(default=default, metadata={"read": duration_ms, "says": says})


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are in milliseconds, sizes in bytes."""

    losses: int = _number(5, "Times in a row that a job may be lost before it has failed.")
    retry_delay: int = _time(1 * SECOND, "Delay before the first retry; it grows with each one.")
    max_retry_delay: int = _time(5 * MINUTE, "Longest delay before a retry.")
    max_grace: int = _time(5 * MINUTE, "Longest grace period of a job.")
    supervisor_silence: int = _time(
        1 * MINUTE, "A supervisor that does not answer for so long is killed; its run is lost."
    )
    fork_server_silence: int = _time(
        30 * SECOND, "A fork server that starts no supervisor for so long is replaced."
    )
    leader_silence: int = _time(
        30 * SECOND, "A leader that shows no sign of life for so long is replaced by a standby."
    )


def limits_of(stated: Iterable[str]) -> Limits:
    """The limits with these `name=value` instead of the defaults."""
    found: dict[str, int] = {}
    known = {each.name: each for each in fields(Limits)}
    for text in stated:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"{shown(text)} is not a limit: write NAME=VALUE with one of {', '.join(known)}."
            )
        try:
            found[name] = known[name].metadata["read"](value)
        except ValueError as error:
            raise ConfigError(f"the limit {name} {error}.") from None
    return replace(Limits(), **found)
