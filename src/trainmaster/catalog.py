"""Names to classes, lazily: ours, and those that other packages add by entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from trainmaster.text.suggest import did_you_mean

POLICIES: Mapping[str, str] = {
    "fifo": "trainmaster.policies.fifo:Fifo",
    "yarn-cs": "trainmaster.policies.yarn_cs:YarnCs",
    "fair": "trainmaster.policies.fair:Fair",
    "srtf": "trainmaster.policies.srtf:Srtf",
    "srsf": "trainmaster.policies.srsf:Srsf",
    "las": "trainmaster.policies.las:Las",
    "gittins": "trainmaster.policies.gittins:Gittins",
    "tiresias-l": "trainmaster.policies.tiresias_l:TiresiasL",
    "tiresias-g": "trainmaster.policies.tiresias_g:TiresiasG",
    "qssf": "trainmaster.policies.qssf.policy:Qssf",
    "philly": "trainmaster.policies.philly.policy:Philly",
    "gandiva": "trainmaster.policies.gandiva.policy:Gandiva",
    "optimus": "trainmaster.policies.optimus.policy:Optimus",
    "max-min": "trainmaster.policies.max_min:MaxMin",
    "afs-l": "trainmaster.policies.afs_l:AfsL",
    "goodput": "trainmaster.policies.goodput.policy:Goodput",
    "themis": "trainmaster.policies.themis.policy:Themis",
    "antman": "trainmaster.policies.antman.policy:AntMan",
    "big-brain": "trainmaster.policies.big_brain.policy:BigBrain",
    "two-level": "trainmaster.policies.two_level:TwoLevel",
    "trainmaster": "trainmaster.policies.trainmaster.policy:Trainmaster",
}

ENTRY_POINT_GROUP = "trainmaster.policies"

ENGINES: Mapping[str, str] = {
    "local": "trainmaster.engines.local.make:make",
    "ray": "trainmaster.engines.ray.make:make",
}
"""What makes each engine (`engines/engine_settings.py`)."""

ENGINE_GROUP = "trainmaster.engines"


class CatalogError(LookupError):
    """A name that is not registered: one sentence, with the nearest name."""


def policy_names() -> tuple[str, ...]:
    """Ours in the order of the table, then others' by name."""
    return _names(POLICIES, ENTRY_POINT_GROUP)


def engine_names() -> tuple[str, ...]:
    return _names(ENGINES, ENGINE_GROUP)


def _names(ours: Mapping[str, str], group: str) -> tuple[str, ...]:
    others = sorted(entry.name for entry in entry_points(group=group))
    return (*ours, *(name for name in others if name not in ours))


def policy_class(name: str) -> Any:
    """The class behind a name, imported now."""
    if name in POLICIES:
        return _named(POLICIES[name])
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            from trainmaster.model.codec import trust

            kind = entry.load()
            trust(kind.__module__)  # its memos may be read again
            return kind
    raise CatalogError(f"there is no policy {name!r}; {did_you_mean(name, policy_names())}")


def engine_maker(name: str) -> Any:
    """What makes the engine of a name, imported now."""
    if name in ENGINES:
        return _named(ENGINES[name])
    for entry in entry_points(group=ENGINE_GROUP):
        if entry.name == name:
            return entry.load()
    raise CatalogError(f"there is no engine {name!r}; {did_you_mean(name, engine_names())}")


def _named(text: str) -> Any:
    module, _, attribute = text.partition(":")
    return getattr(import_module(module), attribute)
