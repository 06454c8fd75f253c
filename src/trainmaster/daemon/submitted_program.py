"""The files of a job's program as they are at submission, so that its story can say which of them changed.

A list goes by its content into `programs/` of the data folder: jobs of an unchanged folder share one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainmaster.daemon.code_snapshot import listed_by_git
from trainmaster.durable_files import write_whole
from trainmaster.engines.local.program_files import Seen, listed

FOLDER = "programs"
MOST_WORDS = 200
ENDINGS = (".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".ipynb")


def program_list(workdir: str, commands: Iterable[tuple[str, ...]]) -> Seen:
    """The files that the commands name, and those that Git tracks in the folder."""
    named = (path for command in commands for path in _named(command))
    return listed(
        workdir, dict.fromkeys((*named, *(listed_by_git(Path(workdir), "--cached") or ())))
    )


def keep_list(found: Seen, folder: Path) -> str:
    """Write the list down, once for equal lists; where it is, empty for an empty one."""
    if not found:
        return ""
    content = json.dumps(found, separators=(",", ":")).encode()
    place = folder / FOLDER / f"{hashlib.sha256(content).hexdigest()[:32]}.json"
    if place.exists():
        os.utime(place)
        return str(place)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(place, content)
    return str(place)


def _named(command: tuple[str, ...]) -> Iterator[str]:
    """Words of the command that name files of a program, such as `train.py` or `./run`."""
    for word in _words(command):
        if word.endswith(ENDINGS) or (word.startswith("./") and len(word) > 2):
            yield word


def _words(command: tuple[str, ...]) -> Iterable[str]:
    if len(command) == 3 and command[1] == "-c":
        try:
            return shlex.split(command[2])[:MOST_WORDS]
        except ValueError:
            return command[2].split()[:MOST_WORDS]
    return command[:MOST_WORDS]
