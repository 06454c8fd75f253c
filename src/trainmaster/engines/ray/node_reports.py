"""What a node's launcher hands to the manager: reports of its parts of gangs, and pieces of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.engines.local.runfile import RunFile
from trainmaster.engines.protocol import Abilities
from trainmaster.model.engine_reports import Report
from trainmaster.model.job import Run


@dataclass(frozen=True, slots=True)
class LogPlace:
    """How far a rank's log has been read: in which of its files, and up to which byte."""

    file: int
    """The file's number on its node's disk: it keeps it when it is renamed. A later one may get it, ..."""
    end: int
    last: bytes = b""
    """... so these are the bytes before that place."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Output of one rank, in the order in which it was written."""

    run: Run
    rank: int
    data: bytes
    before: LogPlace | None
    """Where the piece before it ended; None for the first."""
    place: LogPlace
    """Where the piece ends."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """One report of a part, with its number in the journal that its node keeps."""

    number: int
    report: Report
    file: RunFile | None = None
    """What its processes were started with, where the report changes that."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is new on a node. It is handed out again until the next one is asked for."""

    number: int
    reports: tuple[PartReport, ...] = ()
    """A run's last report comes after the last piece of its logs."""
    logs: tuple[LogPiece, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a manager has of a part already."""

    number: int = 0
    """Of the last report."""
    generation: int = 0
    """Of the gang: what the node has of an earlier one is not this part."""
    logs: Mapping[int, LogPlace] = field(default_factory=dict)
    """By rank."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A manager's session with a launcher."""

    session: int
    abilities: Abilities


class SessionOver(Exception):
    """Another manager has begun a session with this launcher: this one gives no more orders."""


class SessionUnknown(Exception):
    """The launcher was started again since: the session has to begin again."""
