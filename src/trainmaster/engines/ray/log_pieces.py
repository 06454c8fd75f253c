"""Reads the logs of a run on its node in pieces, from where the manager has them already."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import BinaryIO

from trainmaster.engines.local import logs
from trainmaster.engines.ray.node_reports import LogPiece, LogPlace
from trainmaster.model.job import Run

PIECE_BYTES = 1 << 18
KNOWN_BY = 64
"""Bytes by which a file is known again."""


def new_pieces(folder: Path, run: Run, places: MutableMapping[int, LogPlace]) -> Iterator[LogPiece]:
    """What was written since, rank by rank; `places` goes on with each piece that is taken.

    Where a file was dropped before it was read, its rest is missing.
    """
    for rank, files in logs.rank_logs(folder).items():
        for path in _unread(files, places.get(rank)):
            for data, place in _pieces_of(path, places.get(rank)):
                before = places.get(rank)
                places[rank] = place
                yield LogPiece(run, rank, data, before, place)


def _unread(files: tuple[Path, ...], place: LogPlace | None) -> tuple[Path, ...]:
    """The file that was being read, and those after it; all of them where it is gone."""
    for position, path in enumerate(files):
        try:
            with path.open("rb") as file:
                if place is not None and _is_at(file, place):
                    return files[position:]
        except OSError:
            continue
    return files


def _is_at(file: BinaryIO, place: LogPlace) -> bool:
    """Whether it is the file that was read up to this place."""
    if os.fstat(file.fileno()).st_ino != place.file:
        return False
    file.seek(place.end - len(place.last))
    return file.read(len(place.last)) == place.last


def _pieces_of(path: Path, place: LogPlace | None) -> Iterator[tuple[bytes, LogPlace]]:
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        number, end, last = os.fstat(file.fileno()).st_ino, 0, b""
        if place is not None and _is_at(file, place):
            end, last = place.end, place.last
        file.seek(end)
        while data := file.read(PIECE_BYTES):
            end += len(data)
            last = (last + data)[-KNOWN_BY:]
            yield data, LogPlace(number, end, last)
