"""Files of code that a node keeps for the jobs to come, by the digest of their content."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainmaster.engines.local.journal import BOOT
from trainmaster.engines.ray.file_tree import digest_of

PART = ".part"


class NodeCache:
    """A folder of files named by their digests; those of another boot may be broken and are not used."""

    def __init__(self, folder: Path) -> None:
        self._all = folder
        self._folder = folder / (BOOT or "unknown")

    def open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in self._all.iterdir():
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)

    def has(self, digest: str) -> bool:
        """It is then kept longer than those that nobody asked for."""
        try:
            os.utime(self._folder / digest)
        except OSError:
            return False
        return True

    def path_of(self, digest: str) -> Path:
        return self._folder / digest

    def begun(self, digest: str) -> Path:
        """Where it is written until it is whole."""
        return self._folder / f"{digest}{PART}"

    def finish(self, digest: str) -> None:
        """Keep what was written, if it is what it should be: else it has to be sent again."""
        part = self.begun(digest)
        with suppress(FileNotFoundError):  # another job needed it too, and was faster
            with part.open("rb") as file:
                is_right = digest_of(file.fileno()) == digest
            if is_right:
                part.replace(self.path_of(digest))
            else:
                part.unlink()

    def kept(self) -> Iterator[tuple[float, int, Path]]:
        """When each was used last, and its size."""
        if not self._folder.is_dir():
            return
        with os.scandir(self._folder) as found:
            for entry in found:
                with suppress(FileNotFoundError):
                    seen = entry.stat()
                    if not entry.name.endswith(PART):
                        yield seen.st_mtime, seen.st_size, Path(entry.path)
