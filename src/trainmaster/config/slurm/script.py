"""A batch script taken apart as Slurm does it: directives before the first command, and the rest."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from trainmaster.config.slurm.options import Said, read_options

DIRECTIVE = "#SBATCH"
PARTS = (
    "a job of several parts: write a job for each; here the last counts, and it is held until"
    " `trainmaster resume`"
)
DIRECTIVE_LINE = re.compile(r"^#SBATCH\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something of a script that is not in the job file, or is there in another way."""

    line: int
    text: str
    """What the script says."""
    why: str


@dataclass(frozen=True, slots=True)
class Directive:
    """One option of a `#SBATCH` line."""

    line: int
    said: Said


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script."""

    interpreter: tuple[str, ...]
    """The words of its first line; empty where it has none."""
    directives: tuple[Directive, ...]
    body: tuple[str, ...]
    """All of its lines, with empty ones in place of the first line and the directives."""
    faults: tuple[Remark, ...] = ()
    """Directives that cannot be read."""
    ignored: tuple[Remark, ...] = ()
    """Directives that Slurm ignores too."""
    has_parts: bool = False
    """Whether it is a heterogeneous job, of several parts that ask for different things."""


def is_batch_script(text: str) -> bool:
    """Whether this is a script for sbatch."""
    return DIRECTIVE_LINE.search(text) is not None


def read_script(text: str) -> Script:
    """The script of this text."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    interpreter: tuple[str, ...] = ()
    directives: list[Directive] = []
    faults: list[Remark] = []
    ignored: list[Remark] = []
    body: list[str] = []
    has_begun = has_parts = False
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith("#!"):
            interpreter = tuple(line[2:].split())
            body.append("")
        elif re.match(r"#SBATCH(\s|$)", line) and not has_begun:
            body.append("")
            if line.split()[1:] in (["hetjob"], ["packjob"]):
                has_parts = True
                faults.append(Remark(number, line, PARTS))
                continue
            said, fault = _options_of(line.removeprefix(DIRECTIVE))
            if fault:
                faults.append(Remark(number, line, fault))
            directives += (Directive(number, each) for each in said)
        elif re.match(r"#SBATCH(\s|$)", line):
            body.append("")
            why = "it stands after the first command, where Slurm ignores it too"
            ignored.append(Remark(number, line, why))
        else:
            body.append(line.rstrip())
            has_begun = has_begun or (bool(line.strip()) and not line.lstrip().startswith("#"))
    return Script(
        interpreter, tuple(directives), tuple(body), tuple(faults), tuple(ignored), has_parts
    )


def _options_of(text: str) -> tuple[list[Said], str]:
    """The options of a line, and what is wrong with it."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
    words = [word for word in words[:comment] if word.strip() and word != "\\"]
    if not words:
        return [], ""
    said, used = read_options(words)
    rest = " ".join(words[used:])
    return said, f"{rest!r} is not an option" if rest else ""
