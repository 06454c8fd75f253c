"""Jobs as the daemon lists them, as values; and arrays folded into one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmaster.cli.support.client import Client, Json, Query

LIVE_STATES = (
    *("pending", "held", "preflight", "starting", "running"),
    *("suspending", "suspended", "resizing", "stopping"),
)
ENDED_STATES = ("succeeded", "failed", "cancelled")
STATES = (*LIVE_STATES, *ENDED_STATES)
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """One job, as far as lists and summaries show it."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    code: str
    """Of the reason why it waits; empty where there is none."""
    sentence: str
    gpus: float
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    submit_s: float
    start_s: float | None
    finish_s: float | None
    queue_s: float | None
    run_s: float
    gpu_s: float
    priority: int
    attempt: int
    restarts: int
    preemptions: int
    exit_code: int | None
    ended_because: str
    """Why it failed or was cancelled, as a sentence; empty where that is not known."""
    array: str | None
    array_index: int | None
    step: int | None
    total_steps: int | None
    loss: float | None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def exit_status(self) -> int:
        """What a command that waited for it returns: its own code, and never 0 unless it succeeded."""
        if self.state == "succeeded":
            return 0
        return self.exit_code or 1


def row_of(said: Json) -> Row:
    """One row of the daemon's answer."""
    reason = said.get("reason") or {}
    progress = said.get("progress") or {}
    return Row(
        id=str(said["id"]),
        name=said.get("name") or "",
        user=said.get("user") or "",
        queue=said.get("queue") or "",
        state=said["state"],
        code=reason.get("code") or "",
        sentence=reason.get("sentence") or "",
        gpus=said.get("gpus") or 0,
        nodes=tuple(said.get("nodes") or ()),
        devices=tuple(said.get("devices") or ()),
        submit_s=said.get("submit_s") or 0,
        start_s=said.get("start_s"),
        finish_s=said.get("finish_s"),
        queue_s=said.get("queue_s"),
        run_s=said.get("run_s") or 0,
        gpu_s=said.get("gpu_s") or 0,
        priority=said.get("priority") or 0,
        attempt=said.get("attempt") or 0,
        restarts=said.get("restarts") or 0,
        preemptions=said.get("preemptions") or 0,
        exit_code=said.get("exit_code"),
        ended_because=said.get("ended_because") or "",
        array=said.get("array"),
        array_index=said.get("array_index"),
        step=progress.get("step"),
        total_steps=progress.get("total_steps"),
        loss=progress.get("loss"),
    )


def listed(
    client: Client, query: Query, most: int | None = None, page: int = PAGE
) -> Iterator[Json]:
    """Rows of the daemon that match, newest first, page by page."""
    before: str | None = None
    left = most
    while left is None or left > 0:
        limit = min(PAGE, page if left is None else left)
        found = client.get("/jobs", {**query, "limit": limit, "before": before})
        yield from found["jobs"]
        before = found.get("next")
        left = None if left is None else left - len(found["jobs"])
        if not before:
            return


@dataclass(frozen=True, slots=True)
class Folded:
    """The elements of one array that are listed, together."""

    array: str
    rows: tuple[Row, ...]

    @property
    def id(self) -> str:
        indices = [row.array_index for row in self.rows if row.array_index is not None]
        return f"{self.array}_[{ranges(indices)}]" if indices else self.array

    @property
    def states(self) -> str:
        """How many are in which state, in the order of a job's life."""
        counted = Counter(row.state for row in self.rows)
        order = {state: place for place, state in enumerate(STATES)}
        named = sorted(counted, key=lambda state: order.get(state, len(order)))
        return ", ".join(f"{counted[state]} {state}" for state in named)

    @property
    def why(self) -> str:
        """Why elements wait, or did not succeed: the reason that most of them give."""
        given = Counter(said for row in self.rows if (said := row.sentence or row.ended_because))
        return given.most_common(1)[0][0] if given else ""


def fold(rows: Iterable[Row]) -> list[Row | Folded]:
    """Elements of an array in one place, where the first of them stood."""
    elements: dict[str, list[Row]] = {}
    order: list[Row | str] = []
    for row in rows:
        if row.array is None or row.array == row.id:
            order.append(row)
        else:
            if row.array not in elements:
                order.append(row.array)
            elements.setdefault(row.array, []).append(row)
    return [
        Folded(each, tuple(elements[each])) if isinstance(each, str) else each
        for each in order
        if isinstance(each, str) or each.id not in elements
    ]


def ranges(indices: Iterable[int]) -> str:
    """0,1,2,5 as `0-2,5`."""
    spans: list[list[int]] = []
    for index in sorted(set(indices)):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
