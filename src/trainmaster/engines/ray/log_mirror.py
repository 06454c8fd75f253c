"""The manager's copy of a run's logs, in the local engine's layout, with how far each rank has been read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from trainmaster.engines.local import logs
from trainmaster.engines.local.logs import RankLog
from trainmaster.engines.ray.node_reports import LogPiece, LogPlace
from trainmaster.model.launch_spec import LogLimits


class LogMirror:
    """The logs of one part of a gang: `part` names it in the run's folder."""

    def __init__(self, folder: Path, part: str, limits: LogLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._logs: dict[int, RankLog] = {}
        self._noted = folder / f"log-places-{part}.json"
        self.places: dict[int, LogPlace] = self._restored()

    def write(self, pieces: Iterable[LogPiece]) -> None:
        """Append what is new; a piece that was written already is left out."""
        has_new = False
        for piece in pieces:
            if piece.before != self.places.get(piece.rank):
                continue
            if piece.rank not in self._logs:
                path = logs.path_of(str(self._folder), piece.rank)
                limits = self._limits
                self._logs[piece.rank] = RankLog(path, limits.file_bytes, limits.files)
            self._logs[piece.rank].write(piece.data)
            self.places[piece.rank] = piece.place
            has_new = True
        if has_new:
            self._note()

    def close(self) -> None:
        for each in self._logs.values():
            each.close()
        self._logs.clear()

    def _note(self) -> None:
        """How far each rank has been read, and how long its copy is: what is longer is written again."""
        noted = {
            str(rank): [place.file, place.end, place.last.hex(), _size(self._folder, rank)]
            for rank, place in self.places.items()
        }
        beside = self._noted.with_suffix(".new")
        with suppress(OSError):  # with the next piece
            beside.write_text(json.dumps(noted))
            beside.replace(self._noted)

    def _restored(self) -> dict[int, LogPlace]:
        try:
            noted: Mapping[str, tuple[int, int, str, int]] = json.loads(self._noted.read_text())
        except (OSError, ValueError):
            return {}
        found = {}
        for rank, (file, end, last, size) in noted.items():
            found[int(rank)] = LogPlace(file, end, bytes.fromhex(last))
            if _size(self._folder, int(rank)) > size:
                with suppress(OSError):
                    os.truncate(logs.path_of(str(self._folder), int(rank)), size)
        return found


def _size(folder: Path, rank: int) -> int:
    try:
        return os.path.getsize(logs.path_of(str(folder), rank))
    except OSError:
        return 0
