"""The manager's booking of GPUs beside what Ray has reserved: whether both are the same.

An observation reads the manager's jobs and nodes, then Ray's placement groups and what is taken of each
node, then the manager again. What is compared, node by node:

- each run that is the same in both readings of the manager, of a job without an order under way, has exactly
  its devices in placement groups of its name, on each node that is up for the manager and alive for Ray; and
  a run that is suspended or over has none;
- on each such node, where no order is under way for any job, as many devices are taken for Ray as are booked.

The manager's own order to Ray (to give back what has ended, to take again what was on a raylet that died) is
not seen from outside, so a difference counts once it has stood, with the same booking, for `SETTLE_S` in
which both answered.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from tests.live import chaos
from tests.live.daemons import LiveDaemon
from tests.ray.cluster import HEAD, Truth

SETTLE_S = 10.0
PAUSE_S = 0.3
CALM = (*chaos.CALM, HTTPException)
"""What a call may raise while the manager is being killed."""
MOST = 1000
"""More jobs than a chaos run has."""

Held = Mapping[str, int]
"""Devices by node."""


@dataclass(frozen=True)
class Booking:
    """What the manager says."""

    runs: Mapping[str, Held]
    """What the last run of each job, such as 12.1, has: nothing where it is suspended, waits or is over."""
    moving: frozenset[str]
    """Jobs with an order under way."""
    up: frozenset[str]
    booked: Held
    """Devices that jobs have, on each node."""


@dataclass(frozen=True)
class Reserved:
    """What Ray says."""

    runs: Mapping[str, Held]
    taken: Held
    """On each living node."""
    left: Mapping[str, Mapping[str, float]]
    """What is left of each resource there, those of placement groups among them."""


Differences = dict[tuple[str, str], tuple[int, int]]
"""By run (or "" for all of a node) and node: booked and reserved."""


def booking(manager: LiveDaemon) -> Booking:
    jobs = manager.call("GET", f"/api/v1/jobs?limit={MOST}")["jobs"]
    nodes = manager.call("GET", "/api/v1/nodes")["nodes"]
    return booking_of(jobs, nodes)


def booking_of(jobs: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> Booking:
    return Booking(
        runs={
            f"{row['id']}.{row['attempt']}": Counter(
                device.rpartition(":")[0] for device in row["devices"]
            )
            if row["state"] == "running"
            else {}
            for row in jobs
            if row["attempt"]
        },
        moving=frozenset(str(row["id"]) for row in jobs if row["transition"]),
        up=frozenset(node["name"] for node in nodes if node["state"] == "up"),
        booked={
            node["name"]: sum(bool(device["jobs"]) for device in node["devices"]) for node in nodes
        },
    )


def reserved_of(said: dict[str, Any]) -> Reserved:
    alive = [row for row in said["nodes"] if row["alive"] and row["name"] != HEAD]
    names = {row["id"]: row["name"] for row in alive}
    runs: dict[str, Counter[str]] = {}
    for group in said["groups"]:
        prefix, _, name = group["name"].partition(":")
        if prefix != "tm" or group["state"] == "REMOVED":
            continue
        held = runs.setdefault(name.split(":")[1], Counter())
        for node, gpus in group["held"].items():
            if node in names:
                held[names[node]] += round(gpus)
    return Reserved(
        runs,
        {row["name"]: round(row["taken"]) for row in alive},
        {row["name"]: row["left"] for row in alive},
    )


def differences(before: Booking, found: Reserved, after: Booking) -> tuple[Differences, int]:
    """What is not the same, and how much was compared."""
    nodes = before.up & after.up & found.taken.keys()
    moving = before.moving | after.moving
    runs = [
        run
        for run in after.runs.keys() | found.runs.keys()
        if before.runs.get(run) == after.runs.get(run) and run.partition(".")[0] not in moving
    ]
    rows: Differences = {
        (run, node): (after.runs.get(run, {}).get(node, 0), found.runs.get(run, {}).get(node, 0))
        for run in runs
        for node in nodes
    }
    if not moving and before == after:
        rows |= {("", node): (after.booked.get(node, 0), found.taken[node]) for node in nodes}
    unequal = {at: pair for at, pair in rows.items() if pair[0] != pair[1]}
    return unequal, sum(1 for pair in rows.values() if any(pair))


@dataclass
class BookingWatch:
    """Observes in a thread of its own, from `start` to `stop`."""

    manager: LiveDaemon
    truth: Truth
    observations: int = 0
    missed: int = 0
    """Observations that came to nothing, because the manager or Ray's control store was away."""
    compared: int = 0
    """Bookings of a run, or of a node, that were compared and were not 0 on both sides."""
    differing: int = 0
    """Those that were not equal at once."""
    longest_s: float = 0.0
    """How long one of these has stood."""
    findings: list[str] = field(default_factory=list)
    _since: dict[tuple[str, str, tuple[int, int]], float] = field(default_factory=dict)
    _told: set[tuple[str, str, tuple[int, int]]] = field(default_factory=set)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(120)
        self.truth.close()

    def _watch(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            try:
                before = booking(self.manager)
                said = self.truth.answer()
                after = booking(self.manager)
            except CALM:
                said = None
            if said is None:
                self.missed += 1
                self._since.clear()  # nobody could put it right
            else:
                self.note(before, reserved_of(said), after, time.monotonic())

    def note(self, before: Booking, found: Reserved, after: Booking, now: float) -> None:
        unequal, compared = differences(before, found, after)
        self.observations += 1
        self.compared += compared
        self.differing += len(unequal)
        keys = {(*at, pair) for at, pair in unequal.items()}
        self._since = {key: self._since.get(key, now) for key in keys}
        for key, since in self._since.items():
            self.longest_s = max(self.longest_s, now - since)
            if now - since > SETTLE_S and key not in self._told:
                self._told.add(key)
                run, node, (booked, reserved) = key
                what = f"run {run} has" if run else "all jobs have"
                self.findings.append(
                    f"{what} {booked} devices of {node} for the manager and {reserved} for Ray, for"
                    f" {now - since:.0f} s; left there for Ray: {dict(found.left[node])}"
                )
