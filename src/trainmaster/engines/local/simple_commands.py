"""A text for the shell that is one program is that program: the shell does not stay around it.

A shell that waits for its program dies of SIGTERM itself, so that nobody learns how the program ended
when it was told to save and leave. Some shells replace themselves by such a program, and some do not.
"""

from __future__ import annotations

import re

SHELL = ("/bin/sh", "-c")
WORD = re.compile(r"[\w./~][\w./~+@%:-]*", re.ASCII)
"""A first word that means itself: without quotes, variables, patterns and assignments."""
REST = re.compile(
    r"""(?: [^\\'"`$;&|()<>\n]  # a plain character
          | \\.                 # one that a backslash makes plain, or a line that goes on
          | '[^']*'
          | "(?: [^\\"`$] | \\. | \$(?!\() )*"
          | \$(?!['(])          # a variable, but neither a command nor another kind of quotes
          | >> | >\| | [<>]& | >(?![>|&]) | <(?![<&])  # redirections
        )*""",
    re.VERBOSE | re.DOTALL,
)
"""What may follow: words and redirections, and nothing that begins another command."""
_WORDS = (
    "case coproc do done elif else esac fi for function if in select then time until while"
    " . alias bg bind break builtin caller cd chdir command compgen complete compopt continue"
    " declare dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs"
    " kill let local logout mapfile newgrp popd print printf pushd pwd read readarray readonly return"
    " set shift shopt source suspend test times trap true type typeset ulimit umask unalias unset wait"
    " whence"
)
OWN_WORDS = frozenset(_WORDS.split())
"""Keywords and builtins of shells that may be /bin/sh."""


def as_program(command: tuple[str, ...]) -> tuple[str, ...]:
    """With `exec` before a text that is one program; any other command as it is."""
    if command[:-1] != SHELL or not is_one_program(command[-1]):
        return command
    return (*SHELL, f"exec {command[-1].lstrip()}")


def is_one_program(text: str) -> bool:
    """Whether a shell would run one program and end as it does."""
    line = text.strip()
    first = WORD.match(line)
    if first is None or first[0] in OWN_WORDS or line.endswith("\\"):
        return False
    rest = line[first.end() :]
    return (not rest or rest[0] in " \t<>") and REST.fullmatch(rest) is not None
