"""A file that an option names: its content is kept in the data folder, and the next start has it again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from trainmaster.config.validation import ConfigError
from trainmaster.durable_files import write_whole
from trainmaster.errors import BadInput, system_reason

T = TypeVar("T")
NONE = "none"
"""What an option says instead of a file: nothing, and nothing the next time."""


@dataclass(frozen=True, slots=True)
class Remembered(Generic[T]):
    """What a file says."""

    value: T
    text: str | None = None
    """The file's content; None: there is no file."""
    is_remembered: bool = False
    """Whether it was named at an earlier start."""

    def keep(self, place: Path) -> None:
        """For the next start; its owner alone may read it."""
        if self.text is None:
            place.unlink(missing_ok=True)
        else:
            write_whole(place, self.text, 0o600)


def kept_text(place: Path) -> str:
    """What a file of the data folder says. OSError where it belongs neither to the folder's owner nor to this
    user or root: it says how the manager is started."""
    owners = {0, os.geteuid(), place.parent.stat().st_uid}
    if not {place.lstat().st_uid, place.stat().st_uid} <= owners:
        raise PermissionError(errno.EPERM, "it belongs to another user", str(place))
    return place.read_text("utf-8")


def remembered(
    place: Path, stated: str | None, option: str, default: T, read: Callable[[str, str], T]
) -> Remembered[T]:
    """The value for this start: of the file that is stated, else of the one kept at `place`."""
    if stated == NONE or (stated is None and not place.exists()):
        return Remembered(default)
    file = place if stated is None else Path(stated)
    try:
        text = file.read_text("utf-8") if stated is not None else kept_text(place)
        return Remembered(read(text, str(file)), text, stated is None)
    except ConfigError as error:
        said = str(error)
    except OSError as error:
        said = f"{file} cannot be read: {system_reason(error)}."
    except UnicodeDecodeError:
        said = f"{file} is not a text file in UTF-8."
    if stated is None:
        said = f"{said.rstrip('.')}: say the file with {option}, or none."
    raise BadInput(said)
