"""Options of a policy: a frozen dataclass whose fields know their help and how to read themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import get_annotations
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from trainmaster.model.units import SECOND
from trainmaster.text.suggest import did_you_mean

T = TypeVar("T")
R = TypeVar("R", bound=Callable[[str], object])
ALLOWED = "allowed"
UNBOUNDED = 10**9
"""Upper ends from here on are no bounds to anybody."""


class OptionError(ValueError):
    """An option that does not exist or cannot have that value: one sentence."""


class ContentError(ValueError):
    """A file named by an option says something that it cannot say: 'line 3 must be …'."""


@dataclass(frozen=True, slots=True)
class FromFile(Generic[T]):
    """An option's value read from a file; no name: none was given."""

    name: str
    value: T


@dataclass(frozen=True, slots=True)
class NoOptions:
    """For policies that have nothing to set."""


def option(default: T, read: Callable[[str], T], help_text: str) -> T:
    """A dataclass field of a policy's options."""
    made: Any = field(default=default, metadata={"read": read, "help": help_text})
    return made  # type: ignore[no-any-return]


def option_from_file(default: T, parse: Callable[[str], T], help_text: str) -> FromFile[T]:
    """The same for a file, which the reader of the options opens: policies themselves do no I/O."""
    absent = FromFile("", default)
    made: Any = field(default=absent, metadata={"parse": parse, "help": help_text})
    return made  # type: ignore[no-any-return]


def allows(words: str) -> Callable[[R], R]:
    """Let a reader of values say in a few words what it allows."""

    def described(read: R) -> R:
        setattr(read, ALLOWED, words)
        return read

    return described


def choice(*allowed: str) -> Callable[[str], str]:
    """One of these words."""

    @allows("|".join(allowed))
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return read


@allows("seconds above 0")
def positive_seconds(text: str) -> float:
    value = _float(text)
    if not 0 < value * SECOND < 1e15 or round(value * SECOND) < 1:
        raise ValueError("a number of seconds of at least 0.001")
    return value


@allows("0 or more")
def at_least_zero(text: str) -> float:
    value = _float(text)
    if not 0 <= value < 1e15:
        raise ValueError("a number of at least 0")
    return value


@allows("0 to 1")
def fraction(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return value


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A whole number between these, both included."""

    @allows(f"{least} or more" if most >= UNBOUNDED else f"{least} to {most}")
    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


@allows("growing,numbers,...")
def increasing(text: str) -> tuple[float, ...]:
    """A comma list of growing positive numbers."""
    wanted = "growing positive numbers with commas between"
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(wanted) from None
    if any(not 0 < value < 1e15 for value in values) or list(values) != sorted(set(values)):
        raise ValueError(wanted)
    return values


@dataclass(frozen=True, slots=True)
class Pairs(Generic[T]):
    """An option that is a list of named values, and how it is written."""

    items: tuple[tuple[str, T], ...] = ()
    joint: str = ":"
    """Between a name and its value."""
    comma: str = ","
    """Between one pair and the next."""

    def __str__(self) -> str:
        return self.comma.join(f"{name}{self.joint}{shown(value)}" for name, value in self.items)


@allows("name:weight,...")
def queue_weights(text: str) -> Pairs[int]:
    """`name:weight,...`: weights are whole numbers of at least 1, no queue comes twice."""
    wanted = "queues as name:weight with commas between, each once, weights whole and at least 1"
    found: dict[str, int] = {}
    for part in text.split(",") if text else []:
        name, _, weight = (side.strip() for side in part.rpartition(":"))
        if not name or name in found or not weight.isdecimal() or not 0 < int(weight) < 1e12:
            raise ValueError(wanted)
        found[name] = int(weight)
    return Pairs(tuple(found.items()))


def divides_queues(kind: type) -> bool:
    """Whether this policy class divides between queues itself: it can be told their weights."""
    options: Any = getattr(kind, "options_type", NoOptions)
    return any(each.name == "queues" for each in fields(options))


@allows("key=value;...")
def settings(text: str) -> Pairs[str | FromFile[str]]:
    """`key=value;...`, as options of another policy are passed on."""
    found: dict[str, str | FromFile[str]] = {}
    for part in text.split(";") if text else []:
        key, equals, value = (side.strip() for side in part.partition("="))
        if not key or not equals or key in found:
            raise ValueError("key=value with semicolons between, each key once")
        found[key] = value
    return Pairs(tuple(found.items()), "=", ";")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def read_options(
    policy: str,
    kind: type[T],
    given: Mapping[str, str],
    read_file: Callable[[str], str] | None = None,
) -> T:
    """The options with these values; every mistake is one sentence."""
    known: dict[str, Field[Any]] = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for key, text in given.items():
        if key not in known:
            raise OptionError(unknown_option(key, known, policy))
        try:
            values[key] = _value(known[key], text, read_file)
        except ContentError as error:
            raise OptionError(f"{policy}: {key} {text} {error}.") from None
        except ValueError as error:
            raise OptionError(f"{policy}: {key} must be {error}, not {text!r}.") from None
    made = kind(**values)
    if read_file is not None and isinstance(made, NestedOptions):
        return made.with_files(read_file)
    return made


@runtime_checkable
class NestedOptions(Protocol):
    """Options some of which are those of another policy, which may name files."""

    def with_files(self, read_file: Callable[[str], str]) -> Self:
        """The same with the content of the files."""


def is_from_file(kind: type, key: str) -> bool:
    """Whether this option of that options type names a file."""
    return any(each.name == key and "parse" in each.metadata for each in fields(kind))


def _value(each: Field[Any], text: str, read_file: Callable[[str], str] | None) -> object:
    parse = each.metadata.get("parse")
    if parse is None:
        return each.metadata["read"](text)
    if not text:
        return each.default
    if read_file is None:
        raise ValueError("left out here, where no file can be read")
    return FromFile(text, parse(read_file(text)))


def unknown_option(key: str, known: Mapping[str, object], policy: str) -> str:
    """The sentence about it; a user's file is not among the policies that can be listed."""
    listed = None if policy.endswith(".py") else f"`trainmaster policies {policy}` lists them."
    return f"{policy} has no option {key!r}; {did_you_mean(key, known, listed)}"


@dataclass(frozen=True, slots=True)
class OptionHelp:
    """One option as `trainmaster policies` shows it."""

    name: str
    default: object
    help_text: str
    allowed: str
    """In a few words; empty where its reader does not say."""


def describe_options(kind: type) -> tuple[OptionHelp, ...]:
    found = []
    for each in _own_first(kind):
        assert each.default is not MISSING, f"{kind.__name__}.{each.name} needs a default"
        help_text, allowed = each.metadata["help"], _allowed(each)
        found.append(OptionHelp(each.name, shown(each.default), help_text, allowed))
    return tuple(found)


def _allowed(each: Field[Any]) -> str:
    if "parse" in each.metadata:
        return "a file"
    words: str = getattr(each.metadata["read"], ALLOWED, "")
    return words


def _own_first(kind: type) -> list[Field[Any]]:
    """What a policy has for itself before what it shares with others."""
    declared = [get_annotations(cls) for cls in kind.__mro__]
    found: list[Field[Any]] = list(fields(kind))
    return sorted(found, key=lambda each: [each.name in names for names in declared].index(True))


def shown(value: object) -> object:
    """An option's value as it is written in the JSON and on the command line."""
    if isinstance(value, FromFile):
        return value.name
    if isinstance(value, Pairs):
        return str(value)
    if isinstance(value, tuple):
        return ",".join(str(int(part)) if float(part).is_integer() else str(part) for part in value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def effective(options: object) -> dict[str, object]:
    """All options with the values in force."""
    return {each.name: shown(getattr(options, each.name)) for each in _own_first(type(options))}
