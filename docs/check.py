"""Keeps the documentation honest: links lead somewhere, and marked examples run and print what they show.

    python docs/check.py [--quick] [PAGE ...]        (default: every page of the project)
    python docs/check.py --site FOLDER               (a built site loads nothing from elsewhere)

Relative links in Markdown must name a file, and an anchor in it where they give one. A ```console
block right after a line `<!-- run -->` is run: every `$ ` line, with its continuation lines, must end
with 0, or with N after `<!-- run: exit N -->`; `<!-- run: slow -->` is left out with --quick. The lines
below a command, if there are any, are what it must print: `…` stands for anything in a line, and for any
lines where it stands alone; white space, empty lines and the length of rules do not matter. A block after
`<!-- file: NAME -->` is written to NAME before all others run. The blocks of a page share one folder, in its
order.

`<!-- live: OPTIONS -->` marks a session with a manager, which the first such block of a page starts with
these options of `trainmaster up`; `exit N` may follow them, and `slow` before them leaves the page's sessions
out with --quick. What is shown is compared without times, large numbers and the names of node and folder,
and a command in whose line `Ctrl-C` stands is interrupted.
"""

from __future__ import annotations

import os
import pwd
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
NOTE = re.compile("Note: ")
"""What a machine lacks is noted on the one that checks, and not on a reader's."""
RULE = re.compile("\N{BOX DRAWINGS LIGHT HORIZONTAL}+")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)
VARIES = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|(?:\d+(?:\.\d+)? ?(?:ms|min|[dhms]))+\b|\d+ [KMG]iB\b|\d{4,}"
)
"""Times, sizes, ports and processes."""
LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?"
    r"\b(?:src|srcset|href|data|poster)=[\"']?(?P<url>(?:https?:)?//[^\"'\s>]+)"
    r"|(?:@import\s+|url\()[\"']?(?P<styled>(?:https?:)?//[^\"')\s]+)",
    re.I,
)
"""What a browser would fetch from elsewhere by itself; not links that a reader follows."""
DIAGRAM = re.compile(r"class=[\"']?mermaid")
"""For these the site's script fetches a library."""
EXIT = re.compile(r"\s*\bexit (?P<code>\d+)$")
TIMEOUT_S = 900
"""Of one command: a machine may be busy."""
INTERRUPT_S = 3
"""How long a command goes on whose line says that Ctrl-C ends it."""
INTERRUPTED = 124
"""What `timeout` ends with then."""
KILL_AFTER_S = 5
SLOW = re.compile(r"slow\b ?")
TRAIN = """import time
for step in range(1, 1001):
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    time.sleep(1)
"""
"""`train.py` of live sessions, where the page has none of its own."""


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
    wanted = _plain(shown)
    got = [line for line in _plain(printed.splitlines()) if line in wanted or not NOTE.match(line)]
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
        for block in blocks:
            if block.what == "file":
                (Path(folder) / block.how).write_text(block.body, encoding="utf-8")
        if live and not (is_quick and SLOW.match(live[0].how)):
            yield from failed_sessions(live, Path(folder).resolve(), here)
        for block in blocks:
            if block.what in ("live", "file"):
                continue
            if block.how.startswith("slow") and is_quick:
                continue
            found = examples(block.body)
            if not found:
                yield f"line {block.line}: the block to run has no line that starts with '$ '"
            for command, shown in found:
                try:
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
                except subprocess.TimeoutExpired:
                    yield f"line {block.line}: `{command}` did not end within {TIMEOUT_S} s"
                    continue
                failed = wrong_end(block, ended) or difference(shown, ended.stdout)
                if failed:
                    yield f"line {block.line}: `{command}` {failed}"


def wrong_end(block: Block, ended: subprocess.CompletedProcess[str]) -> str | None:
    """That a command ended with another code than its mark says."""
    stated = EXIT.search(block.how)
    wanted = int(stated["code"]) if stated else 0
    if ended.returncode == wanted:
        return None
    return f"ended with {ended.returncode}, not {wanted}: {ended.stdout.strip()[-400:]}"


def failed_sessions(
    blocks: Sequence[Block], folder: Path, here: Mapping[str, str]
) -> Iterator[str]:
    """The sessions of a page, one after another, with one manager."""
    if not (folder / "train.py").exists():
        (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    others = {
        name: text for name, text in os.environ.items() if not name.startswith("TRAINMASTER_")
    }
    environment = {**others, **here, "TRAINMASTER_USER": "ada", "COLUMNS": "300"}

    def run(command: str, limit_s: int = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        limit = ["timeout", "--signal=INT", f"--kill-after={KILL_AFTER_S}", str(limit_s)]
        return subprocess.run(
            [*limit, "bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    data = "--data .trainmaster"
    started = run(f"trainmaster up -d {data} --port 0 {_up_options(blocks[0])}")
    try:
        if started.returncode:
            yield f"line {blocks[0].line}: the manager did not start: {started.stdout[-400:]}"
            return
        for block in blocks:
            for command, shown in examples(block.body):
                goes_on = "Ctrl-C" in command
                ended = run(command, INTERRUPT_S if goes_on else TIMEOUT_S)
                is_interrupted = goes_on and ended.returncode == INTERRUPTED
                wanted = [_without_what_varies(line, folder) for line in shown]
                failed = None if is_interrupted else wrong_end(block, ended)
                failed = failed or difference(wanted, _without_what_varies(ended.stdout, folder))
                if failed:
                    yield f"line {block.line}: `{command}` {failed}"
    finally:
        run(f"trainmaster down --jobs {data}")


def _up_options(block: Block) -> str:
    return SLOW.sub("", EXIT.sub("", block.how), count=1)


def _without_what_varies(text: str, folder: Path) -> str:
    me = pwd.getpwuid(os.geteuid()).pw_name  # who acts is what the kernel says
    text = re.sub(rf"\bby {re.escape(me)}\b", "by ada", text)
    text = re.sub(rf"\b({re.escape(socket.gethostname())}|box|vm)\b", "NODE", text)
    return VARIES.sub("#", text.replace(str(folder), "/tmp/demo"))


def complaints(page: Path, *, is_quick: bool) -> Iterator[str]:
    yield from broken_links(page)
    yield from failed_examples(page, is_quick=is_quick)


def foreign_loads(site: Path) -> Iterator[str]:
    """What pages of a built site would fetch from other places."""
    for file in sorted(site.rglob("*")):
        if file.suffix not in (".html", ".css", ".svg"):
            continue
        text = file.read_text("utf-8")
        urls = {found["url"] or found["styled"] for found in LOADS.finditer(text)}
        urls |= {"a library for diagrams"} if DIAGRAM.search(text) else set()
        yield from (f"{os.path.relpath(file)}: loads {url}" for url in sorted(urls))


def main(names: list[str]) -> int:
    if names[:1] == ["--site"]:
        found = list(foreign_loads(Path(names[1])))
        for line in found:
            print(line, file=sys.stderr)
        return 1 if found else 0
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
