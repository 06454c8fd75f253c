"""The cluster at one moment, as `trainmaster top` reads it from the manager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.client.manager_api import Json, ManagerApi, Query
from trainmaster.daemon.array_rows import ArrayRow, fold
from trainmaster.daemon.job_rows import JobRow

MOST_STARTED, MOST_PENDING = 500, 300
"""Jobs that are listed at most; the numbers of all are in the headline."""
STARTED, PENDING = "running,suspended", "pending"

Line = JobRow | ArrayRow
"""A line of the list of jobs: the elements of an array that wait are one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are listed."""

    only_mine: bool = False
    text: str = ""
    """A part of the name or id; empty: all."""

    def words(self) -> str:
        """`all jobs`, `my jobs with bert in name or id`."""
        whose = "my jobs" if self.only_mine else "all jobs"
        return f"{whose} with {self.text} in name or id" if self.text else whose


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Answers of the manager."""

    status: Json
    nodes: Sequence[Json]
    queues: Sequence[Json]
    jobs: Sequence[JobRow]
    """Those that are running first, then suspended ones, then those that wait."""
    is_cut: bool
    """Whether more jobs match than are listed."""

    def lines(self) -> list[Line]:
        """The list of jobs, with the elements of an array that wait in one line."""
        started = [row for row in self.jobs if row.state != PENDING]
        return [*started, *fold(row for row in self.jobs if row.state == PENDING)]


def read_cluster(client: ManagerApi, choice: Choice) -> ClusterView:
    """Four or five requests, whose answers are bounded by the number of nodes and the limits above."""
    whose = client.my_name() if choice.only_mine else None
    query: Query = {"user": whose, "text": choice.text or None}
    started = client.get("/jobs", {**query, "state": STARTED, "limit": MOST_STARTED})
    pending = client.get("/jobs", {**query, "state": PENDING, "limit": MOST_PENDING})
    rows = [JobRow.from_json(each) for each in (*started["jobs"], *pending["jobs"])]
    order = {"running": 0, "suspended": 1, PENDING: 2}
    return ClusterView(
        status=client.get("/status"),
        nodes=client.get("/nodes")["nodes"],
        queues=client.get("/queues")["queues"],
        jobs=sorted(rows, key=lambda row: order.get(row.state, 0)),
        is_cut=bool(started.get("next") or pending.get("next")),
    )
