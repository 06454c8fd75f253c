"""Ids as numbers, and the tables against the migrations that make them."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from trainmaster.store import schema
from trainmaster.store.sqlite import open_sqlite
from trainmaster.store.tables import METADATA, numbers


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("12", (12, 0)),
        ("12_0", (12, 1)),
        ("12_3", (12, 4)),
        ("12_", (0, 0)),
        ("_3", (0, 0)),
        ("x12", (0, 0)),
        ("12 ", (0, 0)),
        ("-1", (0, 0)),
        ("١٢", (0, 0)),
        ("", (0, 0)),
        ("9" * 18, (10**18 - 1, 0)),
        ("9" * 19, (0, 0)),
    ],
)
def test_numbers_of_ids(id: str, expected: tuple[int, int]) -> None:
    assert numbers(id) == expected


def test_versions_are_the_files_of_migrations() -> None:
    scripts = ScriptDirectory(str(schema.SCRIPTS))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(schema.VERSIONS)
    assert scripts.get_heads() == [schema.VERSIONS[-1]]


def test_migrations_make_the_tables_that_the_program_uses(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "a.db")
    schema.bring_up_to_date(database.writer, database.url)
    with database.writer.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []
    database.dispose()
