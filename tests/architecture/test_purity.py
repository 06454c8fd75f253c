"""What no linter finds: the built-ins that do I/O, and generators that nobody seeded."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
IMPURE_BUILTINS = {"open", "input", "print", "breakpoint", "eval", "exec", "__import__"}
GENERATORS = {"Random", "default_rng", "RandomState", "SeedSequence"}


def pure_rooms() -> list[Path]:
    """The rooms of the purity contract, so that a new one is named once."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (purity,) = [contract for contract in contracts if contract["id"] == "purity"]
    return [SRC / room.replace(".", "/") for room in purity["source_modules"]]


def impure_builtins(code: str) -> Iterator[str]:
    """Every mention of a built-in that does I/O or runs text, unless the code defines the name."""
    tree = ast.parse(code)
    own = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in IMPURE_BUILTINS - own:
            yield f"line {node.lineno}: {node.id}"


def unseeded_generators(code: str) -> Iterator[str]:
    """Every `Random()` or `default_rng()` whose seed is missing or None."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        name = node.func.id if isinstance(node.func, ast.Name) else name
        seeds = [*node.args, *(keyword.value for keyword in node.keywords)]
        is_seeded = any(not (isinstance(s, ast.Constant) and s.value is None) for s in seeds)
        if name in GENERATORS and not is_seeded:
            yield f"line {node.lineno}: {name}"


def test_pure_rooms_use_no_impure_builtins() -> None:
    files = [file for room in pure_rooms() for file in room.rglob("*.py")]
    assert files
    found = {file: list(impure_builtins(file.read_text())) for file in files}
    assert {str(file): lines for file, lines in found.items() if lines} == {}


def test_every_generator_is_seeded() -> None:
    found = {file: list(unseeded_generators(file.read_text())) for file in SRC.rglob("*.py")}
    assert {str(file): lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize("code", ["open('x')", "f = print", "eval('1')"])
def test_an_impure_builtin_is_found(code: str) -> None:
    assert list(impure_builtins(code))


@pytest.mark.parametrize("code", ["occupancy.open(3)", "def f(open): return open"])
def test_a_name_of_our_own_is_not_the_builtin(code: str) -> None:
    assert not list(impure_builtins(code))


@pytest.mark.parametrize(
    "code", ["random.Random()", "Random(None)", "np.random.default_rng()", "default_rng(seed=None)"]
)
def test_a_missing_seed_is_found(code: str) -> None:
    assert list(unseeded_generators(code))


@pytest.mark.parametrize("code", ["random.Random(7)", "default_rng(seed=seed)", "Random(x + 1)"])
def test_a_seed_is_enough(code: str) -> None:
    assert not list(unseeded_generators(code))
