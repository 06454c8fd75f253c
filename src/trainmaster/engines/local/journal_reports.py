"""Entries of a journal made into reports."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.engines.local.journal import Entry
from trainmaster.model import engine_reports as r
from trainmaster.model.job import Run


def _ended(run: Run, said: Entry) -> r.Ended:
    return r.Ended(
        run=run,
        at_ms=said["at_ms"],
        code=said["code"],
        asked=r.StopOrder(said["asked"]),
        rank=said["rank"],
        has_left=said["has_left"],
        was_killed=said["was_killed"],
        why=said["why"],
        tail=said["tail"],
    )


def _progressed(run: Run, said: Entry) -> r.Progressed:
    return r.Progressed(
        run=run,
        at_ms=said["at_ms"],
        step=said["step"],
        loss=said.get("loss"),
        samples_per_s=said.get("samples_per_s"),
        total_steps=said.get("total_steps"),
        epoch_steps=said.get("epoch_steps"),
    )


REPORTS: dict[str, Callable[[Run, Entry], r.Report]] = {
    "started": lambda run, said: r.Started(run, said["at_ms"], tuple(said["pids"])),
    "reshaped": lambda run, said: r.Reshaped(run, said["at_ms"], tuple(said["pids"])),
    "frozen": lambda run, said: r.Frozen(run, said["at_ms"]),
    "thawed": lambda run, said: r.Thawed(run, said["at_ms"]),
    "saved": lambda run, said: r.Saved(run, said["at_ms"], said.get("step")),
    "progress": _progressed,
    "ended": _ended,
    "lost": lambda run, said: r.Lost(run, said["at_ms"], said["why"]),
}


def report_of(run: Run, entry: Entry) -> r.Report | None:
    """None for what only the engine itself cares about."""
    make = REPORTS.get(entry["what"])
    return None if make is None else make(run, entry)
