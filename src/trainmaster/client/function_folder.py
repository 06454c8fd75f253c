"""The folder of a function that runs as a job: the function, the arguments of each call, and the results.

Loading a pickle runs code. So the folder is its user's alone, and a result is loaded only from a place that
nobody else could have written.
"""

from __future__ import annotations

import os
import pickle
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.client.address import user_data_folder
from trainmaster.client.peer_check import Stranger, check_path, trusted
from trainmaster.client.run_function import FUNCTION, PATHS, RETURNED, call_file, outcome_file
from trainmaster.errors import Failed, cannot_write

FOLDER = "functions"
RUNNER = "trainmaster.client.run_function"


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned or raised, as the job wrote it."""

    kind: str
    attempt: int
    pickled: bytes
    """The value or the exception; empty where it cannot be pickled."""
    text: str
    """The traceback."""

    @property
    def has_returned(self) -> bool:
        return self.kind == RETURNED


def default_place() -> Path:
    return user_data_folder() / FOLDER


def new_folder(place: Path, function: Callable[..., Any], calls: Sequence[Call]) -> Path:
    """Write a function and its calls, for the jobs that run them."""
    dump = _dumps()
    folder = place / uuid.uuid4().hex
    try:
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)
        _write(folder / FUNCTION, dump(function))
        _write(folder / PATHS, pickle.dumps([os.path.abspath(each) for each in sys.path]))
        for index, call in enumerate(calls):
            _write(folder / call_file(index), dump((call.positional, dict(call.named or {}))))
    except OSError as error:
        raise cannot_write(str(folder), error) from None
    return folder


def remove(folder: Path) -> None:
    """What was written for jobs that the manager did not take."""
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()


def outcome_of(folder: Path, index: int, rank: int) -> Outcome | None:
    """What the call has written; None where it has written nothing."""
    path = folder / outcome_file(index, rank)
    if not path.exists():
        return None
    check(path)
    return Outcome(*pickle.loads(path.read_bytes()))


def check(path: Path) -> None:
    """Failed where another user could have written it."""
    try:
        check_path(path, trusted())
    except Stranger as no:
        raise Failed(
            f"The result is not loaded, because loading a pickle runs code. {no}"
        ) from None


def _dumps() -> Callable[[Any], bytes]:
    try:
        import cloudpickle
    except ImportError:
        raise Failed(
            "functions as jobs need cloudpickle: `pip install 'trainmaster[notebook]'`."
        ) from None
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
