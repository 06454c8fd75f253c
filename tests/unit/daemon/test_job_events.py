"""Stories do not become endless."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trainmaster.daemon.job_events import thinned
from trainmaster.daemon.job_history import JobHistory
from trainmaster.store.rows import StoryRow


def row(what: str, step: int) -> StoryRow:
    return StoryRow("1", 0, step, what, "{}")


def test_saves_are_told_ever_more_rarely() -> None:
    jobs: dict[str, Any] = {"1": SimpleNamespace(history=JobHistory())}
    told = list(thinned((row("saved", n) for n in range(1, 50_001)), jobs, 100_000))
    assert [each.step for each in told[:100]] == list(range(1, 101))
    assert 400 < len(told) < 800
    assert told[-1].step > 49_000
    assert (jobs["1"].history.saves, jobs["1"].history.story_entries) == (50_000, len(told))


def test_ends_are_told_however_long_a_story_is() -> None:
    jobs: dict[str, Any] = {"1": SimpleNamespace(history=JobHistory())}
    whats = [*["suspended", "resumed"] * 10, "failed", "started", "succeeded"]
    told = list(thinned((row(what, n) for n, what in enumerate(whats)), jobs, 5))
    assert [each.what for each in told[5:]] == ["failed", "succeeded"]
    assert [each.what for each in thinned([row("saved", 1)], {}, 5)] == ["saved"]
