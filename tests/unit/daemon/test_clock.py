"""Time that only goes forward."""

from __future__ import annotations

import time

import pytest

from trainmaster.daemon.clock import Clock


def test_a_wall_clock_that_is_set_back_or_forth_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, steady = 1_000.0, 50.0
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady)
    clock = Clock()
    assert clock.now() == 1_000_000
    wall, steady = 400.0, 51.5
    assert clock.now() == 1_001_500
    wall, steady = 9_000.0, 52.0
    assert clock.now() == 1_002_000


def test_after_a_restart_time_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10.0)
    assert Clock(at_least_ms=70_000).now() >= 70_000
