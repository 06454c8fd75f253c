"""A job file as text: YAML that a person can read, with a script as a block."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

PLAIN = re.compile(r"-{0,2}[A-Za-z_/~][\w./~+@=-]*(?: [\w./~+@=-]+)*|(?:\d+[dhms])+|\d+[MG]")
"""A text that YAML reads as it is."""
WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "~"})


def job_text(fields: Mapping[str, object], comments: Sequence[str] = ()) -> str:
    """The file, with comments above it."""
    lines = [f"# {line}" if line else "#" for line in comments]
    for name, value in fields.items():
        lines += _field(name, value, "")
    return "\n".join(lines) + "\n"


def _field(name: str, value: object, indent: str) -> list[str]:
    if isinstance(value, Mapping):
        inner = [line for key, each in value.items() for line in _field(str(key), each, "  ")]
        return [f"{indent}{name}:", *inner]
    if isinstance(value, list):
        return [f"{indent}{name}:", *(line for each in value for line in _item(each, indent))]
    block = _block(value, indent)
    return [f"{indent}{name}: {block[0]}", *block[1:]]


def _item(value: object, indent: str) -> list[str]:
    block = _block(value, f"{indent}  ")
    return [f"{indent}  - {block[0]}", *block[1:]]


def _block(value: object, indent: str) -> list[str]:
    """A value: its first line, and those of a block after it."""
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        return [
            "|",
            *(f"{indent}  {line}" if line else "" for line in value.rstrip("\n").split("\n")),
        ]
    return [_scalar(value)]


def _fits_block(text: str) -> bool:
    """Whether a block gives back the same text: it begins unindented and has one line break at its end."""
    is_plain = all(
        line.isprintable() or line.replace("\t", " ").isprintable() for line in text.split("\n")
    )
    return (
        is_plain
        and not text.startswith((" ", "\t", "\n"))
        and re.search(r"[^\n]\n$", text) is not None
    )


def _scalar(value: object) -> str:
    if isinstance(value, str):
        is_word = PLAIN.fullmatch(value) and value.lower() not in WORDS
        return value if is_word else json.dumps(value, ensure_ascii=not value.isprintable())
    return json.dumps(value)
