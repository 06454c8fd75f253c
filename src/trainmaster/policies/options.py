"""Options of a policy: a frozen dataclass whose fields know their help and how to read themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from trainmaster.model.units import SECOND

T = TypeVar("T")


class OptionError(ValueError):
    """An option that does not exist or cannot have that value: one sentence."""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """For policies that have nothing to set."""


def option(default: T, read: Callable[[str], T], help_text: str) -> T:
    """A dataclass field of a policy's options."""
    made: Any = field(default=default, metadata={"read": read, "help": help_text})
    return made  # type: ignore[no-any-return]


def choice(*allowed: str) -> Callable[[str], str]:
    """One of these words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return read


def positive_seconds(text: str) -> float:
    value = _float(text)
    if not 0 < value * SECOND < 1e15 or round(value * SECOND) < 1:
        raise ValueError("a number of seconds of at least 0.001")
    return value


def at_least_zero(text: str) -> float:
    value = _float(text)
    if not 0 <= value < 1e15:
        raise ValueError("a number of at least 0")
    return value


def fraction(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return value


def increasing(text: str) -> tuple[float, ...]:
    """A comma list of growing positive numbers."""
    values = tuple(_float(part) for part in text.split(","))
    if any(not 0 < value < 1e15 for value in values) or list(values) != sorted(set(values)):
        raise ValueError("growing positive numbers with commas between")
    return values


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def read_options(policy: str, kind: type[T], given: Mapping[str, str]) -> T:
    """The options with these values; every mistake is one sentence."""
    known: dict[str, Field[Any]] = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for key, text in given.items():
        if key not in known:
            raise OptionError(unknown_option(key, known, policy))
        try:
            values[key] = known[key].metadata["read"](text)
        except ValueError as error:
            raise OptionError(f"{policy}: {key} must be {error}, not {text!r}.") from None
    return kind(**values)


def unknown_option(key: str, known: Mapping[str, object], policy: str) -> str:
    near = get_close_matches(key, list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else "`trainmaster policies` lists them."
    return f"{policy} has no option {key!r}; {hint}"


@dataclass(frozen=True, slots=True)
class OptionHelp:
    """One option as `trainmaster policies` shows it."""

    name: str
    default: object
    help_text: str


def describe_options(kind: type) -> tuple[OptionHelp, ...]:
    found = []
    for each in fields(kind):
        assert each.default is not MISSING, f"{kind.__name__}.{each.name} needs a default"
        found.append(OptionHelp(each.name, shown(each.default), each.metadata["help"]))
    return tuple(found)


def shown(value: object) -> object:
    """An option's value as it is written in the JSON and on the command line."""
    if isinstance(value, tuple):
        return ",".join(str(int(part)) if float(part).is_integer() else str(part) for part in value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def effective(options: object) -> dict[str, object]:
    """All options with the values in force."""
    names = fields(options)  # type: ignore[arg-type]
    return {each.name: shown(getattr(options, each.name)) for each in names}
