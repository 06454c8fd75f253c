"""The simple commands of a job's command, and the launcher that starts its workers.

A command is a text for the shell, or words. A text is not expanded: what it says is compared and shown, never
run from here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

SHELL = ("/bin/sh", "-c")
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun"})
OTHER_NAMES = {
    "accelerate-launch": "accelerate",
    "accelerate.commands.launch": "accelerate",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.run": "torchrun",
}
"""Programs, and modules for `python -m`, that are the same launchers."""
PYTHON = re.compile(r"python(\d+(\.\d+)?)?t?")
TAKES_CODE = re.compile(r"-[A-Za-z]*c")
"""How a shell is told to run a text: `-c`, `-lc`."""
PUNCTUATION = "();<>|&\n"
BREAKS = frozenset({";", "&&", "||", "|", "&", "(", ")", ";;", "|&"})
BEFORE = frozenset({"exec", "env", "nohup", "time", "command", "nice", "stdbuf", "setsid"})
RUNNERS = frozenset({("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("conda", "run")})
OPENERS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{"})
"""Words of the shell that a command may follow."""
CLOSERS = frozenset({"for", "case", "select", "done", "fi", "esac", "}", ":", "[", "test"})
"""Words of the shell that no program follows."""
BUILTINS = frozenset(
    {
        *("cd", "echo", "printf", "set", "trap", "export", "source", ".", "true"),
        *("umask", "ulimit", "unset", "read", "mkdir", "touch", "sleep", "wait", "exit"),
    }
)
"""What prepares for a program; it names the job only where nothing else does."""
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
VALUED = frozenset({"-W", "-X", "-c"})
"""Options of Python that take a value."""
PLAIN = re.compile(r"\s*[\w./+@%:-]+(\s+[\w./+@%:,=-]+)*\s*", re.ASCII)
"""Words that mean themselves: without quotes, variables, patterns and assignments."""
ANALYSED = 8192
"""Characters of a command that are looked at: splitting a long quoted word takes quadratic time."""
Command = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program with its words, as the shell would start it."""

    words: tuple[str, ...]
    """Empty: only words without a program are left."""
    before: tuple[str, ...] = ()
    """What stands between it and the command before: `&&`, `A=1`, `exec`, `for i in 1 2`."""


@lru_cache(maxsize=256)
def simple_commands(command: Command) -> tuple[SimpleCommand, ...]:
    """Every simple command of a command line; cached, because many jobs have the same one."""
    return tuple(_read(command))


def launcher_of(command: Command) -> str:
    """The launcher that starts its workers, such as torchrun; empty where it has none."""
    found = (launcher(each.words) for each in simple_commands(command) if each.words)
    return next((name for name in found if name), "")


def program_of(command: Command) -> str:
    """The name of what runs: the script of `torchrun train.py`, or the program itself."""
    fallback = ""
    for each in simple_commands(command):
        if not each.words:
            continue
        name = base_name(each.words[0])
        if not fallback or (fallback in BUILTINS and name not in BUILTINS):
            fallback = name
        script = next((word for word in each.words[1:] if word.endswith((".py", ".sh"))), None)
        if script is not None:
            return base_name(script)
        module = module_of(each.words)
        if module and module not in OTHER_NAMES:
            return module
    return fallback or "job"


def launcher(words: Sequence[str]) -> str:
    """The launcher that a simple command starts; empty where it starts none."""
    program = base_name(words[0])
    named = OTHER_NAMES.get(module_of(words) or program, program)
    return named if named in LAUNCHERS else ""


def module_of(words: Sequence[str]) -> str | None:
    """What `python -m` runs."""
    if not PYTHON.fullmatch(base_name(words[0])):
        return None
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, None)
        if word in VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            return None
    return None


def base_name(path: str) -> str:
    """A path without its folder."""
    return path.rstrip("/").rpartition("/")[2]


def shell_code(words: Sequence[str]) -> int | None:
    """Where in the words of a shell the text is that it runs (`bash -c TEXT`); None: it runs a file."""
    if not words or base_name(words[0]) not in SHELLS:
        return None
    for at, word in enumerate(words[1:-1], 2):
        if TAKES_CODE.fullmatch(word):
            return at
        if not word.startswith("-"):
            return None
    return None


def _read(command: Command) -> Iterator[SimpleCommand]:
    if isinstance(command, str):
        yield from _simple(_shell_words(command[:ANALYSED]))
        if command[ANALYSED:]:
            yield SimpleCommand((), (command[ANALYSED:],))
        return
    before, words = _bare(command)
    yield from _with_shell_code(before, words)


def _with_shell_code(before: tuple[str, ...], words: tuple[str, ...]) -> Iterator[SimpleCommand]:
    """A simple command; of `bash -c TEXT` those of the text."""
    code = shell_code(words)
    if code is None:
        yield SimpleCommand(words, before)
        return
    if before:
        yield SimpleCommand((), before)
    yield from _read(words[code])
    if words[code + 1 :]:
        yield SimpleCommand((), words[code + 1 :])


def _shell_words(text: str) -> Sequence[str]:
    """Its words without their quotes; operators and the ends of lines are words of their own."""
    if PLAIN.fullmatch(text) and "\n" not in text.strip():
        return text.split()
    joined = text.replace("\\\n", " ")
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        return list(lexer)
    except ValueError:  # quotes that nothing closes
        return joined.replace("\n", " \n ").replace("\t", " ").split(" ")


def _simple(words: Sequence[str]) -> Iterator[SimpleCommand]:
    before: list[str] = []
    current: list[str] = []
    is_comment = False
    for word in (*words, "\n"):
        is_line_end = "\n" in word and not word.strip(PUNCTUATION)
        if is_line_end or (word in BREAKS and not is_comment):
            yield from _with_prefix(before, current)
            before, current, is_comment = [], [], False
            operator = word.strip("\n")
            before += [operator] if operator else []
        elif is_comment or word.startswith("#"):
            yield from _with_prefix(before, current)
            before, current, is_comment = [word], [], True
        elif word:
            current.append(word)
    yield from _with_prefix(before, current)


def _with_prefix(before: Sequence[str], words: Sequence[str]) -> Iterator[SimpleCommand]:
    """The words of one simple command, told apart from those that only stand before it."""
    openers = next((at for at, word in enumerate(words) if word not in OPENERS), len(words))
    before, words = (*before, *words[:openers]), words[openers:]
    if words and words[0] in CLOSERS:
        before, words = (*before, *words), ()
    prefix, program = _bare(words)
    if prefix and not program and prefix[-1] in BEFORE:
        prefix, program = prefix[:-1], prefix[-1:]
    if program or before or prefix:
        yield from _with_shell_code((*before, *prefix), program)


def _bare(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Assignments and programs that start another one, and what they start."""
    at = 0
    while at < len(words):
        if tuple(words[at : at + 2]) in RUNNERS:
            at += 2
        elif ASSIGNMENT.fullmatch(words[at]) or words[at] in BEFORE:
            at += 1
        else:
            break
    return tuple(words[:at]), tuple(words[at:])
