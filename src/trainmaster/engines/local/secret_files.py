"""Secrets by reference: read from a private file when a rank starts, and hidden in what it prints.

A job names files; only its own processes, as their user, read them. The values are in no file of ours, in no
answer of the API, and where a program prints one, its log has *** instead.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping

MOST_BYTES = 64 << 10
SHORTEST = 6
"""Shorter values are not hidden in logs: they would take harmless text with them."""
HIDDEN = b"***"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
PLACES = 1000
"""A problem is told as one number: the secret's place x 1000 + the error's number."""


class SecretProblem(OSError):
    """A secret that cannot be used: its place among the names, and why."""

    def __init__(self, place: int, number: int) -> None:
        super().__init__(number, os.strerror(number))
        self.code = place * PLACES + number


def read_secrets(files: Mapping[str, str]) -> dict[str, str]:
    """Name and value of each; SecretProblem for the first that cannot be used. To be called as the user."""
    found = {}
    for place, (name, path) in enumerate(files.items()):
        try:
            found[name] = _read(path)
        except OSError as problem:
            raise SecretProblem(place, problem.errno or errno.EIO) from None
        except ValueError:
            raise SecretProblem(place, errno.EINVAL) from None
    return found


def _read(path: str) -> str:
    """The content without the line break at its end. Others must not be able to read the file."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(opened)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
            raise OSError(errno.EINVAL, "")
        if facts.st_mode & OTHERS or facts.st_uid not in (os.geteuid(), 0):
            raise OSError(errno.EPERM, "")
        value = os.read(opened, MOST_BYTES + 1).decode().rstrip("\r\n")
    finally:
        os.close(opened)
    if not value or "\0" in value:
        raise OSError(errno.EINVAL, "")
    return value


def problem_sentence(files: Mapping[str, str], code: int) -> str:
    """What is wrong with which secret, and what to do."""
    place, number = divmod(code, PLACES)
    name, path = list(files.items())[place]
    reasons = {
        errno.ENOENT: "does not exist",
        errno.EPERM: f"must be its user's own, and nobody else's to read: `chmod 600 {path}`",
        errno.EINVAL: f"is not a text of 1 to {MOST_BYTES:,} bytes",
    }
    why = reasons.get(number, f"cannot be read: {os.strerror(number).lower()}")
    return f"The file {path} of the secret {name} {why}."


class Mask:
    """Hides values in a stream of bytes, also where a value comes in two pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        lines = {line for value in values for line in (value, *value.splitlines())}
        hidden = sorted((each.encode() for each in lines if len(each) >= SHORTEST), key=len)
        self._values = hidden[::-1]
        self._pattern = re.compile(b"|".join(map(re.escape, self._values))) if hidden else None
        self._held = b""
        """The end of what came, which may be the beginning of a value."""

    def hide(self, piece: bytes) -> bytes:
        """What may be written now."""
        if self._pattern is None:
            return piece
        come = self._pattern.sub(HIDDEN, self._held + piece)
        held = max((_overlap(come, value) for value in self._values), default=0)
        self._held = come[len(come) - held :]
        return come[: len(come) - held]

    def rest(self) -> bytes:
        """What was held back; nothing comes after it."""
        left, self._held = self._held, b""
        return left


def _overlap(text: bytes, value: bytes) -> int:
    """How many bytes at the end of the text are a beginning of the value."""
    most = min(len(text), len(value) - 1)
    return next((each for each in range(most, 0, -1) if text.endswith(value[:each])), 0)
