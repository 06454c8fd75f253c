"""What manager and nodes say to each other about the files of a job that are sent to its nodes."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.engines.ray.file_tree import Entry

PIECE_BYTES = 4 << 20
"""Of files in one call."""


class NoRoom(Exception):
    """A node cannot have the files of a job: one sentence."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A file that a node does not have: which of which tree."""

    tree: int
    entry: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file."""

    entry: Entry
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of a file as a node has listed it."""

    entry: Entry
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What a job has changed in one of its trees on a node since that was sent there."""

    tree: str
    written: tuple[Entry, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...] = ()
    """What is there as it was sent."""
    left_out: tuple[str, ...] = ()
    """What cannot be read, or is not its account's: it stays there."""
    now_ns: int = 0
    """By the clock of the node."""
