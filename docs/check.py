"""Keeps the documentation honest: links lead somewhere, and marked examples run.

    python docs/check.py [PAGE ...]        (default: every page of the project)

Relative links in Markdown must name a file, and an anchor in it where they give one. A ```console
block right after a line `<!-- run -->` is run: every `$ ` line, with its continuation lines, must end
with 0, or with N after `<!-- run: exit N -->`. A block after `<!-- file: NAME -->` is written to NAME
first. The blocks of a page share one empty folder, in the page's order.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<tag>[^\n]*)\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S
)
MARKED = re.compile(r"<!-- (?P<what>run|file)(?:: (?P<how>[^\n]*?))? -->\s*\Z")
LINK = re.compile(r"(?<!\\)\]\((?P<target><[^>]*>|[^\s)]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block that a comment right above it marks."""

    line: int
    what: str
    how: str
    body: str


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def marked_blocks(text: str) -> Iterator[Block]:
    for block in FENCED.finditer(text):
        mark = MARKED.search(text[: block.start()])
        if mark:
            line = text.count("\n", 0, block.start()) + 1
            yield Block(line, mark["what"], mark["how"] or "", block["body"])


def commands(body: str) -> Iterator[str]:
    """The `$ ` lines of a console block, each joined with the lines that its backslash continues."""
    lines = iter(body.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines).removeprefix("> ")
            yield command


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    names: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        repeats = sum(1 for name in names if re.fullmatch(re.escape(slug) + r"(-\d+)?", name))
        names.add(f"{slug}-{repeats}" if repeats else slug)
    return names


def broken_links(page: Path) -> Iterator[str]:
    prose = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))
    for link in LINK.finditer(prose):
        target = link["target"].strip("<>")
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            yield f"the link to {target} leads nowhere"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text("utf-8")):
            yield f"the link to {target} names no heading there"


def failed_examples(page: Path) -> Iterator[str]:
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        for block in marked_blocks(page.read_text(encoding="utf-8")):
            if block.what == "file":
                (Path(folder) / block.how).write_text(block.body, encoding="utf-8")
                continue
            wanted = int(block.how.removeprefix("exit ") or 0)
            found = list(commands(block.body))
            if not found:
                yield f"line {block.line}: the block to run has no line that starts with '$ '"
            for command in found:
                ended = subprocess.run(
                    ["bash", "-eo", "pipefail", "-c", command],
                    cwd=folder,
                    env=os.environ | here,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=TIMEOUT_S,
                    check=False,
                )
                if ended.returncode != wanted:
                    said = (ended.stderr or ended.stdout).strip()
                    yield (
                        f"line {block.line}: `{command}` ended with {ended.returncode}, "
                        f"not {wanted}: {said[-400:]}"
                    )


def complaints(page: Path) -> Iterator[str]:
    yield from broken_links(page)
    yield from failed_examples(page)


def main(names: list[str]) -> int:
    chosen = [Path(name).resolve() for name in names] or pages()
    found = [f"{os.path.relpath(page)}: {what}" for page in chosen for what in complaints(page)]
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"{len(chosen)} pages: every link leads somewhere, every marked example runs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
