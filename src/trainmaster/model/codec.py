"""Values as JSON and back: events, orders, launch specs, reports, topologies and the memos of policies.

A tagged object says what it is: `{"is": "Run", "job": "12", "attempt": 1}` (`is` cannot be a field: it
is a word of the language). Lists are tuples. Fields that have their default are left out, missing ones
get it, and those of a newer version are ignored, so that old logs can be read.

What is read names types, and never makes anything be imported. Types of the model go by their name, our
other types by the tag that `stored_as` gives them for good, so that modules and classes may be renamed
(`former_tags.py` has the names that older stores use). Types of users' own policies go as
`module:qualname`, and are found only in modules that are loaded already.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from math import isfinite
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from trainmaster.model import (
    actions,
    deadline_notices,
    device_aside,
    device_failures,
    engine_reports,
    events,
    failure,
    inputs,
    job,
    launch_spec,
    memory_estimate,
    placement,
    plan,
    profile,
    progress,
    queue,
    quota,
    reasons,
    reservation,
    stop_reasons,
    topology,
    trace,
)
from trainmaster.model.former_tags import FORMER_TAGS
from trainmaster.model.plan import FrozenMap

Json = Any
"""What `json.loads` gives: None, bool, int, float, str, lists and string-keyed dicts of them."""

TAG = "is"
PLAIN = frozenset({str, int, bool, type(None)})
MODULES: tuple[ModuleType, ...] = (
    *(actions, deadline_notices, device_aside, device_failures, engine_reports, events),
    *(failure, inputs, job),
    *(
        launch_spec,
        memory_estimate,
        placement,
        plan,
        profile,
        progress,
        queue,
        quota,
        reasons,
        reservation,
        stop_reasons,
        topology,
        trace,
    ),
)
OURS = "trainmaster."
POLICY_FILE = "trainmaster_policy_file_"
"""How the names of modules begin that users' own policy files become."""

Upgrade = Callable[[Mapping[str, Json]], Mapping[str, Json]]
"""Turns the fields of an older version of a type, still as JSON, into those of today."""

_trusted: set[str] = set()
_stored: dict[str, type] = {}
_tags: dict[type, str] = {}
_upgrades: dict[type, Upgrade] = {}

K = TypeVar("K", bound=type)


def stored_as(tag: str, upgrade: Upgrade | None = None) -> Callable[[K], K]:
    """Give a type of ours its tag in stores. It never changes, whatever the type is called in the code.

    `upgrade` is for a type whose fields have changed since it was first stored.
    """

    def register(kind: K) -> K:
        known = _stored.setdefault(tag, kind)
        assert known.__qualname__ == kind.__qualname__, f"two types are stored as {tag}"
        _stored[tag], _tags[kind] = kind, tag
        if upgrade is not None:
            _upgrades[kind] = upgrade
        return kind

    return register


class CodecError(ValueError):
    """A value that cannot be written, or text that cannot be read: one sentence."""


def trust(package: str) -> None:
    """Let types of this package be named too: a policy of another project was loaded from it."""
    _trusted.add(package.partition(".")[0])


def encode(value: object) -> Json:
    """The value as JSON; CodecError if some part of it cannot be stored."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is tuple:
        return [encode(each) for each in cast("tuple[object, ...]", value)]
    return _writer(cast(Any, kind))(value)


def decode(json: Json) -> Any:
    """The value that was encoded; CodecError if this does not encode one."""
    kind = type(json)
    if kind in PLAIN or kind is float:
        return json
    if kind is list:
        return tuple([decode(each) for each in json])
    if kind is not dict or type(json.get(TAG)) is not str:
        raise CodecError(f"{str(json)[:80]!r} does not say what it is.")
    return _reader(json[TAG])(json)


def dumps(value: object) -> str:
    """The value as one line of text."""
    return json.dumps(encode(value), separators=(",", ":"), allow_nan=False)


def loads(text: str) -> Any:
    """The value of such a line."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise CodecError(f"{text[:80]!r} is not JSON: {error}.") from error
    return decode(body)


# -- what types there are ------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A field of a type, as far as its text goes."""

    name: str
    default: Callable[[], object] | None
    """None where it must be given."""


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_field_defaults")


def _is_record(kind: type) -> bool:
    """Whether it is a frozen dataclass or a named tuple."""
    if _is_named_tuple(kind):
        return True
    return is_dataclass(kind) and bool(cast(Any, kind).__dataclass_params__.frozen)


def _model_types() -> Iterator[type]:
    for module in MODULES:
        for kind in vars(module).values():
            is_type = isinstance(kind, type) and kind.__module__ == module.__name__
            if is_type and (_is_record(kind) or issubclass(kind, Enum)):
                yield kind


BY_NAME: dict[str, type] = {}
for _kind in _model_types():
    assert _kind.__name__ not in BY_NAME, f"two types are called {_kind.__name__}"
    BY_NAME[_kind.__name__] = _kind


def _is_trusted(module: str) -> bool:
    return module.startswith(POLICY_FILE) or module.partition(".")[0] in _trusted


def _tag_of(kind: type) -> str:
    """How a type is named in text: so that it will be found again."""
    if BY_NAME.get(kind.__name__) is kind:
        return kind.__name__
    if kind in _tags:
        return _tags[kind]
    tag = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__.startswith(OURS):
        raise CodecError(f"{tag} has no stable tag (stored_as), so it cannot be written.")
    if _type_of(tag) is not kind:
        raise CodecError(f"{tag} is not where its name says, so it cannot be written.")
    return tag


def _type_of(tag: str) -> type:
    """The type of that name; one that is not known, not loaded or not ours is refused."""
    tag = FORMER_TAGS.get(tag, tag)
    known = BY_NAME.get(tag) or _stored.get(tag)
    if known is not None:
        return known
    name, colon, path = tag.partition(":")
    if not colon or name.startswith(OURS):
        raise CodecError(f"there is no type {tag!r} in this version, or its policy is not loaded.")
    if not _is_trusted(name):
        raise CodecError(f"type {tag!r} is refused: it is neither ours nor a loaded policy's.")
    found: object = sys.modules.get(name)
    for part in path.split("."):
        found = vars(found).get(part) if found is not None and hasattr(found, "__dict__") else None
    is_type = isinstance(found, type) and (_is_record(found) or issubclass(found, Enum))
    if not is_type or cast(type, found).__module__ != name:
        raise CodecError(f"there is no type {tag!r} among the loaded policies.")
    return cast(type, found)


# -- writing -------------------------------------------------------------------------------------------

Writer = Callable[[Any], Json]


def _write_float(value: float) -> Json:
    return value if isfinite(value) else {TAG: "float", "value": repr(value)}


def _write_set(value: frozenset[object]) -> Json:
    """In an order that depends on the content alone."""
    return {TAG: "frozenset", "of": sorted([encode(each) for each in value], key=json.dumps)}


def _write_map(value: FrozenMap[object, object]) -> Json:
    return {TAG: "FrozenMap", "of": [[encode(k), encode(v)] for k, v in value.items()]}


def _write_dict(value: dict[object, object]) -> Json:
    return {TAG: "dict", "of": [[encode(k), encode(v)] for k, v in value.items()]}


WRITERS: dict[type, Writer] = {
    float: _write_float,
    frozenset: _write_set,
    FrozenMap: _write_map,
    dict: _write_dict,
}


@lru_cache(maxsize=1024)
def _writer(kind: type) -> Writer:
    """How values of a type are written, worked out once."""
    known = WRITERS.get(kind)
    if known is not None:
        return known
    if issubclass(kind, Enum):
        tag = _tag_of(kind)
        return lambda value: {TAG: tag, "name": value.name}
    if not _is_record(kind):
        raise CodecError(
            f"{kind.__module__}.{kind.__qualname__} is not a value, so it is not written."
        )
    return _record_writer(_tag_of(kind), _entries(cast(Any, kind)))


def _record_writer(tag: str, entries: tuple[Entry, ...]) -> Writer:
    usual: list[tuple[str, object, str]] = []
    for entry in entries:
        default = MISSING if entry.default is None else entry.default()
        text = "" if entry.default is None else json.dumps(encode(default))
        usual.append((entry.name, default, text))

    def write(value: object) -> Json:
        body: dict[str, Json] = {TAG: tag}
        for name, default, text in usual:
            held = getattr(value, name)
            if held is default:
                continue
            kind, written = type(held), encode(held)
            # 1, 1.0 and True are equal, and are not the same: types and texts are compared too.
            is_like = kind is type(default)
            if not is_like or (held != default if kind in PLAIN else json.dumps(written) != text):
                body[name] = written
        return body

    return write


@lru_cache(maxsize=1024)
def _entries(kind: type) -> tuple[Entry, ...]:
    """The fields of a type that its constructor takes."""
    if _is_named_tuple(kind):
        named = cast(Any, kind)
        defaults: Mapping[str, object] = named._field_defaults
        return tuple(
            Entry(name, partial(_same, defaults[name]) if name in defaults else None)
            for name in named._fields
        )
    found = []
    for each in fields(cast(Any, kind)):
        default: Callable[[], object] | None = None
        if each.default_factory is not MISSING:
            default = each.default_factory
        elif each.default is not MISSING:
            default = partial(_same, each.default)
        if each.init:
            found.append(Entry(each.name, default))
    return tuple(found)


def _same(value: object) -> object:
    return value


# -- reading -------------------------------------------------------------------------------------------

Reader = Callable[[Json], Any]


def _members(body: Json) -> list[Any]:
    if type(body.get("of")) is not list:
        raise CodecError(f"a {body[TAG]} must say what it is of.")
    return [decode(each) for each in body["of"]]


def _read_float(body: Json) -> float:
    try:
        return float(body["value"])
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError(f"{str(body)[:80]!r} is not a number.") from error


def _pairs(body: Json) -> dict[Any, Any]:
    members = _members(body)
    try:
        return dict(members)
    except (TypeError, ValueError) as error:
        raise CodecError(f"a {body[TAG]} must be of pairs of a key and a value.") from error


def _read_set(body: Json) -> frozenset[Any]:
    members = _members(body)
    try:
        return frozenset(members)
    except TypeError as error:
        raise CodecError("a frozenset must be of values.") from error


READERS: dict[str, Reader] = {
    "float": _read_float,
    "frozenset": _read_set,
    "FrozenMap": lambda body: FrozenMap(_pairs(body)),
    "dict": _pairs,
}


def _reader(tag: str) -> Reader:
    """The reader of a tag. Looked up each time for a policy's types: its file may be reloaded."""
    return READERS.get(tag) or _reader_of(_type_of(tag))


@lru_cache(maxsize=1024)
def _reader_of(kind: type) -> Reader:
    return _enum_reader(kind) if issubclass(kind, Enum) else _record_reader(kind)


def _enum_reader(kind: type[Enum]) -> Reader:
    members = kind.__members__

    def read(body: Json) -> Enum:
        name = body.get("name")
        if name not in members:
            raise CodecError(f"{kind.__name__} has no {name!r} in this version.")
        return members[name]

    return read


def _record_reader(kind: type) -> Reader:
    entries, upgrade = _entries(kind), _upgrades.get(kind)

    def read(body: Json) -> object:
        body = body if upgrade is None else upgrade(body)
        given = {entry.name: decode(body[entry.name]) for entry in entries if entry.name in body}
        missing = [e.name for e in entries if e.default is None and e.name not in given]
        if missing:
            raise CodecError(f"a {kind.__name__} must say its {' and its '.join(missing)}.")
        return kind(**given)

    return read
