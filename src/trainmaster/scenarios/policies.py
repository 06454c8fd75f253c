"""The policies that were asked for, each with its options: `--policy` and `--set`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainmaster.catalog import policy_names
from trainmaster.config.options import read_options, unknown_option
from trainmaster.errors import BadInput
from trainmaster.input_files import read_text
from trainmaster.policy_files import policy_named
from trainmaster.text.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Setting:
    """One `--set`: for one policy, or for every policy that has the key."""

    policy: str | None
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy by how it was named, and what was set for it."""

    name: str
    named: str
    """The name again, or the path of its file."""
    kind: Any
    settings: dict[str, str]

    def make(self) -> Any:
        """The policy itself."""
        options = read_options(self.name, self.kind.options_type, self.settings, _content)
        return self.kind(options)


def lineup(named: str, set_options: Sequence[str]) -> list[Any]:
    """Ready policies in the order in which they were named."""
    return [each.make() for each in chosen_policies(named, set_options)]


def chosen_policies(named: str, set_options: Sequence[str]) -> list[Chosen]:
    """The policies of `--policy`, by name or path, each with what `--set` says for it."""
    found: dict[str, tuple[str, Any]] = {}
    for part in (part.strip() for part in named.split(",")):
        if not part:
            raise BadInput(
                f"--policy {named!r} has an empty name in it; `trainmaster policies` lists them."
            )
        kind = policy_named(part)
        if kind.name in found:
            raise BadInput(f"--policy names {kind.name} twice.")
        found[kind.name] = part, kind
    settings = [_setting(text) for text in set_options]
    _check_once(settings)
    for setting in settings:
        _check(setting, {name: _keys(kind) for name, (_, kind) in found.items()})
    return [
        Chosen(name, part, kind, _given(kind, settings)) for name, (part, kind) in found.items()
    ]


def _setting(text: str) -> Setting:
    left, equals, value = text.partition("=")
    policy, _, key = left.strip().rpartition(".")
    if not equals or not key:
        raise BadInput(f"--set {text} is not of the form key=value or policy.key=value.")
    return Setting(policy or None, key, value.strip())


def _check_once(settings: Sequence[Setting]) -> None:
    """Refuse an option that is given twice: it is unclear which value is meant."""
    seen: set[tuple[str | None, str]] = set()
    for setting in settings:
        if (setting.policy, setting.key) in seen:
            whose = f"{setting.policy}." if setting.policy else ""
            raise BadInput(f"--set {whose}{setting.key} is given twice; give it once.")
        seen.add((setting.policy, setting.key))


def _keys(kind: Any) -> list[str]:
    return [each.name for each in fields(kind.options_type)]


def _given(kind: Any, settings: Sequence[Setting]) -> dict[str, str]:
    """The settings for this policy; those for it alone override the others."""
    known = _keys(kind)
    given = {s.key: s.value for s in settings if s.policy is None and s.key in known}
    return given | {s.key: s.value for s in settings if s.policy == kind.name}


def _check(setting: Setting, keys: dict[str, list[str]]) -> None:
    """At least one of the policies must have the key."""
    name, key = setting.policy, setting.key
    if name is None and len(keys) == 1:
        (name,) = keys
    if name is None:
        known = dict.fromkeys(each for own in keys.values() for each in own)
        if key not in known:
            hint = did_you_mean(key, known)
            raise BadInput(f"none of the policies has an option {key!r}; {hint}")
    elif name not in keys:
        named = f"--policy names {', '.join(keys)}."
        if name in policy_names():
            raise BadInput(f"--set {name}.… has nothing to set: {named}")
        raise BadInput(f"--set {name}.… names no policy; {did_you_mean(name, keys, named)}")
    elif key not in keys[name]:
        raise BadInput(unknown_option(key, dict.fromkeys(keys[name]), name))


def _content(name: str) -> str:
    return read_text(Path(name), "the file")
