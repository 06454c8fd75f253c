"""The version of the schema: which one a database has, and bringing it up to ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from trainmaster.store.errors import MigrationFailed, StoreError, first_line, is_its_own

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""All that this program knows, oldest first; one file of `migrations/versions` each."""
VERSION_TABLE = "trainmaster_version"
SCRIPTS = Path(__file__).with_name("migrations")


def version(connection: Connection) -> str | None:
    """The version of the schema that a database has; None if it has no schema of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return found


def refuse_newer(found: str | None, url: str) -> None:
    """Refuse a schema of a newer program: neither write nor read it."""
    if found is not None and found not in VERSIONS:
        raise StoreError(
            f"The database {url} has schema version {found} of a newer Trainmaster, and this one"
            f" knows versions up to {VERSIONS[-1]}: upgrade Trainmaster."
        )


def refuse_unready(found: str | None, url: str) -> None:
    """Readers do not migrate: they wait for a leader that does."""
    refuse_newer(found, url)
    if found is None:
        raise StoreError(
            f"The database {url} is empty as yet: start `trainmaster up` with it once."
        )
    if found != VERSIONS[-1]:
        raise StoreError(
            f"The database {url} is of an older Trainmaster (schema version {found}, not"
            f" {VERSIONS[-1]}): start this version's `trainmaster up` with it once."
        )


def bring_up_to_date(
    engine: Engine, url: str, before: Callable[[str], None] = lambda _: None
) -> None:
    """Run the migrations that a database lacks, all in one transaction; the leader's work.

    `before` is told the version of one that has rows, before anything changes. MigrationFailed where a
    migration raises: the database is as it was.
    """
    with engine.begin() as connection:
        found = version(connection)
    refuse_newer(found, url)
    if found == VERSIONS[-1]:
        return
    if found is not None:
        before(found)
    try:
        with engine.begin() as connection:
            migrate(connection, VERSIONS[-1])
    except Exception as error:
        if is_its_own(error):
            raise
        raise MigrationFailed(
            f"The database {url} could not be brought from schema version {found or 'none'} to"
            f" {VERSIONS[-1]} ({first_line(error)}): it is as it was, and jobs go on. Start the version"
            " of Trainmaster that was used before, and report this."
        ) from error


def migrate(connection: Connection, to: str) -> None:
    """Bring a database to a version, inside the current transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    command.upgrade(config, to)
