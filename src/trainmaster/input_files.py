"""Files that users name: each is read, or a sentence says why not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.errors import BadInput, system_reason

if TYPE_CHECKING:
    from trainmaster.config.validation import Lines

STDIO = "-"


def read_text(path: Path, what: str, *, takes_stdin: bool = False) -> str:
    """A small text file, or standard input where `-` may be named for it."""
    try:
        if takes_stdin and str(path) == STDIO:
            return sys.stdin.read()
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{what} {path} is not UTF-8 text.") from None
    except OSError as error:
        raise BadInput(f"{what} {path} cannot be read: {system_reason(error)}.") from None


def read_yaml(path: Path, what: str) -> tuple[Mapping[str, object], Lines]:
    """The mapping in a YAML file, and the line of each key."""
    from trainmaster.config.yaml_file import read_mapping

    return read_mapping(read_text(path, what), str(path))
