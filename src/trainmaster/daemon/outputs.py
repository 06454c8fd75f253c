"""What a job wrote in its copy of the code: new and changed files, listed or as a tar archive.

`python -m trainmaster.daemon.outputs ACCOUNT FOLDER` writes the archive to standard output.
"""

from __future__ import annotations

import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from trainmaster.engines.copied_files import CACHES, is_as_copied
from trainmaster.engines.local.privileges import account_in, become


def written_files(folder: str) -> Iterator[tuple[str, int, float]]:
    """Path, size and time of every file that the job wrote there, sorted by folder; caches are left out."""
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in CACHES)
        links = [each for each in folders if os.path.islink(os.path.join(base, each))]
        for name in sorted((*names, *links)):
            path = Path(base, name)
            if is_as_copied(path):
                continue
            try:
                seen = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
                yield os.path.relpath(path, folder), seen.st_size, seen.st_mtime


def write_archive(folder: str) -> None:
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path, _, _ in written_files(folder):
            archive.add(os.path.join(folder, path), path, recursive=False)


def main(argument: str, folder: str) -> None:
    account = account_in(argument)
    if account is not None:
        become(account)
    write_archive(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
