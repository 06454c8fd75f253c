"""Commands write in one place, which shows control characters as codes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CLI = Path(__file__).parents[2] / "src/trainmaster/cli"
WRITERS = {
    "support/console.py": "the place",
    "support/clean_console.py": "its part for Rich",
    "support/output_lines.py": "a job's output, raw as it is",
    "support/terminal.py": "a session's output, raw as it is",
    "support/command.py": "help, our own words",
}
STREAMS = {"stdout", "stderr"}
HARMLESS = {"isatty", "flush", "fileno", "reconfigure"}
ECHOES = {"echo", "secho", "echo_via_pager"}


def outputs(code: str) -> Iterator[str]:
    """Every use of a stream that can write, `print`, the parser's `echo`, and consoles of Rich's own."""
    tree = ast.parse(code)
    harmless = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in HARMLESS
    }
    listed = {  # `for stream in (sys.stdout, sys.stderr): stream.reconfigure(...)`
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple)
        for each in node.iter.elts
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in STREAMS:
            if _is(node.value, "sys") and id(node) not in harmless | listed:
                yield f"line {node.lineno}: sys.{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr in ECHOES:
            if _is(node.value, "typer") or _is(node.value, "click"):
                yield f"line {node.lineno}: {node.attr}"
        elif isinstance(node, ast.Call) and (_is(node.func, "print") or _is(node.func, "Console")):
            yield f"line {node.lineno}: {ast.unparse(node.func)}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("sys", "typer", "click", "rich"):
            for name in node.names:
                if name.name in STREAMS | ECHOES | {"print"}:
                    yield f"line {node.lineno}: from {node.module} import {name.name}"


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def test_no_command_writes_past_the_place_that_cleans() -> None:
    files = {path.relative_to(CLI).as_posix(): path for path in CLI.rglob("*.py")}
    assert set(WRITERS) <= set(files)
    found = {
        name: list(outputs(path.read_text()))
        for name, path in files.items()
        if name not in WRITERS and not name.startswith("templates/")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code",
    [
        "sys.stdout.write(name)",
        "sys.stdout.buffer.write(name)",
        "csv.writer(sys.stdout)",
        "out = sys.stderr",
        "typer.echo(name)",
        "say = typer.echo",
        "print(name)",
        "Console().print(name)",
        "from typer import echo",
        "from sys import stdout",
        "from rich import print",
    ],
)
def test_a_way_past_it_is_found(code: str) -> None:
    assert list(outputs(code))


@pytest.mark.parametrize(
    "code", ["sys.stdout.flush()", "sys.stderr.isatty()", "console.print(x)", "write(name)"]
)
def test_what_writes_nothing_itself_is_not(code: str) -> None:
    assert not list(outputs(code))
