"""The policies that were asked for, each with its options: `--policy` and `--set`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainmaster.catalog import policy_names
from trainmaster.cli.support.errors import BadInput
from trainmaster.cli.support.files import read_text
from trainmaster.config.options import read_options, unknown_option
from trainmaster.policy_files import policy_named
from trainmaster.text.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Setting:
    """One `--set`: for one policy, or for every policy that has the key."""

    policy: str | None
    key: str
    value: str


def lineup(named: str, set_options: Sequence[str]) -> list[Any]:
    """Ready policies in the order in which they were named."""
    classes = chosen_classes(named)
    settings = [_setting(text) for text in set_options]
    _check_once(settings)
    for setting in settings:
        _check(setting, classes)
    return [_made(name, kind, settings) for name, kind in classes.items()]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy by how it was named, and what was set for it."""

    name: str
    named: str
    """The name again, or the path of its file."""
    settings: dict[str, str]


def settings_of(named: str, set_options: Sequence[str]) -> list[Chosen]:
    """The same policies with their settings as they were written; every one of them is checked."""
    lineup(named, set_options)
    settings = [_setting(text) for text in set_options]
    parts = [part.strip() for part in named.split(",")]
    classes = chosen_classes(named)
    return [
        Chosen(name, part, _given(name, kind, settings))
        for part, (name, kind) in zip(parts, classes.items(), strict=True)
    ]


def chosen_classes(named: str) -> dict[str, Any]:
    """Classes by policy name, from names of the catalog and paths of files."""
    found: dict[str, Any] = {}
    for each in (part.strip() for part in named.split(",")):
        if not each:
            raise BadInput(f"--policy {named!r} has an empty name in it; `trainmaster policies`.")
        kind = policy_named(each)
        if kind.name in found:
            raise BadInput(f"--policy names {kind.name} twice.")
        found[kind.name] = kind
    return found


def _setting(text: str) -> Setting:
    left, equals, value = text.partition("=")
    policy, _, key = left.strip().rpartition(".")
    if not equals or not key:
        raise BadInput(f"--set {text} is not of the form key=value or policy.key=value.")
    return Setting(policy or None, key, value.strip())


def _check_once(settings: Sequence[Setting]) -> None:
    """The same option twice is a slip: neither value is obviously the one that was meant."""
    seen: set[tuple[str | None, str]] = set()
    for setting in settings:
        if (setting.policy, setting.key) in seen:
            whose = f"{setting.policy}." if setting.policy else ""
            raise BadInput(f"--set {whose}{setting.key} is given twice; give it once.")
        seen.add((setting.policy, setting.key))


def _keys(kind: Any) -> list[str]:
    return [each.name for each in fields(kind.options_type)]


def _check(setting: Setting, classes: dict[str, Any]) -> None:
    """Somebody must know the key."""
    if setting.policy is None:
        known = dict.fromkeys(key for kind in classes.values() for key in _keys(kind))
        if setting.key not in known and len(classes) == 1:
            raise BadInput(unknown_option(setting.key, known, next(iter(classes))))
        if setting.key not in known:
            raise BadInput(
                f"none of the policies has an option {setting.key!r};"
                f" {did_you_mean(setting.key, known)}"
            )
        return
    if setting.policy not in classes:
        raise BadInput(_unknown_policy(setting.policy, classes))
    if setting.key not in _keys(classes[setting.policy]):
        known = dict.fromkeys(_keys(classes[setting.policy]))
        raise BadInput(unknown_option(setting.key, known, setting.policy))


def _unknown_policy(name: str, classes: dict[str, Any]) -> str:
    if name in policy_names():
        return f"--set {name}.… has nothing to set: --policy names {', '.join(classes)}."
    hint = did_you_mean(name, classes, f"--policy names {', '.join(classes)}.")
    return f"--set {name}.… names no policy; {hint}"


def _made(name: str, kind: Any, settings: Sequence[Setting]) -> Any:
    given = _given(name, kind, settings)
    return kind(read_options(name, kind.options_type, given, _content))


def _given(name: str, kind: Any, settings: Sequence[Setting]) -> dict[str, str]:
    """What concerns this policy; what is set for it alone comes first."""
    known = _keys(kind)
    given = {s.key: s.value for s in settings if s.policy is None and s.key in known}
    return given | {s.key: s.value for s in settings if s.policy == name}


def _content(name: str) -> str:
    return read_text(Path(name), "the file")
