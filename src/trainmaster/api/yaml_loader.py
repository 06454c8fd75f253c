"""Job files as text: YAML documents with the line of every field, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Protocol, cast

import yaml

from trainmaster.api.input_limits import DEEPEST, MOST_VALUES, check_plain
from trainmaster.api.jobfile import JobFile, job_file_of
from trainmaster.api.validation_errors import BadJobFile, Lines

Raw = dict[str, object]


class _Loader(yaml.SafeLoader):
    """YAML as version 1.2 reads it: `12_3` is no number, `no` is no boolean, a date is a text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_CORE = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
)
for _tag, _regex, _first in _CORE:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_regex})$"),
        [each if each != "\0" else "" for each in _first],
    )


def _whole_number(_loader: yaml.SafeLoader, node: yaml.Node) -> int:
    """Decimal, whatever zeros it begins with: YAML 1.1 would take 010 for eight."""
    if len(node.value) > 400:
        raise yaml.MarkedYAMLError(problem="a number is too long", problem_mark=node.start_mark)
    return int(node.value)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


class _Composes(Protocol):
    """What the loader offers; its stubs leave these untyped."""

    def check_node(self) -> bool: ...
    def get_node(self) -> yaml.Node: ...
    def construct_document(self, node: yaml.Node) -> object: ...
    def dispose(self) -> None: ...


def read_yaml(text: str) -> list[tuple[object, Lines]]:
    """Every document with the lines of its fields; empty documents are left out."""
    if "\x00" in text:
        raise BadJobFile("This is no YAML: it has a NUL character in it.", is_malformed=True)
    try:
        loader = cast(_Composes, _Loader(text))
        try:
            return list(_documents(loader))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise BadJobFile(_mistake(error), is_malformed=True) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = str(error).split("\n")[0][:120] or "it is nested too deeply"
        raise BadJobFile(f"This is no YAML: {said}.", is_malformed=True) from None


def _documents(loader: _Composes) -> Iterator[tuple[object, Lines]]:
    while loader.check_node():
        node = loader.get_node()
        lines = _lines(node)
        document = loader.construct_document(node)
        if document is not None:
            yield document, lines


def _lines(top: yaml.Node) -> dict[tuple[str | int, ...], int]:
    """Where each key and item stands; refuses what aliases blow up or tie in a knot."""
    found: dict[tuple[str | int, ...], int] = {}
    todo: list[tuple[yaml.Node, tuple[str | int, ...]]] = [(top, ())]
    left = MOST_VALUES
    while todo:
        node, path = todo.pop()
        found.setdefault(path, node.start_mark.line + 1)
        left -= 1
        if len(path) > DEEPEST or left < 0:
            raise BadJobFile("The job file is nested too deeply or has too many values.")
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
                if name in seen:
                    raise BadJobFile(
                        f"line {key.start_mark.line + 1}: {name} is given twice.", is_malformed=True
                    )
                seen.add(name)
                found[(*path, name)] = key.start_mark.line + 1
                todo.append((value, (*path, name)))
        elif isinstance(node, yaml.SequenceNode):
            todo.extend((each, (*path, at)) for at, each in enumerate(node.value))
    return found


def _mistake(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    line = f"line {mark.line + 1}: " if mark is not None else ""
    problem = (error.problem or error.context or "it cannot be read").split("\n")[0]
    hint = ""
    if "\\t" in problem or "tab" in problem:
        hint = "; use spaces, not tabs, before a field"
    elif "mapping values are not allowed" in problem:
        hint = "; quote a text that has a colon in it"
    return f"{line}this is no YAML: {problem}{hint}."


def read_json(text: str | bytes) -> object:
    """JSON as everybody else means it: no NaN, no name twice, no bottomless nesting."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except RecursionError:
        raise BadJobFile("The body is nested too deeply.", is_malformed=True) from None
    except ValueError as error:
        said = str(error)[:120]
        raise BadJobFile(f"The body is no JSON: {said}.", is_malformed=True) from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def jobs_in_yaml(text: str) -> list[tuple[JobFile, Raw]]:
    """The jobs of a YAML file, checked; each with what was written."""
    found = []
    for raw, lines in read_yaml(text):
        check_plain(raw)
        found.append((job_file_of(raw, lines), cast(Raw, raw)))
    if not found:
        raise BadJobFile("The file has no job in it: it needs a command at least.")
    return found


def jobs_in_json(body: object) -> list[tuple[JobFile, Raw]]:
    """One job, or `{"jobs": [...]}` for several."""
    check_jobs = body.get("jobs") if isinstance(body, dict) and set(body) == {"jobs"} else [body]
    if not isinstance(check_jobs, list) or not check_jobs:
        raise BadJobFile("jobs must be a list of at least one job.")
    found = []
    for number, raw in enumerate(check_jobs, start=1):
        try:
            check_plain(raw)
            found.append((job_file_of(raw), cast(Raw, raw)))
        except BadJobFile as bad:
            if len(check_jobs) == 1:
                raise
            raise BadJobFile(f"job {number} of {len(check_jobs)}: {bad}") from None
    return found
