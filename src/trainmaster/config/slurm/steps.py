"""`srun` and other commands of Slurm in the body of a script: where they are, and what they start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.config.slurm.options import Said, read_options
from trainmaster.config.slurm.shell_words import Word, words

BEFORE = re.compile(
    r"(?:^|[;&|(`{!]|\b(?:then|do|else|if|while|time|exec|eval)\b|\w+=[\"']|\w+=\$?\w*\s)\s*$"
)
"""What may stand before a command on its line: nothing, a sign, a word of the shell, an assignment."""
COMMENT = re.compile(r"(?:^|\s)#")
SRUN = re.compile(r"(?<![\w./$-])srun(?![\w./=-])")
LOOP = re.compile(r"(?:^|[;&|]\s*|\s)(for|while|until|done)(?=\s|;|$)")
INSTEAD = {
    "sacct": "`trainmaster history`, `trainmaster show JOB`",
    "salloc": "`trainmaster shell`",
    "sattach": "`trainmaster logs -f JOB`",
    "sbatch": "`trainmaster submit FILE`, whose jobs may name others in depends_on",
    "sbcast": "`cp`: the folder of a job is its own or shared",
    "scancel": "`trainmaster cancel JOB`",
    "scontrol": "`trainmaster show JOB`, `trainmaster set`, `trainmaster suspend`",
    "seff": "`trainmaster show JOB`",
    "sinfo": "`trainmaster node list`",
    "sprio": "`trainmaster explain JOB`",
    "squeue": "`trainmaster ps`",
    "sreport": "`trainmaster history`",
    "sshare": "`trainmaster queue list`",
    "sstat": "`trainmaster show JOB`",
    "strigger": "depends_on",
}
"""Other commands of Slurm, and what does it here."""
OTHERS = re.compile(rf"(?<![\w./$-])({'|'.join(INSTEAD)})(?![\w./=-])")
HOSTNAMES = re.compile(r"scontrol\s+show\s+hostnames?\b")


@dataclass(frozen=True, slots=True)
class Step:
    """One `srun` of a body."""

    line: int
    start: int
    """Where `srun` begins."""
    command_at: int
    """Where the command that it starts begins."""
    end: int
    """Where that command ends."""
    said: tuple[Said, ...]
    text: str
    """`srun` with its options, as it is written."""
    is_background: bool
    is_in_loop: bool
    is_inner: bool
    """Its output is taken by `$( … )`, or it is part of a variable."""
    is_plain: bool
    """Nothing stands before it on its line."""

    def value(self, *names: str) -> str | None:
        """The last value of one of these options."""
        return next((each.value for each in reversed(self.said) if each.name in names), None)


def steps(text: str) -> Iterator[Step]:
    """Every `srun` of a body that is a command, in their order."""
    for found in SRUN.finditer(text):
        before = _line_before(text, found.start())
        if COMMENT.search(before) or not BEFORE.search(before):
            continue
        is_inner = bool(re.search(r"(?:\$\(|`|\w=[\"'])\s*$", before))
        given = list(_command_words(text, found.end(), before))
        said, used = read_options([word.text for word in given], in_srun=True)
        command_at = given[used].start if used < len(given) else _end(given, found.end())
        yield Step(
            line=text.count("\n", 0, found.start()) + 1,
            start=found.start(),
            command_at=command_at,
            end=_end(given, found.end()),
            said=tuple(said),
            text=" ".join(("srun", *(each.text for each in said))),
            is_background=_is_background(text, _end(given, found.end())),
            is_in_loop=_is_in_loop(text, found.start()),
            is_inner=is_inner,
            is_plain=not before.strip() or before.rstrip().endswith((";", "do", "then")),
        )


def other_commands(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of other commands of Slurm; without the names of hosts, which are given."""
    for found in OTHERS.finditer(text):
        before = _line_before(text, found.start())
        is_command = BEFORE.search(before) and not COMMENT.search(before)
        if is_command and not HOSTNAMES.match(text, found.start()):
            yield text.count("\n", 0, found.start()) + 1, found[1]


def asks_for_hosts(text: str) -> bool:
    """Whether it asks for the names of the job's nodes."""
    lines = (line for line in text.split("\n") if not line.lstrip().startswith("#"))
    return any(map(HOSTNAMES.search, lines))


def _line_before(text: str, at: int) -> str:
    """The part of a command line before a place; lines that end with a backslash belong together."""
    start = text.rfind("\n", 0, at) + 1
    while start >= 2 and text[start - 2] == "\\":
        start = text.rfind("\n", 0, start - 1) + 1
    return text[start:at]


def _command_words(text: str, at: int, before: str) -> Iterator[Word]:
    """The words of the command that goes on there, until a sign ends it."""
    quote = re.search(r"\w=([\"'])\s*$", before)
    stop = text.find(quote[1], at) if quote else len(text)
    piece = text[at : len(text) if stop < 0 else stop]
    for word in words(piece):
        if word.is_break and word.text not in ("<", ">", "<<", ">>"):
            return
        yield Word(word.text, word.start + at, word.end + at)


def _end(given: list[Word], at: int) -> int:
    return given[-1].end if given else at


def _is_background(text: str, at: int) -> bool:
    """Whether a single `&` ends the command; `2>&1` before it belongs to it."""
    rest = re.match(r"(?:\s*\d*>?&?>+\s*&?\s*\S+)*\s*(&)(?![&>])", text[at:])
    return rest is not None


def _is_in_loop(text: str, at: int) -> bool:
    found = LOOP.findall(text[:at])
    return sum(-1 if word == "done" else 1 for word in found) > 0
