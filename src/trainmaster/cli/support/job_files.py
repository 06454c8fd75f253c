"""Job files as the command line reads them: checked before they are sent, mistakes named with their line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.cli.support.format import settings_of
from trainmaster.client.job_request import with_environment
from trainmaster.client.manager_api import Json
from trainmaster.config.job_file import job_file_of
from trainmaster.config.slurm.script import is_batch_script
from trainmaster.config.validation import ConfigError, Lines
from trainmaster.config.yaml_file import read_documents
from trainmaster.errors import BadInput
from trainmaster.input_files import STDIO, read_text

CHECKED_THERE = ("workdir", "data", "secrets", "checkpoint_dir")
"""Fields that only the manager's machine can check."""


@dataclass(frozen=True, slots=True)
class ReadJob:
    """One job, and where each field of it stands."""

    spec: Json
    file: str
    lines: Lines

    def place_of(self, sentence: str) -> str | None:
        """Where the field is that the manager refuses; None where it is not in this job."""
        field, _, rest = sentence.partition(" ")
        stated = self.spec.get(field)
        if field not in CHECKED_THERE or stated is None:
            return None
        several = stated.values() if isinstance(stated, dict) else stated
        paths = [stated] if isinstance(stated, str) else several
        if not any(os.path.normpath(str(path)) in rest for path in paths):
            return None
        line = self.lines.get((field,))
        return f"{self.file}: line {line}" if line else self.file


@dataclass(frozen=True, slots=True)
class SubmitFlags:
    """What the command line says about every job of its files."""

    settings: Sequence[str] = ()
    """`--set FIELD=VALUE`."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Flags of their own; None: not said."""
    env: Mapping[str, str] = field(default_factory=dict)
    export_all: bool = False


def read_jobs(file: str, flags: SubmitFlags) -> list[ReadJob]:
    """The jobs of one file; a mistake is named with its line, or with the option that made it."""
    name = "standard input" if file == STDIO else file
    found: list[ReadJob] = []
    text = read_text(Path(file), "the job file", takes_stdin=True)
    if is_batch_script(text):
        raise BadInput(
            f"{name} is a Slurm script: `trainmaster import {file}` makes a job file of it, and says what it"
            " does not understand."
        )
    try:
        for raw, lines in read_documents(text):
            spec = _with_settings(raw, flags.settings)
            if isinstance(spec, dict):
                _check_copied(spec, lines)
                spec = with_environment(_with_flags(spec, flags), flags.export_all)
            _check(spec, raw, lines, flags.settings)
            found.append(ReadJob(spec, name, lines))
    except ConfigError as bad:
        raise BadInput(f"{name}: {bad}") from None
    if not found:
        raise BadInput(f"{name} has no job in it: it needs a command at least.")
    return found


def _with_flags(spec: Json, flags: SubmitFlags) -> Json:
    said = {name: value for name, value in flags.fields.items() if value is not None}
    env = spec.get("env") or {}
    if flags.env and isinstance(env, dict):
        said["env"] = {**env, **flags.env}
    return spec | said


def _check(spec: Any, raw: Any, lines: Lines, settings: Sequence[str]) -> None:
    """A mistake that the file alone does not make was made by --set."""
    try:
        job_file_of(spec, lines)
    except ConfigError as bad:
        if not settings or not isinstance(raw, dict):
            raise
        try:
            job_file_of(raw, lines)
        except ConfigError as before:
            if str(before) == str(bad):
                raise bad from None
        try:
            job_file_of(spec)
        except ConfigError as plain:
            raise BadInput(f"--set: {plain}") from None


def _check_copied(spec: Json, lines: Lines) -> None:
    """Variables without a value are copied from here, so they must be here."""
    given = spec.get("env")
    for name, value in (given if isinstance(given, dict) else {}).items():
        if value is None and name not in os.environ:
            line = lines.get(("env", name)) or lines.get(("env",))
            place = f"line {line}: " if line else ""
            raise ConfigError(f"{place}{name} is not set here: give it a value.")


def _with_settings(raw: Any, settings: Sequence[str]) -> Any:
    """What `--set` says, instead of what the file says; `env.NAME=…` sets one variable."""
    if not isinstance(raw, dict):
        return raw
    spec = dict(raw)
    for key, text in settings_of(settings, "--set").items():
        field, dot, inner = key.partition(".")
        read = read_documents(text)
        value = read[0][0] if read else ""
        if not dot:
            spec[field] = value
        else:
            spec[field] = {**(spec.get(field) or {}), inner: text if field == "env" else value}
    return spec
