"""Policies that users keep in a file of their own, beside those that the catalog names."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from trainmaster.catalog import CatalogError, policy_class
from trainmaster.config.options import read_options
from trainmaster.model.codec import POLICY_FILE
from trainmaster.model.policy_spec import PolicySpec

ReadFile = Callable[[str], str]


def policy_named(name: str) -> Any:
    """The class behind a name of the catalog, or in the file of that path; imported now."""
    return class_in_file(Path(name)) if is_path(name) else policy_class(name)


def policy_with(name: str, settings: Mapping[str, str]) -> Any:
    """A fresh policy with these settings; files that options name are read."""
    kind = policy_named(name)
    return kind(read_options(name, kind.options_type, settings, content_of))


def is_path(text: str) -> bool:
    """Whether this names a file with a policy in it, rather than a policy."""
    return text.endswith(".py") or "/" in text


def content_of(file: str) -> str:
    return Path(file).read_text(encoding="utf-8-sig")


# -- by content ----------------------------------------------------------------------------------------


def spec_of(name: str, settings: Mapping[str, str]) -> PolicySpec:
    """The policy with the content of every file that its name and its options name."""
    source, shown = "", name
    if is_path(name):
        path = Path(name)
        source, shown = _text_of(path), path.name
        kind = class_in_source(name, source)
    else:
        kind = policy_class(name)
    files: dict[str, str] = {}

    def read(file: str) -> str:
        return files.setdefault(file, content_of(file))

    read_options(shown, kind.options_type, settings, read)
    return PolicySpec(shown, tuple(sorted(settings.items())), source, tuple(files.items()))


def class_of(spec: PolicySpec) -> Any:
    """The class of a policy; what is stored without its content is looked for where it was."""
    return class_in_source(spec.name, spec.source) if spec.source else policy_named(spec.name)


def policy_from(spec: PolicySpec, read_missing: ReadFile = content_of) -> Any:
    """A fresh policy; no file is read but for specs that were stored without their content."""
    kind, files = class_of(spec), dict(spec.files)

    def read(file: str) -> str:
        return files[file] if file in files else read_missing(file)

    return kind(read_options(spec.name, kind.options_type, dict(spec.options), read))


# -- loading -------------------------------------------------------------------------------------------


def class_in_file(path: Path) -> Any:
    """The one policy class that a file defines."""
    return class_in_source(str(path), _text_of(path))


def _text_of(path: Path) -> str:
    try:
        return content_of(str(path))
    except (FileNotFoundError, IsADirectoryError):
        raise CatalogError(f"there is no file {path} with a policy in it.") from None
    except UnicodeDecodeError:
        raise CatalogError(f"{path} is not a text file, so there is no policy in it.") from None


def class_in_source(name: str, source: str) -> Any:
    """The one policy class that the text of this file defines."""
    module = _loaded(name, source)
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
            f"{name} must define one policy class (a class with `plan`), not {found}."
        )
    kind = kinds[0]
    for attribute in ("name", "options_type"):
        if not hasattr(kind, attribute):
            raise CatalogError(f"{name}: class {kind.__name__} needs `{attribute} = ...`.")
    return kind


@lru_cache(maxsize=16)
def _loaded(name: str, source: str) -> ModuleType:
    """The module of this text: the same text gives the same module, whose types memos are made of."""
    digest = sha256(f"{name}\n{source}".encode()).hexdigest()[:12]
    module = ModuleType(f"{POLICY_FILE}{Path(name).stem}_{digest}")
    module.__file__ = name
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[module.__name__]
        raise CatalogError(
            f"{name}{line_in(name, error)} cannot be loaded: {type(error).__name__}: {error}."
        ) from error
    return module


def line_in(name: str, error: BaseException) -> str:
    """Where in the user's own file it went wrong: `:12`."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    at, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            at = trace.tb_lineno
        trace = trace.tb_next
    return f":{at}" if at is not None else ""
