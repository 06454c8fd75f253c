"""From what pydantic found wrong to one sentence that names the field, and its line where there is one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from trainmaster.api.units import shown
from trainmaster.text.formatting import as_sentence
from trainmaster.text.suggest import did_you_mean

Lines = Mapping[tuple[str | int, ...], int]
"""Line of each key and list item of a YAML document, by its path."""

TYPE_WORDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
    "model_attributes_type": "a mapping of names to values",
}

BOUND_WORDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_too_short": ("min_length", "a text of {} characters at least"),
    "string_too_long": ("max_length", "a text of {} characters at most"),
}
"""By kind: which bound of the context is meant, and how it is said."""

OTHER_WORDS = {
    "accelerators": "gpus",
    "after": "depends_on",
    "cmd": "command",
    "cpu": "cpus",
    "cwd": "workdir",
    "dependencies": "depends_on",
    "entrypoint": "command",
    "environment": "env",
    "envs": "env",
    "gpu": "gpus",
    "gpu_count": "gpus",
    "gpu_fraction": "gpus",
    "image": "container",
    "max_duration": "max_runtime",
    "max_retries": "retries",
    "mem": "memory",
    "num_gpus": "gpus",
    "partition": "queue",
    "run": "command",
    "script": "command",
    "time": "max_runtime",
    "time_limit": "max_runtime",
    "timeout": "max_runtime",
    "working_dir": "workdir",
}
"""What other systems call our fields."""
CONTAINER_FIELDS = ("apptainer", "enroot", "docker", "options")


class BadJobFile(Exception):
    """A job file that cannot be: one sentence that names the field."""

    def __init__(self, sentence: str, *, is_malformed: bool = False) -> None:
        super().__init__(sentence)
        self.is_malformed = is_malformed
        """It could not even be read: no YAML, no JSON."""


def sentence_of(error: ValidationError, fields: Collection[str], lines: Lines | None = None) -> str:
    """The first thing that is wrong, in the order of the file where its lines are known."""
    found = error.errors(include_url=False, include_context=True)
    # A missing field last: mostly it is there, under a name that is complained about.
    found.sort(key=lambda each: (each["type"] == "missing", _line(each["loc"], lines or {}) or 0))
    first = found[0]
    where = _line(first["loc"], lines or {})
    text = _words(
        first["type"], first["msg"], first["loc"], first.get("input"), fields, first.get("ctx")
    )
    return f"line {where}: {text}" if where else text


def parameter_sentence(found: Mapping[str, Any]) -> str:
    """What is wrong with one parameter of a request, as the validator found it."""
    place = (str(found["loc"][-1]),)
    return _words(found["type"], str(found["msg"]), place, found.get("input"), (), found.get("ctx"))


def _line(place: tuple[int | str, ...], lines: Lines) -> int | None:
    """The line of the innermost part of the place that stands in the file."""
    for end in range(len(place), 0, -1):
        if place[:end] in lines:
            return lines[place[:end]]
    return lines.get(())


def _words(
    kind: str,
    message: str,
    place: tuple[int | str, ...],
    value: object,
    fields: Collection[str],
    context: Mapping[str, object] | None,
) -> str:
    name = ".".join(str(part) for part in place)
    if kind == "extra_forbidden":
        known = CONTAINER_FIELDS if place[0] == "container" else fields
        return f"unknown field {name!r}{nearest(str(place[-1]), known)}"
    if kind == "missing":
        return f"{name} is missing: every job needs one."
    if kind == "value_error":
        said = str((context or {}).get("error", message))
        return as_sentence(f"{name} {said}" if name else said)
    if kind in ("literal_error", "enum"):
        expected = str((context or {}).get("expected", "")).replace("'", "")
        return f"{name} must be {expected}, not {shown(value)}."
    if kind in TYPE_WORDS:
        return as_sentence(f"{name or 'a job'} must be {TYPE_WORDS[kind]}, not {shown(value)}")
    if kind in BOUND_WORDS:
        bound, words = BOUND_WORDS[kind]
        said = words.format((context or {}).get(bound))
        return as_sentence(f"{name} must be {said}, not {shown(value)}")
    if kind == "string_pattern_mismatch":
        return f"{name} cannot be {shown(value)}: the API's documentation says how it is written."
    plain = message[0].lower() + message[1:]
    return as_sentence(f"{name}: {plain}, not {shown(value)}" if name else plain)


def nearest(name: str, known: Collection[str]) -> str:
    """The end of a sentence about a name that nobody knows."""
    other = OTHER_WORDS.get(name.lower())
    if other in known:
        return f"; did you mean {other}?"
    return f"; {did_you_mean(name.lower(), sorted(known))}"
