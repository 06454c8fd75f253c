"""Pydantic at the edge where users' files become values: one sentence for every mistake.

The sentence names the file, the line where YAML gives one, and the key.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainmaster.text.formatting import as_sentence
from trainmaster.text.suggest import did_you_mean

KeyPath = tuple[str | int, ...]
Lines = Mapping[KeyPath, int]
"""Line of each key and list item of a document, by its path."""
M = TypeVar("M", bound=BaseModel)

TYPE_WORDS = {
    "string": "a text",
    "int": "a whole number",
    "bool": "true or false",
    "float": "a number",
    "finite": "a number",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}
"""By the first word of pydantic's error type."""
BOUND_WORDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_too_short": ("min_length", "a text of at least {} characters"),
    "string_too_long": ("max_length", "a text of at most {} characters"),
}
"""By pydantic's error type: the bound in its context, and how to word it."""
MISTAKE = "mistake"
"""Our own error type: a sentence about a place inside the mapping that was checked."""


class ConfigError(ValueError):
    """A file, request or option that cannot be used: one sentence."""

    def __init__(self, sentence: str, *, is_malformed: bool = False) -> None:
        super().__init__(sentence)
        self.is_malformed = is_malformed
        """It could not even be parsed: not YAML, not JSON."""


class StrictModel(BaseModel):
    """A mapping in a file or a request: unknown keys are refused, with the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    other_words: ClassVar[Mapping[str, str]] = {}
    """What other systems call our keys."""
    takes_null: ClassVar[bool] = True
    """Whether a known key may be there without a value."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_and_empty_keys(cls, raw: object) -> object:
        if isinstance(raw, Mapping):
            known = cls.known_keys()
            for key, value in raw.items():
                if key not in known:
                    raise mistake(f"unknown key '{{}}'; {cls._meant(str(key), known)}", str(key))
                if value is None and not cls.takes_null:
                    raise mistake("{} is empty: give it a value, or leave it out", str(key))
        return raw

    @classmethod
    def known_keys(cls) -> list[str]:
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def _meant(cls, key: str, known: Iterable[str]) -> str:
        other = cls.other_words.get(key.lower())
        return f"did you mean {other}?" if other else did_you_mean(key.lower(), known)

    def stated(self) -> dict[str, Any]:
        """The fields that the file states, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class FileModel(StrictModel):
    """A mapping in a file: `key:` with nothing after it is a mistake."""

    takes_null: ClassVar[bool] = False


def mistake(sentence: str, *path: object) -> PydanticCustomError:
    """An error about a place inside the mapping; `{}` in the sentence stands for its name."""
    inside = tuple(part if isinstance(part, int) else str(part) for part in path)
    return PydanticCustomError(MISTAKE, "mistake", {"path": inside, "sentence": sentence})


def checked(
    kind: type[M],
    raw: object,
    where: str = "",
    lines: Lines | None = None,
    context: Mapping[str, object] | None = None,
) -> M:
    """The file's content as the model takes it, or a ConfigError."""
    try:
        return kind.model_validate(raw, context=context)
    except ValidationError as error:
        raise ConfigError(sentence_of(error, raw, where, lines or {})) from None


def sentence_of(error: ValidationError, raw: object, where: str = "", lines: Lines = {}) -> str:  # noqa: B006
    """The first thing that is wrong, in the order of the file."""
    found: list[tuple[bool, int, int, KeyPath, Any]] = []
    for each in error.errors(include_url=False):
        path = _path(each["loc"], raw)
        if each["type"] == MISTAKE:
            path = (*path, *each["ctx"]["path"])
        elif each["type"] == "missing":
            path = (*path, each["loc"][-1])
        # A missing key last: mostly it is there, under a name that is complained about.
        found.append((each["type"] == "missing", line_of(path, lines) or 0, len(found), path, each))
    _, line, _, path, first = min(found)
    return located(_words(first, path), where, line)


def located(sentence: str, where: str = "", line: int | None = None) -> str:
    """A sentence after the file and the line that it is about."""
    return "".join((f"{where}: " if where else "", f"line {line}: " if line else "", sentence))


def parameter_sentence(found: Mapping[str, Any]) -> str:
    """What is wrong with one parameter of a request."""
    return _words(found, (str(found["loc"][-1]),))


def line_of(path: KeyPath, lines: Lines) -> int | None:
    """The line of the innermost part of the path that stands in the file."""
    for end in range(len(path), -1, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None


def _path(loc: KeyPath, raw: object) -> KeyPath:
    """The place in the file: without the names that pydantic gives to keys and members of a union."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            path.append(part)
            raw = raw[part]
        elif isinstance(raw, Mapping):
            values = {str(key): value for key, value in raw.items()}
            if str(part) in values:
                path.append(str(part))
                raw = values[str(part)]
    return tuple(path)


def named(path: KeyPath) -> str:
    """`racks[2].nodes.gpus`"""
    parts = (f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _words(found: Mapping[str, Any], path: KeyPath) -> str:
    kind, context, value = found["type"], found.get("ctx") or {}, shown(found.get("input"))
    name = named(path)
    if kind == MISTAKE:
        return as_sentence(context["sentence"].replace("{}", name))
    if kind == "missing":
        return f"{name} is missing."
    if kind == "value_error":
        said = str(context.get("error", found["msg"]))
        return as_sentence(f"{name} {said}" if name else said)
    if kind in ("literal_error", "enum"):
        words = str(context.get("expected", "")).replace("'", "")
        said = f"must be {words}"
    elif kind in BOUND_WORDS:
        bound, words = BOUND_WORDS[kind]
        said = f"must be {words.format(_amount(context.get(bound)))}"
    elif kind == "string_pattern_mismatch":
        return f"{name} cannot be {value}: the API's documentation says how it is written."
    elif kind == "too_short":
        return f"{name} must not be empty."
    elif kind.partition("_")[0] in TYPE_WORDS:
        said = f"must be {TYPE_WORDS[kind.partition('_')[0]]}"
    else:
        said = found["msg"][0].lower() + found["msg"][1:]
    return as_sentence(f"{name or 'it'} {said}, not {value}")


def _amount(value: object) -> str:
    return f"{int(value):,}" if isinstance(value, float) and value.is_integer() else f"{value}"


def shown(value: object) -> str:
    """A value that a user wrote, short enough for a sentence."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"  # as it is written in YAML and JSON
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- values that several files have --------------------------------------------------------------------

MOST = 1e12
"""No number in a file exceeds this: beyond it there is only a typing error."""


def _text(value: object) -> object:
    """YAML reads an unquoted 3090 as a number: it is a name too."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a name, not {shown(value)}")
    return value.strip()


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
"""The checks of the `operator` module that a number of a file can have, in words."""


def scaled(unit: int, *, least: int = 0, why: str = "", **bounds: float) -> PlainValidator:
    """A number of the file within bounds (gt, ge, lt, le), in the integer unit of the model."""
    words = " and ".join(f"{BOUNDS[name]} {_amount(bound)}" for name, bound in bounds.items())
    reason = f": {why}" if why else ""

    def read(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number:
            limits = {"le": MOST, **bounds}.items()
            if all(getattr(operator, name)(value, bound) for name, bound in limits):
                return max(least, round(value * unit))
        what = words if is_number else f"a number of {words}"
        if is_number and value > MOST:
            what = f"at most {_amount(MOST)}"
        raise ValueError(f"must be {what}, not {shown(value)}{reason}")

    return PlainValidator(read)


def amount(unit: int) -> PlainValidator:
    """0 or more."""
    return scaled(unit, ge=0)


def positive(unit: int) -> PlainValidator:
    """More than 0, and 1 at least in the model's unit."""
    return scaled(unit, least=1, gt=0)


Label = Annotated[str, BeforeValidator(_text)]
OneOrMore = BeforeValidator(_as_list)
"""A list, or one item of it."""
