"""Sends the files of jobs to nodes that do not see the manager's folder, and brings back what they write.

HPC calls it staging: in before a launch, out after a checkpoint and at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast
from uuid import uuid4

import structlog

from trainmaster.durable_files import sync, write_whole
from trainmaster.engines.local.ownership import CHECKPOINTS as SAVED
from trainmaster.engines.local.privileges import give_folder, is_users
from trainmaster.engines.ray.file_tree import (
    CHECKPOINTS,
    CODE,
    PIECE,
    Entry,
    Tree,
    code_folder,
    entries_of,
    is_inside,
    parents,
    with_digests,
)
from trainmaster.engines.ray.folder_below import FolderWriter, finish, folder_of, open_below, opened
from trainmaster.engines.ray.node_session import NodeIsGone
from trainmaster.engines.ray.staged_values import (
    PIECE_BYTES,
    Changes,
    Lacking,
    NoRoom,
    Piece,
    Wanted,
)
from trainmaster.engines.ray.tree_merge import Fetch, Merge, merged
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Account, LaunchSpec

log = structlog.get_logger(__name__)

ROUNDS = 5
"""How often files that change meanwhile are tried."""
RETRY_S = 0.5
LONGEST_RETRY_S = 10.0
TRIES = 8
"""How often a run that is over is kept, with its GPUs, for files that cannot be brought."""
STAGED, BROUGHT = "staged.json", "brought.json"
"""In a run's folder: to which nodes its files were sent, and which paths were brought from which."""
ALL = (CODE, CHECKPOINTS)
Ask = Callable[..., Awaitable[object]]
"""`ask(node, method, *words)`: the answer of the node's launcher; NodeIsGone where there will be none."""


class NotSent(Exception):
    """A node that cannot have a job's files."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(f"The files of the job cannot be sent to {node}: {why}")
        self.node = node


class Unsettled(Exception):
    """Files that a program writes all the time: they cannot be brought as they are together."""


class NotBrought(Exception):
    """What a run wrote that is still to be brought: why."""


@dataclass(slots=True)
class Staged:
    """A run whose files were sent to its nodes."""

    nodes: tuple[str, ...]
    """In the order of their ranks."""
    trees: dict[str, str]
    """By name: the folder here."""
    account: Account | None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Staging:
    """For all runs below a data folder."""

    def __init__(self, data: Path, ask: Ask) -> None:
        self._data = data
        self._ask = ask
        self._runs: dict[Run, Staged | None] = {}
        self.troubles: dict[Run, str] = {}
        """Why what a run wrote cannot be brought now."""
        self._left_out: dict[Run, frozenset[str]] = {}

    # -- in ------------------------------------------------------------------------------------------------

    def trees_of(self, run: Run, spec: LaunchSpec) -> tuple[Tree, ...]:
        """The folders of a job that can be sent: its copy of the code, and that of its checkpoints."""
        found = []
        if (owner := code_folder(spec.workdir, self._data)) is not None:
            found.append(Tree(CODE, spec.workdir, f"{owner.name}/{CODE}"))
        if Path(spec.checkpoint_dir) == self._data / "jobs" / run.job / SAVED:
            found.append(Tree(CHECKPOINTS, spec.checkpoint_dir, f"{run.job}/{SAVED}"))
        return tuple(found)

    async def send(self, run: Run, spec: LaunchSpec, nodes: Sequence[str]) -> None:
        """Have all these nodes have what the manager has; NotSent where one cannot."""
        trees = self.trees_of(run, spec)
        staged = Staged(tuple(nodes), {tree.name: tree.source for tree in trees}, spec.account)
        await asyncio.to_thread(self._keep, run, staged)
        self._runs[run] = staged
        listed = await asyncio.to_thread(_listed, trees, spec.account)
        sending = [asyncio.create_task(self._send(run, spec, listed, node)) for node in nodes]
        try:
            await asyncio.gather(*sending)
        finally:
            for task in sending:
                task.cancel()

    def not_sent(self, run: Run) -> None:
        """All nodes of its launch see the manager's folder."""
        self._runs[run] = None
        for name in (STAGED, BROUGHT):
            (self._folder_of(run) / name).unlink(missing_ok=True)

    async def _send(self, run: Run, spec: LaunchSpec, trees: tuple[Tree, ...], node: str) -> None:
        for _ in range(ROUNDS):
            try:
                lacking = await self._ask(node, "stage", run, spec, trees)
                if not lacking:
                    return
                for pieces in _batches(trees, cast(tuple[Lacking, ...], lacking), spec.account):
                    found = await asyncio.to_thread(tuple, pieces)
                    await self._ask(node, "put", run, found)
            except NoRoom as refused:
                raise NotSent(node, str(refused)) from None
            trees = await asyncio.to_thread(_listed, trees, spec.account)
        raise NotSent(node, "they change all the time.")

    # -- out -----------------------------------------------------------------------------------------------

    def staged(self, run: Run) -> Staged | None:
        """None for a run whose nodes see the manager's folder."""
        if run not in self._runs:
            self._runs[run] = self._kept(run)
        return self._runs[run]

    async def bring(
        self, run: Run, trees: Sequence[str] = ALL, quiet_s: float = 0.0
    ) -> frozenset[str]:
        """Bring what the run has written so far; the nodes on which that is lost.

        Unsettled where it goes on writing; OSError where this machine refuses it. With `quiet_s` files that
        were written in the last seconds count as being written.
        """
        staged = self.staged(run)
        if staged is None:
            return frozenset()
        async with staged.lock:
            for _ in range(1 if quiet_s else ROUNDS):
                found = await self._bring_once(run, staged, trees, quiet_s)
                if found is not None:
                    return found
                if not quiet_s:
                    await asyncio.sleep(RETRY_S)
        raise Unsettled("its files change all the time")

    async def bring_all(
        self, run: Run, is_hurried: Callable[[], bool] | None = None
    ) -> frozenset[str]:
        """The same after the end of its processes, again and again until it succeeds.

        NotBrought where `is_hurried` is given: after some tries, or the first one that fails while it holds.
        """
        pause, tries = RETRY_S, 0
        while True:
            try:
                lost = await self.bring(run)
                self.troubles.pop(run, None)
                return lost
            except Exception as problem:  # whatever it is, the run has to end some day
                why = str(problem) or type(problem).__name__
                if self.troubles.get(run) != why:
                    self.troubles[run] = why
                    log.warning("what a run wrote cannot be brought yet", run=run, why=why)
            tries += 1
            if is_hurried is not None and (tries == TRIES or is_hurried()):
                raise NotBrought(why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY_S)

    def brought_from(self, run: Run, node: str) -> dict[str, tuple[str, ...]]:
        """By tree: the files here that are those of this node."""
        return {
            name: tuple(path for path, origin in paths.items() if origin == node)
            for name, paths in self._brought(run).items()
        }

    def left_out(self, run: Run) -> frozenset[str]:
        """Files of it that stay on their nodes."""
        return self._left_out.get(run, frozenset())

    def has_brought(self, run: Run) -> bool:
        return (self._folder_of(run) / BROUGHT).exists()

    def forget(self, run: Run) -> None:
        self._runs.pop(run, None)
        self.troubles.pop(run, None)
        self._left_out.pop(run, None)

    async def _bring_once(
        self, run: Run, staged: Staged, names: Sequence[str], quiet_s: float
    ) -> frozenset[str] | None:
        """None: something has changed meanwhile."""
        asked = [name for name in staged.trees if name in names]
        said = await self._changes(run, staged, asked)
        lost = frozenset(staged.nodes) - said.keys()
        self._note_left_out(run, said)
        if quiet_s and not _are_quiet(said, quiet_s):
            return None
        brought = await asyncio.to_thread(self._brought, run)
        plans: dict[str, Merge] = {}
        for name in asked:
            own = await asyncio.to_thread(_own, staged.trees[name], name)
            here = {node: each[name] for node, each in said.items()}
            plans[name] = merged(
                *(own, brought.get(name, {}), staged.nodes, here), keeps_both=name == CODE
            )
        if all(
            plan.is_nothing and plan.brought == brought.get(name, {})
            for name, plan in plans.items()
        ):
            return lost
        new = self._job_folder(run) / f"brought.{uuid4().hex}.new"
        await asyncio.to_thread(new.mkdir, 0o700, True, True)
        try:
            for name, plan in plans.items():
                if not await self._fetch(run, name, plan, new / name):
                    return None
            after = await self._changes(run, staged, asked)
            if not all(_has_still(after, name, plan) for name, plan in plans.items()):
                return None
            for name, plan in plans.items():
                brought[name] = dict(plan.brought)
            await _to_its_end(asyncio.to_thread(self._commit, run, staged, plans, new, brought))
        finally:
            await asyncio.to_thread(shutil.rmtree, new, True)
        return lost

    def _note_left_out(self, run: Run, said: Mapping[str, Mapping[str, Changes]]) -> None:
        found = {path for each in said.values() for one in each.values() for path in one.left_out}
        if new := found - self.left_out(run):
            log.warning("files of a run cannot be read on their nodes", run=run, files=sorted(new))
            self._left_out[run] = self.left_out(run) | new

    async def _changes(
        self, run: Run, staged: Staged, names: Sequence[str]
    ) -> dict[str, dict[str, Changes]]:
        """By node and tree, of the nodes that are there and still have it."""

        async def asked(node: str) -> object:
            try:
                return await self._ask(node, "changes", run, tuple(names))
            except NodeIsGone:
                return None

        answers = await asyncio.gather(*map(asked, staged.nodes))
        found = {}
        for node, said in zip(staged.nodes, answers, strict=True):
            if said is not None:
                changes = cast(tuple[Changes, ...], said)
                found[node] = {each.tree: _checked(each) for each in changes}
        return {node: each for node, each in found.items() if set(each) >= set(names)}

    async def _fetch(self, run: Run, name: str, plan: Merge, into: Path) -> bool:
        """Whether all of it could be read as it was listed; files are numbered in the order of the plan."""
        await asyncio.to_thread(into.mkdir, 0o700, True, True)
        by_node: dict[str, list[int]] = {}
        for number, each in enumerate(plan.fetched):
            if each.entry.is_file:
                by_node.setdefault(each.node, []).append(number)
        reading = [
            asyncio.create_task(self._fetch_from(node, run, name, plan.fetched, numbers, into))
            for node, numbers in by_node.items()
        ]
        try:
            return all(await asyncio.gather(*reading))
        finally:
            for task in reading:
                task.cancel()

    async def _fetch_from(
        self,
        node: str,
        run: Run,
        name: str,
        fetched: Sequence[Fetch],
        numbers: Sequence[int],
        into: Path,
    ) -> bool:
        for batch in _reads(fetched, numbers):
            try:
                wanted = tuple(each for _, each in batch)
                said = await self._ask(node, "read", run, name, wanted)
            except NodeIsGone:
                return False
            data = cast(tuple[bytes | None, ...], said)
            if None in data:
                return False
            await asyncio.to_thread(_write_parts, into, batch, cast(tuple[bytes, ...], data))
        return True

    def _commit(
        self,
        run: Run,
        staged: Staged,
        plans: Mapping[str, Merge],
        new: Path,
        brought: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Code first: a checkpoint is the newest thing that a job goes on from."""
        for name in ALL:
            if name not in plans or plans[name].is_nothing:
                continue
            folder, plan = Path(staged.trees[name]), plans[name]
            for number, each in enumerate(plan.fetched):
                if each.entry.is_file:
                    finish(_numbered(new / name, number), *_marks(each.entry), staged.account)
            if name == CODE:
                _apply(folder, plan, new / name, staged.account)
            else:
                _replace(folder, plan, new, staged.account)
        write_whole(self._folder_of(run) / BROUGHT, json.dumps(brought), 0o600)

    # -- records -------------------------------------------------------------------------------------------

    def _folder_of(self, run: Run) -> Path:
        return self._data / "runs" / run.job / str(run.attempt)

    def _job_folder(self, run: Run) -> Path:
        return self._data / "jobs" / run.job

    def _keep(self, run: Run, staged: Staged) -> None:
        folder = self._folder_of(run)
        (folder / BROUGHT).unlink(missing_ok=True)
        said = {
            "nodes": staged.nodes,
            "trees": staged.trees,
            "account": None if staged.account is None else asdict(staged.account),
        }
        write_whole(folder / STAGED, json.dumps(said), 0o600)

    def _kept(self, run: Run) -> Staged | None:
        try:
            said = json.loads((self._folder_of(run) / STAGED).read_text())
        except (OSError, ValueError):
            return None
        account = None if said["account"] is None else Account(**said["account"])
        return Staged(tuple(said["nodes"]), said["trees"], account)

    def _brought(self, run: Run) -> dict[str, dict[str, str]]:
        try:
            found: dict[str, dict[str, str]] = json.loads(
                (self._folder_of(run) / BROUGHT).read_text()
            )
        except (OSError, ValueError):
            return {}
        return found


async def _to_its_end(work: Awaitable[None]) -> None:
    """Wait for what a thread does, also where the wait is cancelled: nothing may happen beside it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})


def restore(folder: Path) -> None:
    """Put a folder of checkpoints back that was being replaced when the machine stopped."""
    former = folder.with_name(f"{folder.name}.former")
    if former.exists():
        with suppress(OSError):  # an empty one was made since
            folder.rmdir()
        if not folder.exists():
            former.rename(folder)
    shutil.rmtree(former, ignore_errors=True)


def _own(folder: str, tree: str) -> dict[str, Entry]:
    if tree == CHECKPOINTS:
        restore(Path(folder))
    return entries_of(folder, tree)


def _listed(trees: Iterable[Tree], account: Account | None) -> tuple[Tree, ...]:
    found = []
    for tree in trees:
        entries = _own(tree.source, tree.name)
        digested = with_digests(tree.source, entries, account) if entries else ()
        found.append(replace(tree, entries=tuple(digested)))
    return tuple(found)


def _batches(
    trees: Sequence[Tree], lacking: Sequence[Lacking], account: Account | None
) -> Iterator[Iterator[Piece]]:
    """What a node lacks, so much at a time as one call takes."""
    batch: list[tuple[Tree, Entry, int, int]] = []
    left = PIECE_BYTES
    seen: set[str] = set()
    for each in lacking:
        tree = trees[each.tree]
        entry = tree.entries[each.entry]
        if entry.digest and entry.digest in seen:
            continue
        seen.add(entry.digest)
        for offset, length in _parts(entry.size):
            batch.append((tree, entry, offset, length))
            left -= length
            if left <= 0:
                yield _pieces(batch, account)
                batch, left = [], PIECE_BYTES
    if batch:
        yield _pieces(batch, account)


def _pieces(
    batch: Sequence[tuple[Tree, Entry, int, int]], account: Account | None
) -> Iterator[Piece]:
    """Files that are gone meanwhile are left out: the next round notices."""
    for tree, entry, offset, length in batch:
        with opened(Path(tree.source)) as root, suppress(FileNotFoundError):
            with open_below(root, entry.path, account) as file:
                data = os.pread(file, length, offset)
            if len(data) == length:
                yield Piece(entry, offset, data)


def _parts(size: int) -> Iterator[tuple[int, int]]:
    """Where parts of a file begin, and how long they are; an empty file has one."""
    for offset in range(0, max(size, 1), PIECE_BYTES):
        yield offset, min(PIECE_BYTES, size - offset)


def _reads(fetched: Sequence[Fetch], numbers: Sequence[int]) -> Iterator[list[tuple[int, Wanted]]]:
    batch: list[tuple[int, Wanted]] = []
    left = PIECE_BYTES
    for number in numbers:
        entry = fetched[number].entry
        for offset, length in _parts(entry.size):
            batch.append((number, Wanted(entry, offset, length)))
            left -= length
            if left <= 0:
                yield batch
                batch, left = [], PIECE_BYTES
    if batch:
        yield batch


def _numbered(into: Path, number: int) -> Path:
    return into / str(number)


def _write_parts(into: Path, batch: Sequence[tuple[int, Wanted]], data: Sequence[bytes]) -> None:
    for (number, wanted), part in zip(batch, data, strict=True):
        place = _numbered(into, number)
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, part, wanted.offset)
            if wanted.offset + wanted.size == wanted.entry.size:
                os.fsync(file)
        finally:
            os.close(file)


def _apply(folder: Path, plan: Merge, new: Path, account: Account | None) -> None:
    """File by file: others may look at the folder, or be running in it."""
    with FolderWriter(folder, account) as writer:
        for path in plan.removed:
            writer.remove(path)
        for number, each in enumerate(plan.fetched):
            is_beside = each.is_beside and each.entry.is_file
            if is_beside and _is_same(_numbered(new, number), folder, each.entry.path, account):
                continue
            _put(writer, each, _numbered(new, number))


def _replace(folder: Path, plan: Merge, new: Path, account: Account | None) -> None:
    """All at once: a program finds either what was there before, or all that is new."""
    made = new / "whole"
    made.mkdir(0o700)
    folder.mkdir(parents=True, exist_ok=True)
    own = entries_of(folder, CHECKPOINTS)
    removed = {*plan.removed}
    coming = {each.path for each in plan.fetched if not each.entry.is_folder}
    with FolderWriter(made, account) as writer, opened(folder) as root:
        for path, entry in own.items():
            if path in removed or not coming.isdisjoint((path, *parents(path))):
                continue
            if entry.is_folder:
                writer.make_folder(path, entry.mode)
            elif entry.link is not None:
                writer.make_link(path, entry.link, entry.mtime_ns)
            else:
                held = new / uuid4().hex
                with folder_of(root, path) as at:
                    os.link(os.path.basename(path), held, src_dir_fd=at, follow_symlinks=False)
                writer.put_file(path, held)
        for number, each in enumerate(plan.fetched):
            _put(writer, each, _numbered(new / CHECKPOINTS, number))
    if is_users(account):
        give_folder(made, account)
    else:
        made.chmod(folder.stat().st_mode & 0o777)
    former = folder.with_name(f"{folder.name}.former")
    shutil.rmtree(former, ignore_errors=True)
    folder.rename(former)
    made.rename(folder)
    sync(folder.parent)
    shutil.rmtree(former, ignore_errors=True)


def _put(writer: FolderWriter, each: Fetch, ready: Path) -> None:
    entry = each.entry
    if entry.is_folder:
        writer.make_folder(each.path, entry.mode)
    elif entry.link is not None:
        writer.make_link(each.path, entry.link, entry.mtime_ns)
    else:
        writer.put_file(each.path, ready)


def _is_same(one: Path, folder: Path, path: str, account: Account | None) -> bool:
    """Whether a file of ours has the content of one in a folder where users put links."""
    try:
        with opened(folder) as root, open_below(root, path, account) as other:
            if one.stat().st_size != os.fstat(other).st_size:
                return False
            with one.open("rb") as first:
                while piece := first.read(PIECE):
                    if piece != os.read(other, len(piece)):
                        return False
    except (FileNotFoundError, PermissionError):
        return False
    return True


def _marks(entry: Entry) -> tuple[int, int]:
    return entry.mode, entry.mtime_ns


def _checked(said: Changes) -> Changes:
    """Without what leads out of its folder: nodes do not say such things."""
    written = tuple(each for each in said.written if is_inside(each.path))
    return replace(said, written=written, removed=tuple(filter(is_inside, said.removed)))


def _has_still(said: Mapping[str, Mapping[str, Changes]], name: str, plan: Merge) -> bool:
    """Whether the nodes still have what was fetched from them, so that it belongs together."""
    now = {node: {entry.path: entry for entry in each[name].written} for node, each in said.items()}
    return all(
        each.entry.is_as(now[each.node].get(each.entry.path)) if each.node in now else False
        for each in plan.fetched
    )


def _are_quiet(said: Mapping[str, Mapping[str, Changes]], quiet_s: float) -> bool:
    return all(
        changes.now_ns - entry.mtime_ns > quiet_s * 1e9
        for each in said.values()
        for changes in each.values()
        for entry in changes.written
        if entry.is_file
    )
