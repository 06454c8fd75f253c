"""`trainmaster outputs`: what a job wrote in its copy of the code."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from trainmaster.cli.support import format as words
from trainmaster.cli.support.console import show_table, write, write_json
from trainmaster.cli.support.options import AsJson, JobName, option
from trainmaster.client.manager_api import ManagerApi, job_path
from trainmaster.errors import BadInput, Failed, cannot_write
from trainmaster.text.formatting import listing, plural, size

TO = "Folder to write to. Default: outputs-ID here."
FORCE = "Replace files that are there already."
NAMED = 3
"""Files that an error names."""


def outputs(
    client: ManagerApi,
    job: JobName,
    to: Annotated[Path | None, option("--to DIR", TO)] = None,
    lists: Annotated[bool, option("--list", "List the files without fetching them.")] = False,
    force: Annotated[bool, option("--force", FORCE)] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the files that a job with --snapshot wrote or changed in its copy of the code.

    Nothing is fetched where a file is there already, unless --force. A job without --snapshot runs in
    its folder: what it wrote is there already.

    Examples:
        trainmaster outputs 12
        trainmaster outputs 12 --to results
        trainmaster outputs 12 --list
    """
    answer = client.get(job_path(job, "outputs"))
    files = answer["files"]
    if as_json:
        write_json(answer)
    elif lists:
        rows = ((each["path"], size(each["size"]), words.at(each["at_s"])) for each in files)
        show_table(("file", "size", "written"), rows)
    elif not files:
        write(f"Job {job} has written nothing in its copy, {answer['folder']}.\n")
    else:
        place = to or Path(f"outputs-{client.get(job_path(job))['id']}")
        paths = [each["path"] for each in files]
        _refuse_blocked(place, paths)
        if not force:
            _refuse_present(place, paths)
        fetched = _extract(client.download(job_path(job, "outputs/archive")), place)
        write(f"Fetched {plural(fetched, 'file')} to {place}.\n")


def _refuse_blocked(place: Path, files: Sequence[str]) -> None:
    """BadInput where a file is in the place of a folder, or a folder in that of a file."""
    targets = [place / file for file in files]
    folders = dict.fromkeys(each for target in targets for each in target.parents)
    bad = [
        f"{each} is not a folder" for each in folders if os.path.lexists(each) and not each.is_dir()
    ]
    bad += [f"{each} is a folder" for each in targets if each.is_dir() and not each.is_symlink()]
    if bad:
        raise BadInput(f"{bad[0]}, and nothing was fetched: name another folder with --to.")


def _refuse_present(place: Path, files: Sequence[str]) -> None:
    """BadInput where a file would be replaced."""
    there = [file for file in files if os.path.lexists(place / file)]
    if there:
        more = [f"{len(there) - NAMED} more"] if len(there) > NAMED else []
        has = listing([*there[:NAMED], *more])
        raise BadInput(
            f"{place} has {has} already, and nothing was fetched: name another folder with --to, or"
            " replace them with --force."
        )


class _Pieces(io.RawIOBase):
    """Pieces of a download as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, most: int = -1) -> bytes:
        while len(self._rest) < most and (piece := next(self._pieces, b"")):
            self._rest += piece
        found, self._rest = self._rest[:most], self._rest[most:]
        return found


def _extract(pieces: Iterator[bytes], place: Path) -> int:
    """Write the files of the archive below a folder; how many."""
    count = 0
    try:
        with tarfile.open(fileobj=_Pieces(pieces), mode="r|") as archive:
            for member in archive:
                target = place / member.name
                if ".." in Path(member.name).parts or member.name.startswith("/"):
                    raise Failed(f"The archive names {member.name}, outside of its folder.")
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(archive, member, target)
                count += 1
    except tarfile.TarError as error:
        raise Failed(f"The files were not fetched completely ({error}): try again.") from None
    except OSError as error:
        raise cannot_write(str(place), error) from error
    return count


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.unlink(missing_ok=True)
    if member.issym():
        os.symlink(member.linkname, target)
        return
    content = archive.extractfile(member)
    if content is not None:
        with target.open("wb") as writing:
            shutil.copyfileobj(content, writing)
        target.chmod(member.mode & 0o777)
