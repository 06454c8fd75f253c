"""What tests of stores share: rows in a line each, and ways to take a lock away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from trainmaster.store.rows import Batch, StepRow, StoredJob, StoredProgress, StoryRow

PATIENCE_S = 60

JOB = StoredJob(
    id="1",
    name="train",
    user="ann",
    queue="default",
    state="pending",
    submit_ms=1000,
    start_ms=None,
    finish_ms=None,
    gpus=1000,
    exit_code=None,
    array=None,
    array_index=None,
    spec_json='{"command": "python train.py"}',
    record_json="{}",
)


def job(id: str, state: str = "pending", submit_ms: int = 1000, name: str = "train") -> StoredJob:
    return replace(JOB, id=id, state=state, submit_ms=submit_ms, name=name)


def step(seq: int, now_ms: int | None = None) -> StepRow:
    now_ms = seq * 10 if now_ms is None else now_ms
    return StepRow(seq, now_ms, f'[{{"event": {seq}}}]', f'[{{"order": {seq}}}]')


def batch(seq: int, *jobs: StoredJob) -> Batch:
    """A step that changes these jobs, with a sentence about each."""
    stories = tuple(StoryRow(row.id, seq * 10, seq, row.state, "{}") for row in jobs)
    return Batch(step(seq), jobs, stories)


def report(job: str, step: int) -> StoredProgress:
    return StoredProgress(job, step * 100, step, 1 / (step + 1), 250.0)


def loosen(url: str) -> None:
    """Take the lock away from the leader, without their noticing."""
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///") + ".lock").unlink()
    else:
        tell_postgres(
            url, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        )
        wait_until(
            lambda: not tell_postgres(url, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")
        )


def tell_postgres(url: str, statement: str) -> list[object]:
    """Run a statement on a connection apart; the first column of what it gives."""
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    try:
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            return [row[0] for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
