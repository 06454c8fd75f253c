"""A job's life as a table: every phase can be reached and left, every other edge fails loudly."""

from __future__ import annotations

import pytest

from tests.builders import a_job, cluster
from trainmaster.core.change_log import Changes
from trainmaster.core.lifecycle import (
    ALLOCATED,
    EDGES,
    ENDED,
    HIDDEN_PHASES,
    WAITING,
    Cause,
    LifecycleError,
    Phase,
)
from trainmaster.core.state import JobRecord, State


def test_every_phase_can_be_reached_from_pending() -> None:
    reached, todo = {Phase.PENDING}, [Phase.PENDING]
    while todo:
        for after in EDGES[todo.pop()].values():
            if after not in reached:
                reached.add(after)
                todo.append(after)
    assert reached == set(Phase)


def test_every_live_phase_can_come_to_an_end() -> None:
    ending = set(ENDED)
    for _ in Phase:
        ending |= {phase for phase, edges in EDGES.items() if ending & set(edges.values())}
    assert ending == set(Phase)


def test_every_cause_is_on_some_edge_and_the_ends_have_none() -> None:
    assert {cause for edges in EDGES.values() for cause in edges} == set(Cause)
    assert all(not EDGES[phase] for phase in ENDED)
    assert not WAITING & ALLOCATED
    assert not HIDDEN_PHASES & (WAITING | ALLOCATED)
    assert ENDED | {Phase.HELD} == HIDDEN_PHASES


LIVES = {
    "a job that runs to its end": ("START_ORDERED STARTED SUCCEEDED", Phase.SUCCEEDED),
    "a job that is tried on one device first": (
        "START_ORDERED STARTED PASSED START_ORDERED STARTED SUCCEEDED",
        Phase.SUCCEEDED,
    ),
    "a job that is suspended and resumed": (
        "START_ORDERED STARTED SUSPEND_ORDERED SUSPENDED START_ORDERED STARTED SUCCEEDED",
        Phase.SUCCEEDED,
    ),
    "a job that is resized": (
        "START_ORDERED STARTED RESIZE_ORDERED RESIZED SUCCEEDED",
        Phase.SUCCEEDED,
    ),
    "a job that fails, is retried, and fails for good": (
        "START_ORDERED STARTED RETRIED START_ORDERED STARTED FAILED_FOR_GOOD",
        Phase.FAILED,
    ),
    "a job withdrawn while it waits": ("WITHDRAWN", Phase.CANCELLED),
    "a job withdrawn while it runs": (
        "START_ORDERED STARTED STOP_ORDERED STOPPED",
        Phase.CANCELLED,
    ),
    "a job that ends before the kill reaches it": (
        "START_ORDERED STARTED STOP_ORDERED SUCCEEDED",
        Phase.SUCCEEDED,
    ),
    "a job whose node dies while it is being stopped": (
        "START_ORDERED STARTED STOP_ORDERED RETRIED",
        Phase.CANCELLED,
    ),
    "a promised start that is taken back": ("START_ORDERED REVOKED_UNSTARTED", Phase.PENDING),
    "a promised resumption that is taken back": (
        "START_ORDERED STARTED SUSPEND_ORDERED SUSPENDED START_ORDERED REVOKED",
        Phase.SUSPENDED,
    ),
    "a job that is held before it runs": ("HELD RELEASED_UNSTARTED", Phase.PENDING),
    "a job that its owner suspends and resumes": (
        "START_ORDERED STARTED SUSPEND_ORDERED SUSPENDED HELD RELEASED START_ORDERED STARTED",
        Phase.RUNNING,
    ),
    "a frozen job that is lost while it is held": (
        "START_ORDERED STARTED SUSPEND_ORDERED SUSPENDED HELD RETRIED",
        Phase.HELD,
    ),
    "a job withdrawn while it is held": ("HELD WITHDRAWN", Phase.CANCELLED),
    "a job that ends while it is told to leave": (
        "START_ORDERED STARTED SUSPEND_ORDERED SUCCEEDED",
        Phase.SUCCEEDED,
    ),
}


@pytest.mark.parametrize(("causes", "end"), LIVES.values(), ids=LIVES)
def test_life(causes: str, end: Phase) -> None:
    state = State(cluster("1x1"))
    changes = state.log.readers["test"] = Changes()
    record = JobRecord(a_job("a"), 0, 0, None, None)
    for cause in causes.split():
        state.move(record, Cause[cause])
    assert record.phase is end
    assert changes.jobs == {0: record}


@pytest.mark.parametrize("phase", Phase)
def test_every_other_edge_fails_loudly(phase: Phase) -> None:
    state = State(cluster("1x1"))
    for cause in set(Cause) - set(EDGES[phase]):
        record = JobRecord(a_job("a"), 0, 0, None, None)
        record.phase = phase
        with pytest.raises(
            LifecycleError, match=f"job a: no edge from {phase.name} by {cause.name}"
        ):
            state.move(record, cause)
