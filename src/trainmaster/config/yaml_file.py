"""YAML 1.2 as users write it: every document with the line of each key, so that errors can name it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from trainmaster.config.validation import ConfigError, KeyPath, Lines, line_of, located, shown

DEEPEST = 20
MOST_VALUES = 200_000
MOST_TEXT = 1 << 20
LARGEST = 1 << 53

CORE_SCHEMA = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (r"[-+]?[0-9]{1,400}|0o[0-7]{1,99}|0x[0-9a-fA-F]{1,99}", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "merge": (r"<<", "<"),
}
"""What an unquoted word is read as, and its first characters. ruamel's own table also takes `12_3` (an
element of an array) for a number and a date for a moment."""


def read_documents(text: str) -> list[tuple[object, Lines]]:
    """Every document with the lines of its keys; empty documents are left out."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if "\x00" in text:
        raise ConfigError("This is not YAML: it has a NUL character in it.", is_malformed=True)
    found = []
    yaml = _reader()
    try:
        for node in yaml.compose_all(text):
            lines = _lines(node)
            value = yaml.constructor.construct_document(node)
            check_plain(value, lines)
            if value is not None:
                found.append((value, lines))
    except MarkedYAMLError as error:
        raise ConfigError(_mistake(error), is_malformed=True) from None
    except (YAMLError, RecursionError) as error:
        said = str(error).split("\n")[0][:120] or "it is nested too deeply"
        raise ConfigError(f"This is not YAML: {said}.", is_malformed=True) from None
    return found


def read_mapping(
    text: str, where: str, page: str = "docs/simulator.md"
) -> tuple[Mapping[str, object], Lines]:
    """The only document of a file, which must map keys to values."""
    try:
        found = read_documents(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", is_malformed=True) from None
    if not found:
        raise ConfigError(f"{where} is empty.")
    if len(found) > 1:
        raise ConfigError(
            f"{where}: line {found[1][1][()]}: a second document starts here; keep one to a file."
        )
    value, lines = found[0]
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must map keys to values; {page} shows one.")
    return value, lines


def check_plain(value: object, lines: Lines = {}) -> None:  # noqa: B006
    """Refuse what cannot be stored as text: endless nesting, NUL, half characters, huge numbers."""
    left = MOST_VALUES
    todo: list[tuple[object, KeyPath]] = [(value, ())]
    while todo:
        each, path = todo.pop()
        left -= 1
        if len(path) > DEEPEST or left < 0:
            raise ConfigError("The file is nested too deeply or has too many values.")
        if isinstance(each, Mapping):
            todo.extend((name, path) for name in each)
            todo.extend((inner, (*path, str(name))) for name, inner in each.items())
        elif isinstance(each, list):
            todo.extend((inner, (*path, at)) for at, inner in enumerate(each))
        elif fault := _fault(each):
            raise ConfigError(located(fault, line=line_of(path, lines)))


def _fault(value: object) -> str | None:
    """Why one text or number cannot be stored."""
    if isinstance(value, str):
        if len(value) > MOST_TEXT:
            return "A text is longer than a million characters."
        if "\x00" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
            return f"The text {shown(value)} has a character that cannot be stored."
    elif isinstance(value, float) and not math.isfinite(value):
        return "Numbers must be finite: .inf and .nan are not."
    elif isinstance(value, int) and abs(value) > LARGEST:
        return f"The number {str(value)[:30]} is too large."
    return None


def _reader() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver = _resolver()
    return yaml


@cache
def _resolver() -> Any:
    from ruamel.yaml.resolver import BaseResolver

    class CoreSchema(BaseResolver):
        yaml_implicit_resolvers: dict[str, Any] = {}
        processing_version = (1, 2)

        def __init__(self, loader: Any, version: Any = None) -> None:
            super().__init__(loader)

    for name, (regex, first) in CORE_SCHEMA.items():
        tag, pattern = f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{regex})$")
        CoreSchema.add_implicit_resolver_base(tag, pattern, first)
    return CoreSchema


def _lines(top: Any) -> Lines:
    """Where each key and item stands; refuses aliases that blow up or refer to themselves."""
    found: dict[KeyPath, int] = {}
    todo: list[tuple[Any, KeyPath]] = [(top, ())]
    while todo:
        node, path = todo.pop()
        found.setdefault(path, node.start_mark.line + 1)
        if len(path) > DEEPEST or len(found) > MOST_VALUES:
            raise ConfigError("The file is nested too deeply or has too many values.")
        if node.id == "mapping":
            for key, value in node.value:
                inner = (*path, str(key.value) if key.id == "scalar" else "?")
                found[inner] = key.start_mark.line + 1
                todo.append((value, inner))
        elif node.id == "sequence":
            todo.extend((each, (*path, at)) for at, each in enumerate(node.value))
    return found


def _mistake(error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    line = f"line {mark.line + 1}: " if mark is not None else ""
    problem = (error.problem or error.context or "it cannot be read").split("\n")[0]
    twice = re.match(r'found duplicate key "(.*?)"', problem)
    if twice:
        return f"{line}{twice[1]} is given twice."
    hint = ""
    if "\\t" in problem or "tab" in problem:
        hint = "; use spaces, not tabs, before a key"
    elif "mapping values are not allowed" in problem:
        hint = "; quote a text that has a colon in it"
    return f"{line}this is not YAML: {problem}{hint}."
