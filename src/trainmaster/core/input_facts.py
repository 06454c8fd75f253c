"""Inputs that could not be read, and those that are set aside: remembered here, decided on by the manager.

Policies never see them: jobs that name such a path are held.
"""

from __future__ import annotations

from trainmaster.core.state import State
from trainmaster.model import events as e
from trainmaster.model.inputs import MOST_FAILURES

MOST_PATHS = 1_000
"""Paths with failures that are remembered, the last to fail."""


def input_failed(state: State, event: e.InputFailed, now: int) -> None:
    path, failures = event.failure.path, state.input_failures
    known = failures.pop(path, ())
    others = tuple(each for each in known if each.job != event.failure.job)
    failures[path] = (*others, event.failure)[-MOST_FAILURES:]
    while len(failures) > MOST_PATHS:
        del failures[next(iter(failures))]


def input_blocked(state: State, event: e.InputBlocked, now: int) -> None:
    state.input_blocks[event.block.path] = event.block


def input_returned(state: State, event: e.InputReturned, now: int) -> None:
    state.input_blocks.pop(event.path, None)
    state.input_failures.pop(event.path, None)
