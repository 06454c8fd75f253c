"""The file of failure reasons: our own table, and rows that users add to it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from trainmaster.config.validation import (
    FileModel,
    Label,
    Lines,
    OneOrMore,
    checked,
    mistake,
    shown,
)
from trainmaster.config.yaml_file import read_mapping
from trainmaster.failures.reason_table import Accuses, FailureReason, Memory, ReasonTable, Strength
from trainmaster.model.failure import MEMORY_TAKEN_REASON, UNKNOWN_REASON, Blame, RetryRule

KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SIGNAL = re.compile(r"SIG[A-Z0-9]+")
NEEDED = ("title", "blame", "retry", "advice")
"""What a reason that is not in our table must say, ..."""
SIGNS = ("exceptions", "words", "origins", "frames", "lines", "exit_codes", "signals")
"""... together with one of these, by which it is recognised, ..."""
NOT_SHOWN = frozenset({MEMORY_TAKEN_REASON})
"""... but for what the manager finds by itself: what a program writes never shows it."""
PAGE = "docs/failures.md"


def _pattern(value: object) -> re.Pattern[str]:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a regular expression, not {shown(value)}")
    try:
        found = re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {shown(value)} ({error})") from None
    if found.search(""):
        raise ValueError(f"would match everything: {shown(value)}")
    return found


def _key(value: object) -> object:
    if not isinstance(value, str) or not KEY.fullmatch(value) or value == UNKNOWN_REASON:
        raise ValueError(f"must be a name such as my-reason, not {shown(value)}")
    return value


def _signal(value: object) -> object:
    if not isinstance(value, str) or not SIGNAL.fullmatch(value):
        raise ValueError(f"must be the name of a signal such as SIGSEGV, not {shown(value)}")
    return value


Patterns = Annotated[list[Annotated[re.Pattern[str], PlainValidator(_pattern)]], OneOrMore]


class ReasonEntry(FileModel):
    key: Annotated[str, BeforeValidator(_key)]
    title: Label | None = None
    blame: Annotated[Blame | None, Field(strict=False)] = None
    retry: Annotated[RetryRule | None, Field(strict=False)] = None
    advice: Label | None = None
    evidence: Annotated[Strength | None, Field(strict=False)] = None
    accuses: Annotated[Accuses | None, Field(strict=False)] = None
    memory: Annotated[Memory | None, Field(strict=False)] = None
    gang: bool | None = None
    exceptions: Patterns = []
    words: Patterns = []
    origins: Patterns = []
    frames: Patterns = []
    lines: Patterns = []
    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255)]], OneOrMore] = []
    signals: Annotated[list[Annotated[str, BeforeValidator(_signal)]], OneOrMore] = []


class ReasonsFile(FileModel):
    reasons: Annotated[list[ReasonEntry], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_keys(self) -> ReasonsFile:
        seen: set[str] = set()
        for at, entry in enumerate(self.reasons):
            if entry.key in seen:
                raise mistake(f"{{}} is a second {entry.key!r}", "reasons", at, "key")
            seen.add(entry.key)
        return self


def table_from(
    raw: object,
    ours: ReasonTable = ReasonTable(),  # noqa: B008
    where: str = "the file of failure reasons",
    lines: Lines | None = None,
) -> ReasonTable:
    """The table with the rows of a file before its own, or a ConfigError.

    A row whose key the table has adds its patterns to those, and replaces what else it states.
    """
    found = checked(ReasonsFile, raw, where, lines)
    for at, entry in enumerate(found.reasons):
        missing = [name for name in NEEDED if getattr(entry, name) is None]
        shows = any(getattr(entry, name) for name in SIGNS)
        if entry.key not in {*ours.by_key, *NOT_SHOWN} and not shows:
            missing.append("what shows it (such as exceptions, lines, exit_codes or signals)")
        if entry.key not in ours.by_key and missing:
            _refuse(where, lines, f"{{}} is a new reason, so it needs: {', '.join(missing)}", at)
    rows = [_row(entry, ours.by_key.get(entry.key)) for entry in found.reasons]
    for at, (entry, row) in enumerate(zip(found.reasons, rows, strict=True)):
        gives_more = row.retry is RetryRule.MORE_MEMORY
        if gives_more and row.memory is None:
            _refuse(
                where, lines, "{} is retried with more-memory, so it needs memory: gpu or host", at
            )
        if entry.memory is not None and not gives_more:
            _refuse(
                where, lines, f"{{}} has memory, but its retry is {row.retry}, not more-memory", at
            )
    return ours.extended_by(rows)


def read_table(text: str, ours: ReasonTable = ReasonTable(), where: str = "") -> ReasonTable:  # noqa: B008
    """The same, from the text of the file."""
    raw, lines = read_mapping(text, where, PAGE)
    return table_from(raw, ours, where, lines)


def _refuse(where: str, lines: Lines | None, sentence: str, at: int) -> None:
    from trainmaster.config.validation import ConfigError, line_of, located, named

    path = ("reasons", at)
    said = sentence.replace("{}", named(path)) + "."
    raise ConfigError(located(said, where, line_of(path, lines or {})))


def _row(entry: ReasonEntry, ours: FailureReason | None) -> FailureReason:
    base = ours or FailureReason(
        entry.key, entry.title or "", entry.blame or Blame.UNKNOWN, RetryRule.ONCE, ""
    )
    return FailureReason(
        key=entry.key,
        title=entry.title or base.title,
        blame=entry.blame or base.blame,
        retry=entry.retry or base.retry,
        advice=entry.advice or base.advice,
        exceptions=(*entry.exceptions, *base.exceptions),
        words=(*entry.words, *base.words),
        origins=(*entry.origins, *base.origins),
        frames=(*entry.frames, *base.frames),
        lines=(*entry.lines, *base.lines),
        strength=entry.evidence or base.strength,
        is_gangs=base.is_gangs if entry.gang is None else entry.gang,
        exit_codes=base.exit_codes | frozenset(entry.exit_codes),
        signals=base.signals | frozenset(entry.signals),
        accuses=entry.accuses or base.accuses,
        memory=entry.memory or base.memory,
    )
