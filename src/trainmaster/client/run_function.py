"""Runs a function in its job, and writes what it returns or raises: `python -m … FOLDER`."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

from trainmaster_sdk import wire

FUNCTION, PATHS = "function.pickle", "paths.pickle"
RETURNED, RAISED = "returned", "raised"


def call_file(index: int) -> str:
    return f"call-{index}.pickle"


def outcome_file(index: int, rank: int) -> str:
    return f"outcome-{index}-{rank}.pickle"


def main(folder: Path) -> None:
    index, rank = _number(wire.ARRAY_INDEX), _number("RANK")
    known = set(sys.path)
    sys.path += [each for each in _load(folder / PATHS) if each not in known]
    place = folder / outcome_file(index, rank)
    try:
        function = _load(folder / FUNCTION)
        positional, named = _load(folder / call_file(index))
        found = function(*positional, **named)
        _write(place, RETURNED, _dumps(found), "")
    except Exception as error:
        try:
            pickled = _dumps(error)
            pickle.loads(pickled)  # many exceptions can be written and not be read
        except Exception:
            pickled = b""
        _write(place, RAISED, pickled, traceback.format_exc())
        raise


def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _dumps(value: object) -> bytes:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def _number(variable: str) -> int:
    return int(os.environ.get(variable) or 0)


def _write(place: Path, kind: str, pickled: bytes, text: str) -> None:
    """Whole or not at all: the job may be killed here."""
    partial = place.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(pickle.dumps((kind, _number(wire.ATTEMPT), pickled, text)))
    os.replace(partial, place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
