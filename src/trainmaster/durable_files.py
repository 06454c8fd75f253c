"""Small files that are there whole or not at all, after a power failure too.

The standard library only: supervisors load it.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

_numbers = count(1)


def write_whole(place: str | Path, content: str | bytes, mode: int = 0o666) -> None:
    """Replace the file: the disk has all of it when this returns; on an error the former one stays."""
    beside = f"{place}.{os.getpid()}-{next(_numbers)}"
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(beside, place)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def put_in_place(synced: str | Path, place: str | Path) -> None:
    """Rename a file whose content the disk has, and make sure of its name."""
    os.replace(synced, place)
    sync(os.path.dirname(place) or ".")


def sync(path: str | Path) -> None:
    """Have the disk write a file, or the names in a folder."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def read_name(place: Path) -> str:
    """A name that has a file of its own; empty where there is none, or where its content was lost."""
    try:
        said = place.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return said if said.isprintable() else ""
