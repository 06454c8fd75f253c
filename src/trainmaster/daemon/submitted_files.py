"""The files of submissions: whether folder and data are there, lists of programs, copies of code.

All of it happens in processes of their own, because it is the users' files (`file_processes.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.daemon.code_snapshot import begin_copy, settle_copy
from trainmaster.daemon.file_processes import FileLimits, FileProcesses, archive_of
from trainmaster.daemon.places import Turns, half_each
from trainmaster.daemon.request_errors import RequestError
from trainmaster.daemon.service_api import Submission
from trainmaster.daemon.submitted_program import keep_list
from trainmaster.engines.local.privileges import is_users
from trainmaster.engines.local.program_files import Seen
from trainmaster.model.launch_spec import Account, LaunchSpec
from trainmaster.model.units import SECOND

LOOKS = 8
"""How many folders are looked at at once."""
NO_FILES = "-"
"""The digest of a program that is in no file of its folder."""
ARCHIVES = 4
"""How many archives of outputs are made at once; one user has half of them at most."""


Place = tuple[str, Account | None, str]
"""A folder, who looks at it, and whose jobs run there."""


class SubmittedFiles:
    """Looks at the folders of submissions and copies their code, below the manager's own folder."""

    def __init__(self, folder: Path, links: Callable[[], bool], limits: Limits) -> None:
        self._folder = folder
        self._links = links
        """Whether a copy may have links to the folder: all nodes see it now."""
        self._most = [limits.snapshot_bytes, limits.snapshot_files]
        self._looks = FileProcesses(FileLimits(LOOKS, limits.folder_deadline / SECOND))
        copies = FileLimits(limits.snapshots, limits.snapshot_deadline / SECOND)
        self._copies = FileProcesses(copies)
        self._archives = Turns(half_each(ARCHIVES))
        self._silence_s = limits.archive_silence / SECOND

    async def look(self, asked: Sequence[Submission]) -> list[Submission]:
        """Check each folder once, for all its jobs; the submissions with their programs listed."""
        by_folder: dict[Place, list[Submission]] = {}
        for each in asked:
            by_folder.setdefault(_place_of(each), []).append(each)
        lists = {
            place: await self._look(place, jobs)
            for place, jobs in by_folder.items()
            if any(each.data or _names_folder(each) for each in jobs)
        }
        return [_listed(each, lists) for each in asked]

    async def _look(self, place: Place, jobs: Sequence[Submission]) -> str:
        commands = {each.recipe.command: None for each in jobs if _names_folder(each)}
        data = {path: None for each in jobs for path in each.data}
        found = await self._ask_look(place, [*data], [*commands])
        return await asyncio.to_thread(keep_list, found, self._folder)

    async def _ask_look(
        self, place: Place, data: Sequence[str], commands: Sequence[Sequence[str]]
    ) -> Seen:
        workdir, account, owner = place
        user = account.name if is_users(account) else ""
        said = {"workdir": workdir, "data": data, "commands": commands, "user": user}
        found: Seen = await self._looks.ask("look", workdir, account, owner, **said)
        return found

    async def check(self, asked: Submission) -> None:
        """For a dry run: whether it would be refused because of its files."""
        if not asked.data and not _names_folder(asked):
            return
        place = _place_of(asked)
        await self._ask_look(place, asked.data, ())
        if asked.keeps_code:
            said: dict[str, Any] = {
                "workdir": place[0],
                "into": str(self._copy_of("0")),
                "most": self._most,
            }
            await self._looks.ask("measure", *place, **said)

    @asynccontextmanager
    async def copies(self) -> AsyncIterator[Copies]:
        """Copies of code for one submission; removed again if that is refused."""
        copies = Copies(self._copies, self._copy_of, self._links(), self._most)
        try:
            yield copies
        except BaseException:
            await copies.remove()
            raise

    async def stamp(self, path: str, account: Account | None) -> str | None:
        """What this path is like now, as that account sees it; None where that takes too long to find out."""
        owner = None if account is None else account.name
        try:
            return str(await self._looks.ask("stamp", path, account, owner, path=path))
        except RequestError:
            return None

    async def outputs(self, recipe: LaunchSpec) -> Sequence[tuple[str, int, float]] | None:
        """Path, size and time of what was written into its copy; None for a folder that is not one."""
        ran_in, account = recipe.workdir, recipe.account
        if not self._is_copy(ran_in):
            return None
        found = await self._looks.ask("list_outputs", ran_in, account, recipe.user, copied=ran_in)
        return [(path, size, at_s) for path, size, at_s in found]

    async def archive(self, recipe: LaunchSpec) -> AsyncGenerator[bytes]:
        """The same files as a tar archive, a few archives at a time."""
        async with self._archives.turn(recipe.user):
            pieces = archive_of(recipe.workdir, recipe.account, self._silence_s)
            async with aclosing(pieces):
                async for piece in pieces:
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
        self._first: dict[Place, tuple[Path, tuple[str, ...]]] = {}
        """By folder: its first copy, and what that leaves out."""

    async def made_for(self, asked: Submission, number: str) -> tuple[Submission, tuple[str, ...]]:
        """The submission in its copy, and what the copy leaves out; as it is where it wants none."""
        if not asked.keeps_code:
            return asked, ()
        into, place = self._copy_of(number), _place_of(asked)
        self._made.append(into.parent)
        workdir, account, _ = place
        if is_users(account):
            left_out = await self._made_by(account, place, into)
        elif place in self._first:
            kept, left_out = self._first[place]
            await self._processes.ask("copy_again", *place, kept=str(kept), into=str(into))
        else:
            said: dict[str, Any] = {"workdir": workdir, "into": str(into), "links": self._links}
            left = await self._processes.ask("copy", *place, **said, most=self._most)
            left_out = tuple(left)
        self._first.setdefault(place, (into, left_out))
        return replace(asked, recipe=replace(asked.recipe, workdir=str(into))), left_out

    async def _made_by(self, account: Account, place: Place, into: Path) -> tuple[str, ...]:
        """The user fills a folder, which then gets its name: the one around it is ours."""
        workdir, ask = place[0], self._processes.ask
        making = await asyncio.to_thread(begin_copy, into, account)
        if place in self._first:
            kept, left_out = self._first[place]
            await ask("fill_again", *place, kept=str(kept), making=str(making))
        else:
            said: dict[str, Any] = {"workdir": workdir, "making": str(making), "into": str(into)}
            left = await ask("fill", *place, **said, links=self._links, most=self._most)
            left_out = tuple(left)
        await asyncio.to_thread(settle_copy, making, into)
        return left_out

    async def remove(self) -> None:
        if self._made:
            folders = [str(each) for each in self._made]
            with contextlib.suppress(RequestError):  # what is left then goes at the next start
                await asyncio.shield(self._processes.ask("remove", "", folders=folders))


def _names_folder(asked: Submission) -> bool:
    """Whether its user named a folder; else it runs at home, which is there."""
    return bool(asked.spec.get("workdir"))


def _place_of(asked: Submission) -> Place:
    return asked.recipe.workdir, asked.recipe.account, asked.job.user


def _listed(asked: Submission, lists: dict[Place, str]) -> Submission:
    if not _names_folder(asked):
        return asked
    found = lists[_place_of(asked)]
    recipe = replace(asked.recipe, program_digest=Path(found).stem if found else NO_FILES)
    return replace(
        asked, recipe=recipe if asked.keeps_code else replace(recipe, program_files=found)
    )
