"""Names to classes, lazily: ours, those that other packages add by entry points, and those in files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

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
    "qssf": "trainmaster.policies.qssf:Qssf",
    "philly": "trainmaster.policies.philly:Philly",
    "gandiva": "trainmaster.policies.gandiva:Gandiva",
    "optimus": "trainmaster.policies.optimus:Optimus",
    "max-min": "trainmaster.policies.max_min:MaxMin",
    "afs-l": "trainmaster.policies.afs_l:AfsL",
    "goodput": "trainmaster.policies.goodput:Goodput",
    "themis": "trainmaster.policies.themis:Themis",
    "antman": "trainmaster.policies.antman:AntMan",
    "big-brain": "trainmaster.policies.big_brain:BigBrain",
    "two-level": "trainmaster.policies.two_level:TwoLevel",
    "trainmaster": "trainmaster.policies.trainmaster:Trainmaster",
}

ENTRY_POINT_GROUP = "trainmaster.policies"


class CatalogError(LookupError):
    """A name that nobody has registered: one sentence, with the nearest name."""


def policy_names() -> tuple[str, ...]:
    """Ours in the order of the table, then others' by name."""
    others = sorted(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))
    return (*POLICIES, *(name for name in others if name not in POLICIES))


def policy_class(name: str) -> Any:
    """The class behind a name or in a file, imported now."""
    if is_path(name):
        return class_in_file(Path(name))
    if name in POLICIES:
        module, _, attribute = POLICIES[name].partition(":")
        return getattr(import_module(module), attribute)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return entry.load()
    names = policy_names()
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
    raise CatalogError(f"there is no policy {name!r}; {hint}")


# -- policies in files -------------------------------------------------------------------------------


def is_path(text: str) -> bool:
    """Whether this names a file with a policy in it, rather than a policy."""
    return text.endswith(".py") or "/" in text


def class_in_file(path: Path) -> Any:
    """The one policy class that a file defines."""
    if not path.is_file():
        raise CatalogError(f"--policy {path} is no file.")
    module = _loaded(path)
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and callable(getattr(kind, "plan", None))
        and not kind.__name__.startswith("_")
    ]
    if len(kinds) != 1:
        found = ", ".join(kind.__name__ for kind in kinds) or "none"
        raise CatalogError(
            f"{path} must define one policy class (a class with `plan`), not {found}."
        )
    kind = kinds[0]
    for attribute in ("name", "options_type"):
        if not hasattr(kind, attribute):
            raise CatalogError(f"{path}: class {kind.__name__} needs `{attribute} = ...`.")
    return kind


def _loaded(path: Path) -> Any:
    name = f"trainmaster_policy_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = _line_in(path, error)
        raise CatalogError(
            f"{path}{line} cannot be loaded: {type(error).__name__}: {error}."
        ) from error
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """Where in the user's own file it went wrong."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}"
    at, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path.resolve()):
            at = trace.tb_lineno
        trace = trace.tb_next
    return f" line {at}" if at is not None else ""
