"""Entries of a journal made into reports."""

from __future__ import annotations

from dataclasses import fields

from trainmaster.engines.local.journal import Entry
from trainmaster.model import engine_reports as r
from trainmaster.model.job import Run

KINDS: dict[str, type[r.Report]] = {
    "started": r.Started,
    "reshaped": r.Reshaped,
    "frozen": r.Frozen,
    "thawed": r.Thawed,
    "saved": r.Saved,
    "progress": r.Progressed,
    "ended": r.Ended,
    "lost": r.Lost,
}


def report_of(run: Run, entry: Entry) -> r.Report | None:
    """None for what only the engine itself cares about."""
    kind = KINDS.get(entry["what"])
    if kind is None:
        return None
    said = {each.name: entry[each.name] for each in fields(kind) if each.name in entry}
    if "pids" in said:
        said["pids"] = tuple(said["pids"])
    if "asked" in said:
        said["asked"] = r.StopOrder(said["asked"])
    return kind(**said | {"run": run})
