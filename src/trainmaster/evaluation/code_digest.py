"""A digest of the code that a result depends on, so that an old one is never taken for a new one.

The simulator and the evaluation's own engine count for every trial, a policy's file and what it
imports for that policy's. A policy that calls another by name depends on all of them. Comments and
docstrings change no result, and do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from inspect import getsourcefile
from pathlib import Path
from types import CodeType
from typing import Any

from trainmaster import __version__
from trainmaster.policy_files import policy_named

PACKAGE = "trainmaster"
ROOT = Path(__file__).parents[2]
ENGINE = "trainmaster.evaluation.trial"
CATALOG = "trainmaster.catalog"
POLICIES = "trainmaster.policies"
DRAWS = "numpy"
"""The package that streams are drawn with: another version may draw others."""
NOT_FOLLOWED = (CATALOG, "trainmaster.evaluation.suites")
"""Tables of names: what they name is counted where it is used."""


@cache
def digest_of_policy(name: str) -> str:
    """Changes with the versions, the simulator, or what this policy is made of."""
    kind = policy_named(name)
    files = {*files_of_module(ENGINE), *_files_of_class(kind)}
    made_with = f"{__version__} {sys.version_info[:2]} {version(DRAWS)}"
    digest = sha256(made_with.encode())
    for file in sorted(files):
        digest.update(code_digest(file).encode())
    return digest.hexdigest()


@cache
def code_digest(file: Path) -> str:
    """Of what a source file does, whatever it says about it."""
    tree = _wordless(ast.parse(file.read_bytes()))
    code = compile(tree, file.name, "exec", dont_inherit=True, optimize=1)
    return sha256("\n".join([file.name, *_instructions(code)]).encode()).hexdigest()


def _wordless(tree: ast.Module) -> ast.Module:
    """The same without strings that stand alone."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_words(each)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.fix_missing_locations(tree)


def _is_words(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _instructions(code: CodeType) -> Iterator[str]:
    """What is carried out, without where in the file it is written."""
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


@cache
def file_digest(path: Path) -> str:
    """Of a file's bytes; of a folder's, those of all files in it, with their names."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        listed = [f"{each.relative_to(path)} {file_digest(each)}" for each in files]
        return sha256("\n".join(listed).encode()).hexdigest()
    with path.open("rb") as source:
        digest = sha256()
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _files_of_class(kind: Any) -> set[Path]:
    own = getsourcefile(kind)
    assert own is not None, f"{kind.__name__} has no source file"
    if not kind.__module__.startswith(f"{PACKAGE}."):
        imported = _imported(ast.parse(Path(own).read_bytes()))
        return {Path(own), *_all_policies(), *_files_of_modules(imported)}
    modules = _reached(kind.__module__)
    return {*files_of_module(kind.__module__), *(_all_policies() if CATALOG in modules else ())}


@cache
def _all_policies() -> frozenset[Path]:
    """The sources of all policies, and those that any of them needs."""
    folder = _file(POLICIES)
    assert folder is not None
    files = folder.parent.rglob("*.py")
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return frozenset(_files_of_modules(names))


def _files_of_modules(modules: Iterable[str]) -> set[Path]:
    return {file for module in modules for file in files_of_module(module)}


def files_of_module(module: str) -> set[Path]:
    """The module's own source and those of ours that it needs."""
    followed = [name for name in _reached(module) if not name.startswith(NOT_FOLLOWED)]
    return {file for name in followed if (file := _file(name)) is not None}


@cache
def _reached(module: str) -> frozenset[str]:
    """Modules of ours that this one imports, now or when called, and what those import."""
    found, pending = set(), [module]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        if not name.startswith(NOT_FOLLOWED):
            pending.extend(_imports(name))
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    file = _file(module)
    if file is None:
        return ()
    return tuple(_imported(ast.parse(file.read_bytes())))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith(PACKAGE))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


@cache
def _file(module: str) -> Path | None:
    """Where a module's source is; None for a name inside a module."""
    place = ROOT.joinpath(*module.split("."))
    return next((file for file in (place / "__init__.py", _py(place)) if file.is_file()), None)


def _py(place: Path) -> Path:
    return place.with_name(f"{place.name}.py")
