"""Writes the table of policies in docs/policies/README.md from the code.

    python docs/policy_table.py

A row has the policy's name, the paper of its docstring, its file or package, the mechanisms that
it imports, and its lines of code without blanks, comments and docstrings.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "policies" / "README.md"
BEGIN, END = "<!-- table: written by docs/policy_table.py -->\n", "<!-- end of table -->\n"
PAPER = re.compile(r"[A-Z][A-Za-z]+'\d\d")
MECHANISMS = "trainmaster.mechanisms."
BORING = {"base_policy", "options"}
"""What every policy uses."""
SKIPPED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def table() -> str:
    """The table as Markdown, one row for each policy of the catalog."""
    from trainmaster.catalog import POLICIES

    rows = ["| Policy | Paper | Code | Mechanisms | Lines |", "|---|---|---|---|---:|"]
    for name, where in POLICIES.items():
        module = ROOT / "src" / (where.partition(":")[0].replace(".", "/") + ".py")
        place = module.parent if module.name == "policy.py" else module
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        paper = PAPER.search(said.partition("\n\n")[0])
        used = sorted({each for file in files for each in mechanisms(file)} - BORING)
        rows.append(
            f"| [`{name}`]({name}.md) | {paper[0] if paper else ''} | {link(place)}"
            f" | {', '.join(f'`{each}`' for each in used)} | {sum(map(code_lines, files)):,} |"
        )
    return "\n".join(rows) + "\n"


def link(place: Path) -> str:
    shown = place.name + ("/" if place.is_dir() else "")
    return f"[{shown}](../../{place.relative_to(ROOT).as_posix()})"


def mechanisms(file: Path) -> Iterator[str]:
    """The modules, or the package, of mechanisms that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        for name in names:
            if name.startswith(MECHANISMS):
                yield name.removeprefix(MECHANISMS).partition(".")[0]


def code_lines(file: Path) -> int:
    """Lines with code on them: no blanks, comments or docstrings."""
    text = file.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            is_text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            if is_text and isinstance(each.value.value, str):
                docstrings.update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def written(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
