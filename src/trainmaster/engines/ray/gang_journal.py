"""The journal of a gang, in the format of the local engine's: what its parts reported, and what that means.

Each report of a part is written before it counts, with what it completes. So a manager that reads the journal
again has the same gang, and knows what it has heard of each part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from trainmaster.engines.local import journal
from trainmaster.engines.local.journal import Journal, JournalEntry
from trainmaster.engines.local.run_follower import REPORTS, report_of
from trainmaster.engines.ray.gang import (
    Gang,
    Part,
    changing,
    fold,
    next_generation,
    resizing,
    resizing_in_place,
    superseded,
)
from trainmaster.engines.ray.gang_parts import NOTHING, Meeting, Reservation, together
from trainmaster.model.engine_reports import Report
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LogLimits
from trainmaster.model.stop_reasons import EndReason

WORDS = {kind: word for word, kind in REPORTS.items()}
OPENED, LAUNCHED, RESIZING, RESIZED, PART = "opened", "launched", "resizing", "resized", "part"
IN_PLACE, SUPERSEDED = "resizing in place", "superseded"
"""Entries that are not reports."""

Told = Callable[[Report, int], None]


@dataclass(frozen=True, slots=True)
class Launched:
    """What must be known of a generation to go on with it without its launch spec."""

    meeting: Meeting
    placement: str
    grace_ms: int
    logs: LogLimits
    held: Reservation


class GangJournal:
    """One run's. `tell` hears of each of its own reports once it is written, and the disk has what must
    survive a power cut: `sync` waits for that in another thread, so that a slow disk does not hold the
    manager up.
    """

    def __init__(self, run: Run, folder: Path, tell: Told, after: int = 0) -> None:
        self._run = run
        self._tell = tell
        self._after = after
        """Reports up to this number are known."""
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal = Journal(str(folder), after, puts=True)
        self.gang: Gang | None = None
        self.launched: Launched | None = None
        self.next_placement = ""
        """What it is being resized to."""
        self._held_before = NOTHING
        """What it had before the resize that is under way: until that is over, it may still use it."""
        self.is_over = False
        """Whether its end is written, or waits to be."""
        self._at_ms = 0
        for entry in journal.read(str(folder)):
            self._at_ms = entry["at_ms"]
            self._take(entry)

    def catch_up(self) -> None:
        """Tell what was written by an earlier manager, and has not been seen."""
        for entry in journal.read(str(self._folder), self._after):
            self._report(entry)

    @property
    def held(self) -> Reservation:
        """What it may be using on the cluster."""
        now = NOTHING if self.launched is None else self.launched.held
        return together(self._held_before, now)

    @property
    def is_written(self) -> bool:
        return self._journal.is_written

    @property
    def has_begun(self) -> bool:
        return journal.has_begun(str(self._folder))

    def open(self, uuid: str) -> None:
        self._write(OPENED, {"uuid": uuid})

    def launch(self, parts: tuple[Part, ...], launched: Launched) -> None:
        """A new generation of the gang is about to be launched."""
        said = {"grace_ms": launched.grace_ms}
        logs = [launched.logs.file_bytes, launched.logs.files]
        shape = 0 if self.gang is None else self.gang.shape + 1
        self._write(LAUNCHED, _said_of(parts, launched) | said | {"logs": logs, "shape": shape})

    def resize(self, placement: str) -> None:
        """Its present parts are to end, so that it goes on with others."""
        self._write(RESIZING, {"placement": placement})

    def resize_in_place(self, target: tuple[Part, ...], launched: Launched) -> None:
        """It goes on with these parts, without being started again where that can be."""
        self._write(IN_PLACE, _said_of(target, launched))

    def supersede(self, *, is_again_wanted: bool = False) -> None:
        """Another resize follows the one that is under way; or that one is ordered once more."""
        self._write(SUPERSEDED, {"is_again_wanted": is_again_wanted})

    def resize_there(self, part: Part, placement: str, held: Reservation) -> None:
        """It is resized by the one node that it is on."""
        said = {"placement": placement, "held": [dict(held.gpus), dict(held.cpus)]}
        self._write(RESIZED, said | {"devices": part.devices})

    def hear(self, index: int, number: int, report: Report) -> None:
        """A part of the present generation has reported that."""
        if self.gang is None:
            return
        after, own = fold(self.gang, index, number, report)
        if after == self.gang:
            return
        part: dict[str, Any] = {"part": [self.gang.generation, index, number]}
        at_ms = {"at_ms": self._time_of(report)}
        if own is report:
            self._write(WORDS[type(own)], said_by(own) | part | at_ms)
        elif own is not None:
            raw = _raw(report)
            self._write(WORDS[type(own)], said_by(own) | part | {"raw": raw} | at_ms)
        else:
            self._write(PART, part | {"raw": _raw(report)} | at_ms)

    def conclude(self, report: Report) -> None:
        """The end of a run of which there are no parts that could say it."""
        if not self.is_over:
            self._write(WORDS[type(report)], said_by(report))

    def note(self, report: Report) -> None:
        """What no part says, with its own time."""
        self._write(WORDS[type(report)], said_by(report) | {"at_ms": report.at_ms})

    async def sync(self) -> None:
        """Have the disk take what it has not yet, also what it refused before. One at a time."""
        for entry in self._journal.put_again():
            self._report(entry)
        while True:
            what = None
            try:
                what = self._journal.unsynced()
                if what is None:
                    return
                await asyncio.to_thread(what.sync)
            except OSError as problem:
                self._journal.refused(what, problem)
                return
            for entry in self._journal.synced(what):
                self._report(entry)

    def close(self) -> None:
        self._journal.close()

    def _write(self, what: str, said: Mapping[str, Any]) -> None:
        entry = self._journal.entry(what, {**said, "boot": ""})
        self._at_ms = entry["at_ms"]
        self._take(entry)
        for written in self._journal.put(entry):
            self._report(written)

    def _take(self, entry: JournalEntry) -> None:
        """Go on by one entry, old or new."""
        what = entry["what"]
        if what == LAUNCHED:
            parts = _parts_in(entry)
            former, self.next_placement, self._held_before = self.gang, "", NOTHING
            self.gang = Gang(self._run, parts)
            if former is not None:  # earlier versions counted generations alone
                shape = entry.get("shape", former.generation + 1)
                self.gang = next_generation(former, parts, shape)
            self.launched = Launched(
                Meeting(*entry["meeting"]),
                entry["placement"],
                entry["grace_ms"],
                LogLimits(*entry["logs"]),
                Reservation(*entry["held"]),
            )
        elif what == RESIZED and self.launched is not None:
            self._held_before, held = self.held, Reservation(*entry["held"])
            self.launched = replace(self.launched, placement=entry["placement"], held=held)
            if self.gang is not None:
                self.gang = changing(self.gang, entry.get("devices", ()))
        elif what == IN_PLACE and self.gang is not None and self.launched is not None:
            target, shape = _parts_in(entry), self.gang.shape + 1
            self.gang = resizing_in_place(self.gang, shape, target)
            meeting, held = Meeting(*entry["meeting"]), Reservation(*entry["held"])
            self._held_before = self.held
            self.launched = replace(self.launched, meeting=meeting, held=held)
            self.next_placement = entry["placement"]
        elif what == SUPERSEDED and self.gang is not None:
            self.gang = superseded(self.gang, is_again_wanted=entry["is_again_wanted"])
        elif what == RESIZING and self.gang is not None:
            self.gang, self.next_placement = resizing(self.gang), entry["placement"]
        elif "part" in entry and self.gang is not None:
            generation, index, number = entry["part"]
            heard = report_of(self._run, entry.get("raw", entry))
            if generation == self.gang.generation and heard is not None:
                self._fold(index, number, heard)
        self.is_over = self.is_over or what in journal.LAST

    def _fold(self, index: int, number: int, heard: Report) -> None:
        assert self.gang is not None
        formed = self.gang.formed
        self.gang, _ = fold(self.gang, index, number, heard)
        if self.gang.formed != formed and self.launched is not None:
            self.launched = replace(self.launched, placement=self.next_placement)
        if self.gang.resize is None and not self.gang.is_changing:
            self._held_before = NOTHING

    def _report(self, entry: JournalEntry) -> None:
        report = report_of(self._run, entry)
        if report is not None and entry["n"] > self._after:
            self._after = entry["n"]
            self._tell(report, entry["n"])

    def _time_of(self, report: Report) -> int:
        """When it happened, as far as clocks of nodes can be believed: in order, and not in the future."""
        now_ms = time.time_ns() // 1_000_000
        return min(now_ms, max(self._at_ms, report.at_ms))


def _said_of(parts: tuple[Part, ...], launched: Launched) -> dict[str, Any]:
    """Parts that are to be, where they meet, and what they have."""
    held = launched.held
    return {
        "parts": [[part.node, part.first_rank, part.ranks] for part in parts],
        "devices": [part.devices for part in parts],
        "numbers": [part.numbers for part in parts],
        "meeting": [launched.meeting.host, launched.meeting.port],
        "placement": launched.placement,
        "held": [dict(held.gpus), dict(held.cpus)],
    }


def _parts_in(entry: JournalEntry) -> tuple[Part, ...]:
    """Earlier versions say neither devices nor numbers."""
    nothing: list[list[int]] = [[] for _ in entry["parts"]]
    devices, numbers = entry.get("devices", nothing), entry.get("numbers", nothing)
    return tuple(
        Part(node, first, ranks, devices=tuple(its_devices), numbers=tuple(its_numbers))
        for (node, first, ranks), its_devices, its_numbers in zip(
            entry["parts"], devices, numbers, strict=True
        )
    )


def said_by(report: Report) -> dict[str, Any]:
    """A report as a journal has it; steady clocks of other machines mean nothing here."""
    return {
        each.name: _plain(getattr(report, each.name))
        for each in fields(report)
        if each.name not in ("run", "at_ms", "steady_ms") and getattr(report, each.name) is not None
    }


def reports_in(run: Run, folder: Path) -> Iterator[tuple[Report, int]]:
    """What is written down of a run, with numbers."""
    for entry in journal.read(str(folder)):
        report = report_of(run, entry)
        if report is not None:
            yield report, entry["n"]


def _raw(report: Report) -> dict[str, Any]:
    return {"what": WORDS[type(report)], "at_ms": report.at_ms} | said_by(report)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return value.to_json() if isinstance(value, EndReason) else value
