"""Progress reports become fewer as they age, and the last one of a job never goes."""

from __future__ import annotations

from pathlib import Path

from tests.unit.daemon.test_retention import a_row
from trainmaster.daemon.progress_thinning import ROWS, ProgressThinning
from trainmaster.model.units import HOUR, MINUTE, SECOND
from trainmaster.store.open import open_store
from trainmaster.store.rows import Batch, StepRow, StoredProgress


def test_old_reports_are_thinned_to_minutes_and_then_to_hours(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/t.db")
    assert store.acquire_leadership()
    every, age = 10 * SECOND, 14 * HOUR
    reports = tuple(StoredProgress("1", at, at // every, None, None) for at in range(0, age, every))
    assert len(reports) > 2 * ROWS, "it takes several goes"
    store.append([Batch(StepRow(1, 0, "[]", "[]"), jobs=(a_row("1", None),), progress=reports)])
    thinning = ProgressThinning(store)
    while thinning.step(age, HOUR):
        pass
    found = [each.at_ms for each in store.progress("1", limit=10_000)]
    hourly = [at for at in found if at < 4 * HOUR]
    by_minute = [at for at in found if 4 * HOUR <= at < 13 * HOUR]
    assert hourly == [hour * HOUR - every for hour in range(1, 5)]
    assert by_minute == [at + MINUTE - every for at in range(4 * HOUR, 13 * HOUR, MINUTE)]
    assert len(found) - len(hourly) - len(by_minute) == HOUR // every
    assert not thinning.step(age, HOUR)
    while thinning.step(age + 1000 * HOUR, HOUR):
        pass
    assert [each.at_ms for each in store.progress("1")][-1] == age - every
    store.close()
