"""Write whole files or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO, cast

from trainmaster.cli.support.console import Output
from trainmaster.errors import BadInput, Failed, cannot_write, system_reason
from trainmaster.input_files import STDIO

if TYPE_CHECKING:
    pass

STDOUT = STDIO


def write_text(path: Path, write: Callable[[TextIO], object]) -> None:
    """Fill a text file through a hidden one beside it, so that it is there whole or not at all."""
    _write(path, "w", write)


def write_bytes(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    _write(path, "wb", write)


def _write(path: Path, mode: str, write: Callable[..., object]) -> None:
    target = path.resolve()
    replaces = not path.exists() or path.is_file()  # a device or a pipe is written to as it is
    partial = _partial(target) if replaces else target
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    try:
        with partial.open(mode, encoding=encoding, newline=newline) as out:
            write(out)
        if replaces:
            os.replace(partial, target)
    except OSError as error:
        raise cannot_write(str(path), error) from error
    finally:
        if replaces:
            partial.unlink(missing_ok=True)


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.partial")


def write_out(out: Path | None, write: Callable[[TextIO], object]) -> None:
    """To a file, or to standard output when none or `-` is named."""
    if out is None or str(out) == STDOUT:
        write(cast(TextIO, Output()))
    else:
        write_text(out, write)


def check_writable(path: Path | None, option: str) -> None:
    """Refuse before a long run a file that could not be written after it."""
    if path is None or str(path) == STDIO:
        return
    target = path.resolve()
    if target.is_dir():
        raise BadInput(f"{option} {path} is a directory; name a file.")
    if not target.parent.is_dir():
        raise BadInput(f"{option} {path} cannot be written: there is no directory {path.parent}.")
    is_special = target.exists() and not target.is_file()
    if is_special and not os.access(target, os.W_OK):
        raise BadInput(f"{option} {path} cannot be written: permission denied.")
    if not is_special:
        _try(_partial(target), f"{option} {path} cannot be written")


def check_directory(path: Path | None, option: str) -> None:
    """The same for a directory that may not exist yet."""
    if path is None:
        return
    if path.exists() and not path.is_dir():
        raise BadInput(f"{option} {path} is a file; name a directory.")
    nearest = next(each for each in (path, *path.resolve().parents) if each.exists())
    if not nearest.is_dir():
        raise BadInput(f"{option} {path} cannot be written: {nearest} is a file.")
    _try(
        _partial(nearest / "report"),
        f"{option} {path} cannot be written: {nearest} does not let you",
    )


def _try(file: Path, sentence: str) -> None:
    """Make the file and remove it: permissions alone do not show that a disk is full or read-only."""
    try:
        file.touch()
        file.unlink()
    except OSError as error:
        raise Failed(f"{sentence} ({system_reason(error)}); choose another place.") from None
