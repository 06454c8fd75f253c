"""What every store keeps to: SQLite and PostgreSQL, the same suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, select

from tests.contract.stores import JOB, batch, job, loosen, report, step
from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.rows import (
    Batch,
    JobFilter,
    KeyRow,
    SnapshotRow,
    StepRow,
    StoredJob,
    StoryRow,
)
from trainmaster.store.store import Store
from trainmaster.store.tables import SNAPSHOTS

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS


# -- leading ---------------------------------------------------------------------------------------


def test_one_leads_and_the_other_waits(opened: Callable[[], Store]) -> None:
    one, other = opened(), opened()
    assert (one.is_leader(), other.is_leader()) == (False, False)
    assert one.acquire_leadership()
    assert not other.acquire_leadership()
    assert (one.is_leader(), other.is_leader()) == (True, False)
    one.close()
    assert other.acquire_leadership()
    assert other.is_leader()


def test_leading_twice_is_leading_once(opened: Callable[[], Store]) -> None:
    one, other = opened(), opened()
    assert one.acquire_leadership()
    assert one.acquire_leadership()
    one.append([batch(1, job("1"))])
    assert not other.acquire_leadership()


def test_who_does_not_lead_may_not_write(store: Store, opened: Callable[[], Store]) -> None:
    other = opened()
    with pytest.raises(LeadershipLost, match="does not lead"):
        other.append([batch(1, job("1"))])
    with pytest.raises(LeadershipLost):
        other.keep_snapshot(SnapshotRow(0, 0, "{}"))
    with pytest.raises(LeadershipLost):
        other.compact(10)
    assert store.steps() == []


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.append([batch(2, job("2"))]),
        lambda store: store.keep_snapshot(SnapshotRow(1, 10, "{}")),
        lambda store: store.compact(100),
    ],
    ids=["append", "keep_snapshot", "compact"],
)
def test_a_former_leader_writes_nothing(
    store_url: str, opened: Callable[[], Store], write: Callable[[Store], object]
) -> None:
    old, new = opened(), opened()
    assert old.acquire_leadership()
    old.append([batch(1, job("1"))])
    loosen(store_url)
    assert new.acquire_leadership()
    with pytest.raises(LeadershipLost, match="Another manager leads"):
        write(old)
    assert not old.is_leader()
    assert not old.acquire_leadership()
    new.append([batch(2, job("2", "running"))])
    assert [row.seq for row in new.steps()] == [1, 2]
    assert new.job("2") == job("2", "running")
    assert new.snapshot() is None


def test_a_former_leader_notices(store_url: str, opened: Callable[[], Store]) -> None:
    old, new = opened(), opened()
    assert old.acquire_leadership()
    loosen(store_url)
    assert new.acquire_leadership()
    assert not old.is_leader()
    assert new.is_leader()


def test_a_lost_lock_is_taken_back_where_nobody_led(
    store_url: str, opened: Callable[[], Store]
) -> None:
    one, other = opened(), opened()
    assert one.acquire_leadership()
    loosen(store_url)
    assert one.is_leader()
    assert not other.acquire_leadership()
    one.append([batch(1, job("1"))])


def test_closed_is_closed(store: Store) -> None:
    store.close()
    store.close()
    assert not store.is_leader()
    for use in (store.acquire_leadership, store.count, lambda: store.append([batch(1)])):
        with pytest.raises(StoreError, match="closed: open it again"):
            use()


# -- writing ---------------------------------------------------------------------------------------


def test_steps_are_kept_in_order(store: Store) -> None:
    store.append([batch(1), batch(2)])
    store.append([])
    store.append([batch(3)])
    assert store.steps() == [step(1), step(2), step(3)]
    assert store.steps(after=1) == [step(2), step(3)]
    assert store.steps(after=1, limit=1) == [step(2)]
    assert store.steps(after=3) == []


@pytest.mark.parametrize("seqs", [(1,), (2,), (4,), (3, 3), (3, 5), (4, 3)], ids=str)
def test_only_the_next_step_is_kept(store: Store, seqs: tuple[int, ...]) -> None:
    store.append([batch(1), batch(2)])
    with pytest.raises(StoreError, match="cannot be kept") as caught:
        store.append([batch(seq, job("9")) for seq in seqs])
    assert not isinstance(caught.value, LeadershipLost)
    assert store.steps() == [step(1), step(2)]
    assert store.job("9") is None
    store.append([batch(3)])


def test_a_batch_is_kept_whole_or_not_at_all(store: Store) -> None:
    good = batch(1, job("1"), job("2"))
    stranger = StoryRow("77", 10, 1, "started", "{}")  # of a job that is not there
    with pytest.raises(StoreError, match="does not fit together"):
        store.append([good, replace(batch(2), stories=(stranger,))])
    assert store.steps() == []
    assert store.count() == {}
    assert store.story("1") == []
    store.append([good, batch(2)])
    assert store.count() == {"pending": 2}
    assert len(store.story("1")) == 1


@pytest.mark.parametrize(
    "spoilt",
    [replace(JOB, name="\ud800"), replace(JOB, gpus=2**63), replace(JOB, submit_ms=-(2**63) - 1)],
    ids=["half a character", "too large", "too small"],
)
def test_what_no_database_holds_is_readable(store: Store, spoilt: StoredJob) -> None:
    with pytest.raises(StoreError, match="cannot store this"):
        store.append([batch(1, spoilt)])
    store.append([batch(1, JOB)])
    assert store.job("1") == JOB


def test_a_job_is_updated_in_place(store: Store) -> None:
    ended = replace(JOB, state="failed", start_ms=5, finish_ms=9, exit_code=3, record_json="[1]")
    store.append([batch(1, JOB)])
    store.append([batch(2, replace(JOB, state="running", start_ms=5)), batch(3, ended)])
    assert store.job("1") == ended
    assert store.jobs(JobFilter()) == [ended]
    assert store.count() == {"failed": 1}


def test_thousands_of_jobs_in_one_batch(store: Store) -> None:
    jobs = [job(str(number), submit_ms=number) for number in range(1, 5001)]
    store.append([batch(1, *jobs)])
    assert store.count() == {"pending": 5000}
    assert store.last_number() == 5000
    assert store.jobs(JobFilter(limit=10_000)) == jobs[::-1]


# -- snapshots -------------------------------------------------------------------------------------


def test_snapshots_newest_and_oldest(store: Store) -> None:
    assert store.snapshot() is None
    assert store.snapshot(oldest=True) is None
    first, second = SnapshotRow(0, 0, "{}"), SnapshotRow(2, 20, '{"jobs": 2}')
    store.keep_snapshot(first)
    store.append([batch(1), batch(2)])
    store.keep_snapshot(second)
    assert store.snapshot() == second
    assert store.snapshot(oldest=True) == first
    again = replace(second, body_json='{"jobs": 3}')
    store.keep_snapshot(again)
    assert store.snapshot() == again


def test_a_snapshot_of_steps_that_are_not_there_is_refused(store: Store) -> None:
    store.append([batch(1)])
    with pytest.raises(StoreError, match="the last step is 1"):
        store.keep_snapshot(SnapshotRow(2, 20, "{}"))
    assert store.snapshot() is None


@pytest.mark.parametrize(
    ("before_ms", "dropped", "oldest"),
    [(0, 0, 0), (30, 0, 0), (31, 3, 3), (60, 3, 3), (61, 6, 6), (10_000, 6, 6)],
)
def test_compacting_leaves_a_snapshot_and_all_since(
    store: Store, before_ms: int, dropped: int, oldest: int
) -> None:
    """Steps 1..8 at 10, 20, … ms; snapshots after 0, 3 and 6."""
    store.keep_snapshot(SnapshotRow(0, 0, "{}"))
    store.append([batch(seq, job(str(seq))) for seq in range(1, 9)])
    for seq in (3, 6):
        store.keep_snapshot(SnapshotRow(seq, seq * 10, "{}"))
    assert store.compact(before_ms) == dropped
    found = store.snapshot(oldest=True)
    assert found is not None
    assert found.seq == oldest
    assert [row.seq for row in store.steps(after=found.seq)] == list(range(oldest + 1, 9))
    assert len(store.steps()) == 8 - dropped
    assert store.compact(before_ms) == 0
    assert len(store.jobs(JobFilter())) == 8  # history stays
    assert len(store.story("1")) == 1


def kept_snapshots(store_url: str) -> list[int]:
    engine = create_engine(store_url)
    try:
        with engine.connect() as connection:
            return list(connection.scalars(select(SNAPSHOTS.c.seq).order_by(SNAPSHOTS.c.seq)))
    finally:
        engine.dispose()


def test_of_many_snapshots_few_are_kept_and_old_steps_go_all_the_same(
    store: Store, store_url: str
) -> None:
    """A step and a snapshot every three hours of ten days, of which seven are kept: each takes megabytes."""
    seq, most = 0, 0
    for hour in range(0, 240, 3):
        seq, now = seq + 1, hour * HOUR_MS
        store.append([Batch(StepRow(seq, now, "[]", "[]"))])
        store.keep_snapshot(SnapshotRow(seq, now, "{}"))
        store.compact(now - 7 * DAY_MS)
        kept = kept_snapshots(store_url)
        assert kept[-2:] == [seq - 1, seq][-min(seq, 2) :]
        assert [each.seq for each in store.steps(after=kept[0])] == list(
            range(kept[0] + 1, seq + 1)
        )
        most = max(most, len(kept))
    assert most <= 11
    assert len(store.steps()) <= 8 * 8


def test_of_old_reports_the_last_of_each_job_in_each_span_stays(store: Store) -> None:
    """Reports at 100, 200, … ms, of two jobs by turns; spans of 500 ms; young from 1,100 ms on."""
    store.append([batch(1, job("1"), job("2"))])
    reports = tuple(report("1" if at % 2 else "2", at) for at in range(1, 17))
    store.append([Batch(step(2), progress=reports)])
    last: int | None = 0
    looks = 0
    while last is not None:
        last = store.thin_progress(last, before_ms=1100, span_ms=500, limit=3)
        looks += 1
    assert looks == 5, "10 old rows, 3 at a time"
    assert [each.step for each in store.progress("1")] == [3, 9, 11, 13, 15]
    assert [each.step for each in store.progress("2")] == [4, 8, 12, 14, 16]
    assert store.thin_progress(0, before_ms=1100, span_ms=500, limit=99) is not None
    assert len(store.progress("1")) == 5


def test_numbers_go_on_after_all_steps_were_dropped(store: Store) -> None:
    store.append([batch(1), batch(2)])
    store.keep_snapshot(SnapshotRow(2, 20, "{}"))
    assert store.compact(1000) == 2
    assert store.steps() == []
    with pytest.raises(StoreError, match="the next one is 3"):
        store.append([batch(1)])
    store.append([batch(3)])
    assert store.steps() == [step(3)]


def test_without_a_snapshot_nothing_is_dropped(store: Store) -> None:
    store.append([batch(1), batch(2)])
    assert store.compact(1000) == 0
    assert len(store.steps()) == 2


def test_old_keys_are_dropped(store: Store) -> None:
    now = 100 * DAY_MS
    ages = {"old": 7 * DAY_MS + 1, "young": 7 * DAY_MS, "new": 0}
    keys = {name: KeyRow(name, now - age, "hash", '{"id": "1"}') for name, age in ages.items()}
    store.append([Batch(StepRow(1, now, "[]", "[]"), keys=tuple(keys.values()))])
    assert {name: store.key(name) for name in keys} == keys
    store.compact(0)
    assert [store.key(name) for name in keys] == [None, keys["young"], keys["new"]]


def test_the_first_answer_to_a_key_stands(store: Store) -> None:
    first = KeyRow("k", 1, "hash", '{"id": "1"}')
    store.append([replace(batch(1), keys=(first,))])
    store.append([replace(batch(2), keys=(replace(first, answer_json="{}"),))])
    assert store.key("k") == first
    assert store.key("another") is None
    for number, age in ((3, 7 * DAY_MS), (4, 7 * DAY_MS + 1)):
        later = KeyRow("k", first.at_ms + age, "other", "{}")
        store.append([replace(batch(number), keys=(later,))])
        is_forgotten = age > 7 * DAY_MS
        assert store.key("k") == (later if is_forgotten else first)
