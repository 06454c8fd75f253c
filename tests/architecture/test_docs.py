"""`docs/check.py` passes on our pages, and complains where it should."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cli.support.lazy_commands import COMMANDS

ROOT = Path(__file__).parents[2]
CHECK = runpy.run_path(str(ROOT / "docs/check.py"))


def check(*pages: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "docs/check.py", *pages]
    return subprocess.run(command, text=True, capture_output=True, timeout=600)


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_our_page_holds(page: Path) -> None:
    """What is marked as slow, `make docs` checks."""
    assert list(CHECK["complaints"](page, is_quick=True)) == []


GOOD = """# One page
See [below](#two-words), [it](page.md) and [there](https://example.org/nowhere).

## Two words
<!-- file: a.txt -->
```
hello
```
<!-- run -->
```console
$ grep hello \\
    a.txt
hello
```
<!-- run: exit 3 -->
```console
$ exit 3
```
<!-- run: slow -->
```console
$ printf 'a  1\\nb 2\\n\\n───\\nc 3\\nd 4 ms\\n'
a 1
…
──────
c …
d … ms
```
```console
$ a command that nobody runs
```
"""


@pytest.mark.parametrize(
    ("page", "complaint"),
    {
        "a good page": (GOOD, None),
        "a lost file": ("[x](gone.md)", "the link to gone.md leads nowhere"),
        "a lost heading": ("# A\n[x](#b)", "the link to #b names no heading there"),
        "a failing example": ("<!-- run -->\n```console\n$ false\n```\n", "`false` ended with 1"),
        "a stale output": (
            "<!-- run -->\n```console\n$ echo 7 jobs\n8 jobs\n```\n",
            "`echo 7 jobs` does not print '8 jobs', but '7 jobs'",
        ),
        "more output than is shown": (
            "<!-- run -->\n```console\n$ printf 'a\\nb\\nc\\n'\na\nc\n```\n",
            "prints other lines than are shown: 'a | b | c'",
        ),
        "an example without a command": ("<!-- run -->\n```console\nls\n```\n", "has no line"),
        "a link in code is no link": ("```\n[x](gone.md)\n```\nand `[x](gone.md)`", None),
    }.values(),
)
def test_what_it_complains_about(tmp_path: Path, page: str, complaint: str | None) -> None:
    file = tmp_path / "page.md"
    file.write_text(page)
    said = check(file)
    assert said.returncode == (1 if complaint else 0), said.stderr
    assert (complaint or "") in said.stderr


LIVE = """<!-- live: --slots 2 -->
```console
$ trainmaster queue set vision --weight 2
Queue vision: weight 900, guaranteed 0.
$ trainmaster run -d -- sleep 600
1
$ trainmaster story 1 | sed -n 2p
2020-01-31 14:57:05  4m12s  Submitted as sleep
$ trainmaster cancel 999
$ trainmaster logs -f 1     # until Ctrl-C
$ trainmaster logs -f 999   # until Ctrl-C
```
<!-- live: exit 1 -->
```console
$ trainmaster cancel 999
```
"""


def test_a_session_with_a_manager_is_compared_without_what_varies(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(LIVE)
    said = check(page)
    assert said.returncode == 1
    assert [re.search("`.*?`.{9}", line)[0] for line in said.stderr.splitlines()] == [
        "`trainmaster queue set vision --weight 2` does not",
        "`trainmaster cancel 999` ended wi",
        "`trainmaster logs -f 999   # until Ctrl-C` ended wi",
    ]


PAGES = {"simulate": "simulator", "compare": "evaluation", "trace": "traces", "up": "manager"}
"""Commands with a page of their own; the others have a section of docs/cli.md."""


def page_of(command: str) -> str:
    if command in PAGES:
        return (ROOT / f"docs/{PAGES[command]}.md").read_text()
    common, *sections = re.split(r"^## ", (ROOT / "docs/cli.md").read_text(), flags=re.M)
    own = [each for each in sections if re.search(rf"\b{command}\b", each.partition("\n")[0])]
    assert own, f"docs/cli.md has no section on {command}"
    return common + "".join(own)


def options(command: Any) -> Iterator[list[str]]:
    """The names of each option of a command and of those inside it."""
    for each in getattr(command, "commands", {}).values():
        yield from options(each)
    for parameter in command.params:
        names = [name for name in parameter.opts if name.startswith("-")]
        if names and not parameter.hidden and "--help" not in names:
            yield names
        yield from ([name] for name in parameter.secondary_opts)


@pytest.mark.parametrize("command", [name for name, each in COMMANDS.items() if not each.is_hidden])
def test_every_option_is_on_a_page(command: str) -> None:
    page = page_of(command)
    missing = [
        names
        for names in options(COMMANDS[command].load(command))
        if not any(re.search(rf"{name}(?![\w-])", page) for name in names)
    ]
    assert missing == []


TABLE = runpy.run_path(str(ROOT / "docs/policy_table.py"))
LINES = re.compile(r" ([\d,]+) \|$", re.M)


def test_the_table_of_policies_follows_from_the_code() -> None:
    """Line counts may be off by a fifth; the rest is exact. `python docs/policy_table.py` writes it."""
    page = (ROOT / "docs/policies/README.md").read_text()
    now = TABLE["written"](page)
    assert LINES.sub("", page) == LINES.sub("", now)
    stated, counted = (
        [int(n.replace(",", "")) for n in LINES.findall(text)] for text in (page, now)
    )
    assert stated == [pytest.approx(count, rel=0.2) for count in counted]
