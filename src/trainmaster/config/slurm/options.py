"""The options of sbatch and srun: their names, their letters, and whether a value follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple


class Takes(Enum):
    """Whether an option has a value."""

    VALUE = auto()
    NOTHING = auto()
    PERHAPS = auto()
    """Only after `=`."""


class Said(NamedTuple):
    """An option as it was given."""

    name: str
    """Its long name; as it was written where it is not known."""
    value: str | None
    text: str
    """All of it, as it was written."""
    is_known: bool = True


LETTERS = {
    "A": "account",
    "a": "array",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "h": "help",
    "I": "immediate",
    "i": "input",
    "J": "job-name",
    "K": "kill-on-bad-exit",
    "k": "no-kill",
    "L": "licenses",
    "l": "label",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "O": "overcommit",
    "o": "output",
    "p": "partition",
    "Q": "quiet",
    "q": "qos",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "u": "unbuffered",
    "v": "verbose",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
}
"""Short options; `-W` of srun takes seconds."""

_VALUES = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container
container-env container-image container-mounts container-name container-workdir core-spec cores-per-socket
cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution epilog error exclude
export export-file extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres
gres-flags het-group hint input jobid job-name licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
mem-per-gpu mincpus mpi network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
ntasks-per-socket open-mode output partition power prefer priority profile prolog qos relative reservation
signal slurmd-debug sockets-per-node switches task-epilog task-prolog thread-spec threads threads-per-core
time time-min tmp tres-bind tres-per-task uid wckey wrap
"""
_FLAGS = """
container-entrypoint container-mount-home container-readonly container-remap-root container-writable
contiguous disable-stdout-job-summary exact external help hold ignore-pbs kill-on-bad-exit label multi-prog
no-allocate no-container-entrypoint no-container-mount-home no-container-remap-root no-kill no-requeue
overcommit overlap parsable pty quiet requeue spread-job stepmgr test-only unbuffered use-min-nodes verbose
version wait whole
"""
_PERHAPS = "exclusive get-user-env immediate nice oversubscribe propagate reboot resv-ports x11"

TAKES: dict[str, Takes] = {
    **dict.fromkeys(_VALUES.split(), Takes.VALUE),
    **dict.fromkeys(_FLAGS.split(), Takes.NOTHING),
    **dict.fromkeys(_PERHAPS.split(), Takes.PERHAPS),
}
SPELLINGS = {
    "workdir": "chdir",
    "share": "oversubscribe",
    "usage": "help",
    "tasks-per-node": "ntasks-per-node",
}
"""Old names of options."""


def long_name(text: str) -> str | None:
    """The option of this name, or of this beginning of a name if it is the only one."""
    text = text.replace("_", "-")
    text = SPELLINGS.get(text, text)
    if text in TAKES:
        return text
    near = [name for name in TAKES if name.startswith(text)]
    return near[0] if text and len(near) == 1 else None


def read_options(given: Sequence[str], *, in_srun: bool = False) -> tuple[list[Said], int]:
    """The options at the beginning of these words, and how many words they are."""
    found: list[Said] = []
    at = 0
    while at < len(given) and given[at].startswith("-") and given[at] not in ("-", "--"):
        said, used = _one(given, at, in_srun)
        found += said
        at += used
    if at < len(given) and given[at] == "--":
        at += 1
    return found, at


def _one(given: Sequence[str], at: int, in_srun: bool) -> tuple[list[Said], int]:
    word = given[at]
    following = given[at + 1] if at + 1 < len(given) else None
    if word.startswith("--"):
        stated, equals, value = word[2:].partition("=")
        name = long_name(stated)
        if name is None:
            return [Said(stated, value if equals else None, word, is_known=False)], 1
        if equals:
            return [Said(name, _bare(value), word)], 1
        if TAKES[name] is Takes.VALUE and following is not None:
            return [Said(name, _bare(following), f"{word} {following}")], 2
        return [Said(name, None, word)], 1
    return list(_letters(word, following, in_srun)), _words_used(word, following, in_srun)


def _letters(word: str, following: str | None, in_srun: bool) -> Iterator[Said]:
    """`-N4`, `-N 4`, `-Hv`: letters until one takes a value."""
    for place, letter in enumerate(word[1:], 1):
        name = LETTERS.get(letter)
        if name is None:
            yield Said(word, None, word, is_known=False)
            return
        if _takes(name, in_srun) is Takes.VALUE:
            rest = word[place + 1 :].removeprefix("=")
            value = rest or following
            text = word if rest else f"{word} {following or ''}".strip()
            yield Said(name, None if value is None else _bare(value), text)
            return
        yield Said(name, None, f"-{letter}")


def _words_used(word: str, following: str | None, in_srun: bool) -> int:
    for place, letter in enumerate(word[1:], 1):
        name = LETTERS.get(letter)
        if name is None:
            return 1
        if _takes(name, in_srun) is Takes.VALUE:
            return 1 if word[place + 1 :].removeprefix("=") or following is None else 2
    return 1


def _takes(name: str, in_srun: bool) -> Takes:
    if in_srun and name == "wait":
        return Takes.VALUE
    return TAKES.get(name, Takes.NOTHING)


def _bare(value: str) -> str:
    """Without quotes around it."""
    is_quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    return value[1:-1] if is_quoted else value
