"""Schemas older and newer than the program, on both databases."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.contract.stores import JOB, batch, job, loosen, step
from trainmaster.daemon.backup import copy_before_upgrade
from trainmaster.daemon.backup_file import verify
from trainmaster.store import schema
from trainmaster.store.errors import StoreError
from trainmaster.store.open import open_store
from trainmaster.store.rows import JobFilter, SnapshotRow
from trainmaster.store.store import Store
from trainmaster.store.tables import JOBS, values

LATER = f"""
import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{schema.VERSIONS[-1]}"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("colour", sa.Text))
    op.execute("UPDATE jobs SET colour = 'red'")
"""
BROKEN = LATER + '    op.execute("UPDATE no_such_table SET colour = 1")\n'


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this program one that has one migration more."""

    def add(migration: str) -> None:
        scripts = tmp_path / "migrations"
        shutil.copytree(schema.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
        (scripts / "versions" / "v9001_later.py").write_text(migration)
        monkeypatch.setattr(schema, "SCRIPTS", scripts)
        monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, "9001"))

    return add


def fill(store: Store) -> None:
    store.append([batch(1, JOB), batch(2, job("2"))])


def asked(store: Store, statement: str) -> list[object]:
    assert isinstance(store, Store)
    with store.database.reader.connect() as connection:
        return [row[0] for row in connection.execute(text(statement))]


def test_from_empty_to_the_newest(opened: Callable[[], Store]) -> None:
    store = opened()
    assert store.acquire_leadership()
    assert asked(store, f"SELECT version_num FROM {schema.VERSION_TABLE}") == [schema.VERSIONS[-1]]
    fill(store)
    assert store.job("1") == JOB


@pytest.mark.parametrize("old", schema.VERSIONS)
def test_from_every_version_to_the_newest(opened: Callable[[], Store], old: str) -> None:
    store = opened()
    assert isinstance(store, Store)
    with store.database.writer.begin() as connection:
        schema.migrate(connection, old)
    assert store.acquire_leadership()
    fill(store)
    assert store.job("1") == JOB


FORMER_STATES = {
    "1": ("held", None, "{}", "pending"),
    "2": ("held", 5, "{}", "suspended"),
    "3": ("starting", None, "{}", "pending"),
    "4": ("suspending", 5, "{}", "running"),
    "5": ("stopping", 5, "{}", "running"),
    "6": ("cancelled", 5, "{}", "cancelled"),
    "7": (
        *("cancelled", 5),
        '{"failure":{"why":"it has run for its max_runtime of 2 s"}}',
        "timed_out",
    ),
    "8": ("succeeded", 5, "{}", "succeeded"),
}
"""By job: its phase, start and record as version 0001 stored them, and its state now."""


def test_phases_of_older_stores_become_the_states_that_people_know(
    opened: Callable[[], Store],
) -> None:
    store = opened()
    with store.database.writer.begin() as connection:
        schema.migrate(connection, "0001")
        for id, (state, start_ms, record, _) in FORMER_STATES.items():
            old = replace(job(id), state=state, start_ms=start_ms, record_json=record)
            row = {name: value for name, value in values(old).items() if name != "program"}
            connection.execute(JOBS.insert().values(row))
    assert store.acquire_leadership()
    found = {row.id: row.state for row in store.jobs(JobFilter())}
    assert found == {id: states[-1] for id, states in FORMER_STATES.items()}


def test_a_leader_brings_an_older_schema_up_to_date(
    opened: Callable[[], Store], next_version: Callable[[str], None]
) -> None:
    old = opened()
    assert old.acquire_leadership()
    fill(old)
    next_version(LATER)
    standby = opened()
    with pytest.raises(StoreError, match=r"older Trainmaster .* start this version's"):
        standby.count()
    assert not standby.acquire_leadership()
    with pytest.raises(StoreError):
        standby.count()  # a standby does not migrate
    old.close()
    assert standby.acquire_leadership()
    assert asked(standby, "SELECT colour FROM jobs") == ["red", "red"]
    assert standby.steps() == [step(1), step(2)]
    standby.append([batch(3, job("3"))])
    assert len(standby.jobs(JobFilter())) == 3


def test_a_migration_that_fails_leaves_all_as_it_was(
    store_url: str,
    opened: Callable[[], Store],
    next_version: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(open_store(store_url)) as store:
        assert store.acquire_leadership()
        fill(store)
    next_version(BROKEN)
    broken = opened()
    for _ in range(2):
        with pytest.raises(StoreError, match="no_such_table"):
            broken.acquire_leadership()
        assert not broken.is_leader()
    monkeypatch.undo()
    again = opened()
    assert again.acquire_leadership()  # the one that failed let go of the lock
    assert again.job("1") == JOB
    with pytest.raises(Exception, match="colour"):
        asked(again, "SELECT colour FROM jobs")


def test_a_store_is_copied_before_its_tables_change(
    store_url: str,
    opened: Callable[[], Store],
    next_version: Callable[[str], None],
    tmp_path: Path,
) -> None:
    """A file that the earlier version can use, or a backup of what is on a server."""
    with closing(open_store(store_url)) as store:
        assert store.acquire_leadership()
        fill(store)
        store.keep_snapshot(SnapshotRow(2, 20, '{"home": "h"}'))
    before = schema.VERSIONS[-1]
    next_version(LATER)
    later, made = opened(), []
    later.before_migration = lambda found: made.append(copy_before_upgrade(later, tmp_path, found))
    assert later.acquire_leadership()
    (copy,) = made
    assert copy.name.startswith(f"schema-{before}-step-2.")
    if copy.suffix == ".db":
        with closing(sqlite3.connect(copy)) as former:
            found = former.execute(f"SELECT version_num FROM {schema.VERSION_TABLE}").fetchone()
            assert (found, former.execute("SELECT count(*) FROM jobs").fetchone()) == (
                (before,),
                (2,),
            )
    else:
        manifest = verify(copy)
        assert (manifest.schema_version, manifest.tables["jobs"]) == (before, 2)
    assert copy_before_upgrade(later, tmp_path, "9001") != copy
    later.close()
    again = opened()
    again.before_migration = lambda found: made.append(Path(found))
    assert again.acquire_leadership()
    assert len(made) == 1, "a store that is up to date is not copied"


def test_nothing_is_migrated_if_another_manager_takes_over_while_it_is_copied(
    store_url: str, opened: Callable[[], Store], next_version: Callable[[str], None]
) -> None:
    with closing(open_store(store_url)) as store:
        assert store.acquire_leadership()
        fill(store)
    next_version(LATER)
    later, other = opened(), opened()

    def lose(_: str) -> None:
        loosen(store_url)
        assert other.database.lock.take()

    later.before_migration = lose
    with pytest.raises(StoreError, match="took over"):
        later.acquire_leadership()
    assert not later.is_leader()
    assert asked(later, f"SELECT version_num FROM {schema.VERSION_TABLE}") == [schema.VERSIONS[-2]]


def test_a_newer_schema_is_refused(opened: Callable[[], Store], store_url: str) -> None:
    old_program = opened()
    assert old_program.acquire_leadership()
    fill(old_program)
    assert isinstance(old_program, Store)
    with old_program.database.writer.begin() as connection:
        connection.execute(text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"))
    old_program.close()
    with pytest.raises(StoreError, match=r"schema version 9999 of a newer Trainmaster.*upgrade"):
        open_store(store_url)


def test_a_newer_schema_is_not_led_by_a_waiting_old_program(opened: Callable[[], Store]) -> None:
    """A newer daemon led and migrated while this one waited."""
    new, waiting = opened(), opened()
    assert new.acquire_leadership()
    assert not waiting.acquire_leadership()
    assert isinstance(new, Store)
    with new.database.writer.begin() as connection:
        connection.execute(text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"))
    new.close()
    with pytest.raises(StoreError, match="newer Trainmaster"):
        waiting.acquire_leadership()
    assert not waiting.is_leader()
