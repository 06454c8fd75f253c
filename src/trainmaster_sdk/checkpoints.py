"""Checkpoints on disk, each complete or absent: `step-N/` folders, and `latest` that names the newest.

A checkpoint is written beside, made durable, renamed into place, and only then named by `latest`. What is in
it is listed in its `whole.json`, so that a damaged one is known before it is used, and told apart
from one that this program cannot read.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LATEST = "latest"
MANIFEST = "whole.json"
TRAINER_STATE = "trainer_state.json"
"""What Hugging Face's Trainer writes last into its `checkpoint-N`."""
NAMES = re.compile(r"(?:\.old-)?(step|checkpoint)-(\d+)")
PIECE = 1 << 20
LOG = logging.getLogger("trainmaster_sdk")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that has been read."""

    step: int
    state: Any
    folder: Path


class Checkpoints:
    """One job's folder of checkpoints. One process writes; any number may read."""

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError("Keep at least one checkpoint: a job cannot go on from none.")
        self.folder = folder
        self._keep = keep

    def save(self, state: Any, step: int) -> Path:
        """Write one object; it is durable when this returns."""
        beside = self.begin(step)
        try:
            sums = _write_state(beside, state)
            return self.commit(beside, step, sums)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def begin(self, step: int) -> Path:
        """An empty folder to write a checkpoint into; `commit` puts it in its place."""
        beside = self.beside(step)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        return beside

    def beside(self, step: int) -> Path:
        """Where the checkpoint of a step is written: the same for all ranks."""
        return self.folder / f".new-step-{step}"

    def commit(self, beside: Path, step: int, sums: dict[str, int] | None = None) -> Path:
        """Make durable what was written, put it in its place, point `latest` at it, remove old ones."""
        files = {
            str(file.relative_to(beside)): {"bytes": file.stat().st_size} for file in _files(beside)
        }
        for name, crc in (sums or {}).items():
            files[name]["crc32"] = crc
        (beside / MANIFEST).write_text(json.dumps({"step": step, "files": files}, indent=1))
        make_durable(beside)
        place = self.folder / f"step-{step}"
        old = self.folder / f".old-step-{step}"
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        beside.rename(place)
        _sync(self.folder)
        self._point_at(place)
        shutil.rmtree(old, ignore_errors=True)
        self._prune()
        return place

    def newest(self) -> Path | None:
        """The newest checkpoint that is whole: `latest`, or else an earlier one, with a warning."""
        passed_over: list[tuple[str, str]] = []
        for folder in self._candidates():
            fault = _fault_of(folder)
            if fault is None:
                for worse, why in passed_over:
                    LOG.warning("%s is damaged (%s); going on from %s.", worse, why, folder.name)
                return folder
            passed_over.append((folder.name, fault))
        for worse, why in passed_over:
            LOG.warning("%s is damaged (%s), and there is no earlier one.", worse, why)
        return None

    def load(self) -> Loaded | None:
        """Read the newest whole checkpoint that `save` wrote; None if there is none."""
        folder = self.newest()
        if folder is None:
            return None
        step = _step_of(folder)
        assert step is not None
        return Loaded(step, _read_state(folder), folder)

    def clear_away(self) -> None:
        """Remove what a killed writer left behind. Only the writer may, and before it writes."""
        for left in self.folder.glob(".new-step-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _candidates(self) -> list[Path]:
        """Newest first. `latest` is newer than any number, so that one can go back by editing it."""
        if not self.folder.is_dir():
            return []
        numbered = [
            (step, not folder.name.startswith("."), folder)
            for folder in self.folder.iterdir()
            if (step := _step_of(folder)) is not None and folder.is_dir()
        ]
        ordered = sorted(numbered, reverse=True)
        pointed = self._pointed()
        if pointed is not None:
            ordered = [entry for entry in ordered if entry[0] <= pointed]
        return [folder for _, _, folder in ordered]

    def _pointed(self) -> int | None:
        try:
            name = (self.folder / LATEST).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return _step_of(Path(name))

    def _point_at(self, place: Path) -> None:
        beside = self.folder / f".{LATEST}"
        with beside.open("w") as file:
            file.write(place.name + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.folder / LATEST)
        _sync(self.folder)

    def _prune(self) -> None:
        """Remove our own checkpoints before the newest few. Damaged ones do not count as kept."""
        kept = 0
        for folder in self._candidates():
            if not folder.name.startswith("step-"):
                continue
            if kept < self._keep and _fault_of(folder, deep=False) is None:
                kept += 1
            elif kept >= self._keep:
                gone = self.folder / f".new-{folder.name}"
                folder.rename(gone)  # a half-removed one must not look like a checkpoint
                shutil.rmtree(gone, ignore_errors=True)


def make_durable(folder: Path) -> None:
    """Flush all files of a folder to disk, so that they survive a power failure."""
    for file in _files(folder):
        _sync(file)
    for below in [path for path in folder.rglob("*") if path.is_dir()]:
        _sync(below)
    _sync(folder)


def _step_of(folder: Path) -> int | None:
    found = NAMES.fullmatch(folder.name)
    return int(found[2]) if found else None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# --------------------------------------------------------------------------------- is it whole?


def _fault_of(folder: Path, deep: bool = True) -> str | None:
    """What is wrong with a checkpoint; None if it is complete. `deep` also verifies checksums."""
    if "checkpoint-" in folder.name:
        return None if (folder / TRAINER_STATE).is_file() else f"it has no {TRAINER_STATE}"
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read"
    for name, wanted in files.items():
        fault = _file_fault(folder / name, wanted, deep)
        if fault is not None:
            return fault
    return None


def _file_fault(file: Path, wanted: dict[str, int], deep: bool) -> str | None:
    if not file.is_file():
        return f"{file.name} is missing"
    size = file.stat().st_size
    if size != wanted["bytes"]:
        return f"{file.name} has {size} bytes instead of {wanted['bytes']}"
    if deep and "crc32" in wanted and _checksum_of(file) != wanted["crc32"]:
        return f"the checksum of {file.name} is wrong"
    return None


def _checksum_of(file: Path) -> int:
    crc = 0
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            crc = zlib.crc32(piece, crc)
    return crc


# ---------------------------------------------------------------------------- one object, one file


class _ChecksumWriter:
    """Writes to a file and computes its checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.crc = 0

    def write(self, piece: Any) -> int:
        self.crc = zlib.crc32(piece, self.crc)
        self._file.write(piece)
        return len(memoryview(piece).cast("B"))

    def flush(self) -> None:
        self._file.flush()


def _write_state(folder: Path, state: Any) -> dict[str, int]:
    """Write with torch if the program uses it, else with pickle; returns checksums by file."""
    torch = sys.modules.get("torch")
    name = "state.pickle" if torch is None else "state.pt"
    with (folder / name).open("wb") as file:
        summed = _ChecksumWriter(file)
        if torch is None:
            pickle.dump(state, summed, protocol=5)
        else:
            torch.save(state, summed)
    return {name: summed.crc}


def _read_state(folder: Path) -> Any:
    file = folder / "state.pt"
    if file.is_file():
        import torch

        return torch.load(file, map_location="cpu", weights_only=False)
    file = folder / "state.pickle"
    if file.is_file():
        with file.open("rb") as content:
            return pickle.load(content)
    raise FileNotFoundError(
        f"{folder} was not written by tm.save(): read it with what wrote it, from tm.latest()."
    )
