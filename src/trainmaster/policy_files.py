"""Policies that users keep in a file of their own, beside those that the catalog names."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.catalog import CatalogError, policy_class
from trainmaster.config.options import read_options


def policy_named(name: str) -> Any:
    """The class behind a name of the catalog, or in the file of that path; imported now."""
    return class_in_file(Path(name)) if is_path(name) else policy_class(name)


def policy_with(name: str, settings: Mapping[str, str]) -> Any:
    """A fresh policy with these settings; files that options name are read."""
    kind = policy_named(name)
    return kind(read_options(name, kind.options_type, settings, _content))


def _content(file: str) -> str:
    return Path(file).read_text(encoding="utf-8-sig")


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
