"""The files of submissions: whether folder and data are there, lists of programs, copies of code.

All of it happens in processes of their own, because it is the users' files (`file_processes.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from trainmaster.config.limits import Limits
from trainmaster.daemon.file_processes import FileLimits, FileProcesses, archive_of
from trainmaster.daemon.request_errors import RequestError
from trainmaster.daemon.service_api import Submission
from trainmaster.model.units import SECOND

LOOKS = 8
"""How many folders are looked at at once."""
NO_FILES = "-"
"""The digest of a program that is in no file of its folder."""
ARCHIVES = 4
"""How many archives of outputs are made at once."""


class SubmittedFiles:
    """Looks at the folders of submissions and copies their code, below the manager's own folder."""

    def __init__(self, folder: Path, links: bool, limits: Limits) -> None:
        self._folder = folder
        self._links = links
        """Whether a copy may have links to the folder: its nodes see it."""
        self._most = [limits.snapshot_bytes, limits.snapshot_files]
        self._looks = FileProcesses(FileLimits(LOOKS, limits.folder_deadline / SECOND))
        copies = FileLimits(limits.snapshots, limits.snapshot_deadline / SECOND)
        self._copies = FileProcesses(copies)
        self._archives = asyncio.Semaphore(ARCHIVES)

    async def look(self, asked: Sequence[Submission]) -> list[Submission]:
        """Check each folder once, for all its jobs; the submissions with their programs listed."""
        by_folder: dict[str, list[Submission]] = {}
        for each in asked:
            by_folder.setdefault(each.recipe.workdir, []).append(each)
        lists = {
            workdir: await self._look(workdir, jobs)
            for workdir, jobs in by_folder.items()
            if any(each.data or _names_folder(each) for each in jobs)
        }
        return [_listed(each, lists) for each in asked]

    async def _look(self, workdir: str, jobs: Sequence[Submission]) -> str:
        commands = {each.recipe.command: None for each in jobs if _names_folder(each)}
        data = {path: None for each in jobs for path in each.data}
        found: str = await self._looks.ask(
            "look",
            workdir,
            workdir=workdir,
            data=[*data],
            commands=[*commands],
            state=str(self._folder),
        )
        return found

    async def check(self, asked: Submission) -> None:
        """For a dry run: whether it would be refused because of its files."""
        if not asked.data and not _names_folder(asked):
            return
        workdir = asked.recipe.workdir
        await self._looks.ask(
            "look", workdir, workdir=workdir, data=[*asked.data], commands=[], state=""
        )
        if asked.keeps_code:
            into = str(self._copy_of("0"))
            await self._looks.ask("measure", workdir, workdir=workdir, into=into, most=self._most)

    @asynccontextmanager
    async def copies(self) -> AsyncIterator[Copies]:
        """Copies of code for one submission; removed again if that is refused."""
        copies = Copies(self._copies, self._copy_of, self._links, self._most)
        try:
            yield copies
        except BaseException:
            await copies.remove()
            raise

    async def stamp(self, path: str) -> str | None:
        """What this path is like now; None where that takes too long to find out."""
        try:
            return str(await self._looks.ask("stamp", path, path=path))
        except RequestError:
            return None

    async def outputs(self, ran_in: str) -> Sequence[tuple[str, int, float]] | None:
        """Path, size and time of what was written into this copy; None for a folder that is not one."""
        if not self._is_copy(ran_in):
            return None
        found = await self._looks.ask("list_outputs", ran_in, copied=ran_in)
        return [(path, size, at_s) for path, size, at_s in found]

    async def archive(self, ran_in: str) -> AsyncIterator[bytes]:
        """The same files as a tar archive, a few archives at a time."""
        async with self._archives:
            async for piece in archive_of(ran_in):
                yield piece

    def _is_copy(self, folder: str) -> bool:
        place = Path(folder)
        return place.name == "code" and place.parent.parent == self._folder / "jobs"

    def _copy_of(self, number: str) -> Path:
        return self._folder / "jobs" / number / "code"

    async def close(self) -> None:
        await self._looks.close()
        await self._copies.close()


class Copies:
    """The copies of code for the jobs of one submission."""

    def __init__(
        self,
        processes: FileProcesses,
        copy_of: Callable[[str], Path],
        links: bool,
        most: Sequence[int],
    ) -> None:
        self._processes = processes
        self._copy_of = copy_of
        self._links = links
        self._most = most
        self._made: list[Path] = []
        self._first: dict[str, tuple[Path, tuple[str, ...]]] = {}
        """By folder: its first copy, and what that leaves out."""

    async def made_for(self, asked: Submission, number: str) -> tuple[Submission, tuple[str, ...]]:
        """The submission in its copy, and what the copy leaves out; as it is where it wants none."""
        if not asked.keeps_code:
            return asked, ()
        into, workdir = self._copy_of(number), asked.recipe.workdir
        self._made.append(into.parent)
        if workdir in self._first:
            kept, left_out = self._first[workdir]
            await self._processes.ask("copy_again", workdir, kept=str(kept), into=str(into))
        else:
            said = await self._processes.ask(
                "copy", workdir, workdir=workdir, into=str(into), links=self._links, most=self._most
            )
            left_out = tuple(said)
            self._first[workdir] = into, left_out
        return replace(asked, recipe=replace(asked.recipe, workdir=str(into))), left_out

    async def remove(self) -> None:
        if self._made:
            folders = [str(each) for each in self._made]
            with contextlib.suppress(RequestError):  # what is left then goes at the next start
                await asyncio.shield(self._processes.ask("remove", "", folders=folders))


def _names_folder(asked: Submission) -> bool:
    """Whether its user named a folder; else it runs at home, which is there."""
    return bool(asked.spec.get("workdir"))


def _listed(asked: Submission, lists: dict[str, str]) -> Submission:
    if not _names_folder(asked):
        return asked
    found = lists[asked.recipe.workdir]
    recipe = replace(asked.recipe, program_digest=Path(found).stem if found else NO_FILES)
    return replace(
        asked, recipe=recipe if asked.keeps_code else replace(recipe, program_files=found)
    )
