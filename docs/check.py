"""Keeps the documentation honest: links lead somewhere, and marked examples run and print what they show.

    python docs/check.py [--quick] [PAGE ...]        (default: every page of the project)

Relative links in Markdown must name a file, and an anchor in it where they give one. A ```console
block right after a line `<!-- run -->` is run: every `$ ` line, with its continuation lines, must end
with 0, or with N after `<!-- run: exit N -->`; `<!-- run: slow -->` is left out with --quick. The lines
below a command, if there are any, are what it must print: `…` stands for anything in a line, and for any
lines where it stands alone; white space, empty lines and the length of rules do not matter. A block after
`<!-- file: NAME -->` is written to NAME first. The blocks of a page share one empty folder, in its order.

`<!-- live: OPTIONS -->` marks a session with a manager, which the first such block of a page starts with
these options of `trainmaster up`. What is shown is compared without figures, times and the names of node
and folder, exit codes are not, and a command that goes on is interrupted.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<tag>[^\n]*)\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S
)
MARKED = re.compile(r"<!-- (?P<what>run|file|live)(?:: (?P<how>[^\n]*?))? -->\s*\Z")
LINK = re.compile(r"(?<!\\)\]\((?P<target><[^>]*>|[^\s)]+)(?:\s+\"[^\"]*\")?\)")
ANYTHING = "\N{HORIZONTAL ELLIPSIS}"
RULE = re.compile("\N{BOX DRAWINGS LIGHT HORIZONTAL}+")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)
FIGURE = re.compile(r"\d+(?:[.,:dhm-]*\d+)*[dhms]?\b")
TIMEOUT_S = 120
INTERRUPT_S = 10
"""How long a command of a live session may go on."""
TRAIN = """import time
for step in range(1, 1001):
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    time.sleep(1)
"""
"""`train.py` of live sessions."""


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


def examples(body: str) -> list[tuple[str, list[str]]]:
    """The `$ ` lines of a console block, with the lines that a backslash continues, and what they print."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(body.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines).removeprefix("> ")
            found.append((command, []))
        elif found:
            found[-1][1].append(line)
    return found


def difference(shown: Sequence[str], printed: str) -> str | None:
    """What a page shows of an output and the command did not print, or the other way round."""
    wanted, got = _plain(shown), _plain(printed.splitlines())
    patterns = [r"(?:.*\n)*?" if line == ANYTHING else _pattern(line) + r"\n" for line in wanted]
    if not wanted or re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in got)):
        return None
    for line in wanted:
        if line != ANYTHING and not any(re.fullmatch(_pattern(line), each) for each in got):
            return f"does not print {line!r}, but {' | '.join(got)[:400]!r}"
    return f"prints other lines than are shown: {' | '.join(got)[:400]!r}"


def _plain(lines: Sequence[str]) -> list[str]:
    return [RULE.sub("-", " ".join(line.split())) for line in lines if line.strip()]


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split(ANYTHING))


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


def failed_examples(page: Path, *, is_quick: bool) -> Iterator[str]:
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        blocks = list(marked_blocks(page.read_text(encoding="utf-8")))
        live = [block for block in blocks if block.what == "live"]
        if live:
            yield from failed_sessions(live, Path(folder).resolve(), here)
        for block in blocks:
            if block.what == "live":
                continue
            if block.what == "file":
                (Path(folder) / block.how).write_text(block.body, encoding="utf-8")
                continue
            if block.how == "slow" and is_quick:
                continue
            wanted = int(block.how.removeprefix("slow").removeprefix("exit ") or 0)
            found = examples(block.body)
            if not found:
                yield f"line {block.line}: the block to run has no line that starts with '$ '"
            for command, shown in found:
                ended = subprocess.run(
                    ["bash", "-eo", "pipefail", "-c", command],
                    cwd=folder,
                    env=os.environ | here,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=TIMEOUT_S,
                    check=False,
                )
                if ended.returncode != wanted:
                    yield (
                        f"line {block.line}: `{command}` ended with {ended.returncode}, "
                        f"not {wanted}: {ended.stdout.strip()[-400:]}"
                    )
                elif differs := difference(shown, ended.stdout):
                    yield f"line {block.line}: `{command}` {differs}"


def failed_sessions(
    blocks: Sequence[Block], folder: Path, here: Mapping[str, str]
) -> Iterator[str]:
    """The sessions of a page, one after another, with one manager."""
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    others = {
        name: text for name, text in os.environ.items() if not name.startswith("TRAINMASTER_")
    }
    environment = {**others, **here, "TRAINMASTER_USER": "ada", "COLUMNS": "300"}

    def printed(command: str, limit_s: int) -> str:
        return subprocess.run(
            ["timeout", "--signal=INT", str(limit_s), "bash", "-c", command],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        ).stdout

    data = "--data .trainmaster"
    started = printed(f"trainmaster up -d {data} --port 0 {blocks[0].how}", TIMEOUT_S)
    try:
        if "Trainmaster at " not in started:
            yield f"line {blocks[0].line}: the manager did not start: {started[-400:]}"
            return
        for block in blocks:
            for command, shown in examples(block.body):
                said = _without_figures(printed(command, INTERRUPT_S), folder)
                if differs := difference([_without_figures(line, folder) for line in shown], said):
                    yield f"line {block.line}: `{command}` {differs}"
    finally:
        printed(f"trainmaster down --jobs {data}", TIMEOUT_S)


def _without_figures(text: str, folder: Path) -> str:
    text = re.sub(rf"\b({socket.gethostname()}|box|vm)\b", "NODE", text)
    return FIGURE.sub("#", text.replace(str(folder), "/tmp/demo"))


def complaints(page: Path, *, is_quick: bool) -> Iterator[str]:
    yield from broken_links(page)
    yield from failed_examples(page, is_quick=is_quick)


def main(names: list[str]) -> int:
    is_quick = "--quick" in names
    chosen = [Path(name).resolve() for name in names if name != "--quick"] or pages()
    found = [
        f"{os.path.relpath(page)}: {what}"
        for page in chosen
        for what in complaints(page, is_quick=is_quick)
    ]
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"{len(chosen)} pages: every link leads somewhere, every marked example holds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
