"""Which options of `container.options` an operator allows: some of them are as good as being root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

HARMLESS = (
    *(
        "--shm-size",
        "--ulimit",
        "--env",
        "-e",
        "--memory",
        "-m",
        "--cpus",
        "--tmpfs",
        "--read-only",
    ),
    *("--nv", "--contain", "--containall", "--cleanenv", "--no-home", "--writable-tmpfs"),
)
"""What a manager for several users allows where its operator says nothing: nothing of the host comes in."""
ANY = ("*",)


def refusal(options: Sequence[str], allowed: Iterable[str]) -> str:
    """Why these options are not allowed; empty where they are."""
    patterns = tuple(allowed)
    for name, value in _pairs(options):
        if not any(_allows(pattern, name, value) for pattern in patterns):
            said = f"{name} {value}".strip()
            return (
                f"container.options has {said!r}, which this manager does not allow: it allows "
                + (", ".join(patterns) if patterns else "none")
            )
    return ""


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option with its value: `--bind /data` and `--bind=/data` are the same."""
    words = list(options)
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield name, value


def _allows(pattern: str, name: str, value: str) -> bool:
    """`*`, `--shm-size` with any value, or `--bind=/data/*`; no way up from an allowed folder."""
    wanted, equals, values = pattern.partition("=")
    if pattern == "*":
        return True
    if wanted != name or not name.startswith("-"):
        return False
    return not equals or (fnmatchcase(value, values) and ".." not in value.split("/"))
