"""Reads the logs of a run on its node in pieces, from where the manager has them already."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from trainmaster.engines.local import logs
from trainmaster.engines.ray.node_reports import LogPiece, LogPlace
from trainmaster.model.job import Run

PIECE_BYTES = 1 << 18


def new_pieces(folder: Path, run: Run, places: MutableMapping[int, LogPlace]) -> Iterator[LogPiece]:
    """What was written since, rank by rank; `places` goes on with each piece that is taken.

    Where a file was dropped before it was read, its rest is missing.
    """
    for rank, files in logs.rank_logs(folder).items():
        for path in _unread(files, places.get(rank)):
            for data, place in _pieces_of(path, places.get(rank)):
                places[rank] = place
                yield LogPiece(run, rank, data, place)


def _unread(files: tuple[Path, ...], place: LogPlace | None) -> tuple[Path, ...]:
    """The file that was being read, and those after it; all of them where it is gone."""
    if place is None:
        return files
    for position, path in enumerate(files):
        try:
            if path.stat().st_ino == place.file:
                return files[position:]
        except OSError:
            continue
    return files


def _pieces_of(path: Path, place: LogPlace | None) -> Iterator[tuple[bytes, LogPlace]]:
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        found = os.fstat(file.fileno())
        end = place.end if place is not None and place.file == found.st_ino else 0
        if end > found.st_size:  # it was emptied
            end = 0
        file.seek(end)
        while data := file.read(PIECE_BYTES):
            end += len(data)
            yield data, LogPlace(found.st_ino, end)
