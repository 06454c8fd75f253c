"""What becomes of a job's folder at the manager by what its nodes have changed in theirs: a pure function.

Where several nodes wrote a file of one path, that of the node with the lowest ranks counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from trainmaster.engines.ray.file_tree import Entries, Entry, parents
from trainmaster.engines.ray.staged_values import Changes

LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Fetch:
    """A file, link or folder that is to be brought from a node."""

    node: str
    entry: Entry
    path: str
    """Where it is put: its own path, or with the node's name behind it."""

    @property
    def is_beside(self) -> bool:
        """Whether another node's file has its path."""
        return self.path != self.entry.path


@dataclass(frozen=True, slots=True)
class Merge:
    """What is to be done at the manager."""

    fetched: tuple[Fetch, ...] = ()
    removed: tuple[str, ...] = ()
    brought: Mapping[str, str] = field(default_factory=dict)
    """Which node each path is of, of all that was brought for this run."""

    @property
    def is_nothing(self) -> bool:
        return not (self.fetched or self.removed)


def merged(
    own: Entries,
    brought: Mapping[str, str],
    nodes: Sequence[str],
    said: Mapping[str, Changes],
    *,
    keeps_both: bool,
) -> Merge:
    """`own` is what the manager has, `brought` by which node, `nodes` all of the run in the order of their
    ranks, `said` what those have changed that could be asked. `keeps_both`: a file that lost its path to
    another node's is kept under a name with its node.
    """
    fetched: list[Fetch] = []
    now: dict[str, str] = dict(brought)
    first: dict[str, str] = {}
    """Who has each path now, of those that could be asked; and of those that could not, what they wrote."""
    absent = {node for node in nodes if node not in said}
    for path, node in brought.items():
        if node in absent:
            first[path] = node
    kept = set(first)
    files = {path: node for path, node in first.items() if path in own and not own[path].is_folder}
    """What is no folder, and whose."""
    for node in nodes:
        for entry in said[node].written if node in said else ():
            path = entry.path
            above = [each for each in parents(path) if files.get(each, node) != node]
            if above:  # where this node has a folder, another has a file
                beside = _beside(above[-1], node)
                if beside not in kept:
                    continue
                path = beside + path.removeprefix(above[-1])
            owner = node if above else first.setdefault(path, node)
            if owner != node:
                is_before = nodes.index(owner) < nodes.index(node)
                if not is_before:
                    first[path] = node
                elif keeps_both and (entry.is_file or (entry.is_folder and path in files)):
                    path = _beside(path, node)
                else:
                    continue
            files.pop(path, None)
            if not entry.is_folder:
                files[path] = node
            kept.add(path)
            now[path] = node
            is_own = brought.get(path, node) == node  # else two nodes wrote as much in one moment
            if not (is_own and entry.is_as(own.get(path))):
                fetched.append(Fetch(node, entry, path))
    gone = {path for node in nodes if node in said for path in said[node].removed}
    there = {
        (node, path) for node, each in said.items() for path in (*each.unchanged, *each.left_out)
    }
    gone |= {
        path
        for path, node in brought.items()
        if node in said and (node, path) not in there  # else another task's run has settled it
    }
    removed = [path for path in gone - kept if path in own]
    for path in gone - kept:
        now.pop(path, None)
    return Merge(tuple(fetched), tuple(sorted(removed, reverse=True)), now)


def _beside(path: str, node: str) -> str:
    """The path under which a file of this node is kept beside another's; as long as names can be."""
    folder, _, name = path.rpartition("/")
    longest = LONGEST_NAME - len(node.encode()) - 1
    if len(encoded := name.encode(errors="surrogateescape")) > longest:
        mark = sha256(encoded).hexdigest()[:8]
        name = f"{encoded[: longest - 9].decode(errors='ignore')}-{mark}"
    return f"{folder}/{name}.{node}" if folder else f"{name}.{node}"
