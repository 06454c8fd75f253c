"""Opening a store by its URL."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from trainmaster.store.copies import put_back
from trainmaster.store.database import Database
from trainmaster.store.errors import BadAddress, StoreAway, readable_errors
from trainmaster.store.postgres import open_postgres
from trainmaster.store.sqlite import open_sqlite
from trainmaster.store.store import Store

POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


def open_store(url: str) -> Store:
    """The store at a path, `sqlite:////abs/path` or `postgresql://user@host/name`.

    Nothing is written before `acquire_leadership`; a schema that is newer than this program is refused.
    A server that does not answer is opened all the same: its user waits for it.
    """
    store = Store(open_database(url))
    try:
        store.refuse_newer()
    except StoreAway:
        return store
    except BaseException:
        store.close()
        raise
    return store


def check_address(url: str) -> None:
    """BadAddress where this cannot name a database; nothing is opened."""
    open_database(url).dispose()


def put_back_copy(url: str, copies: Path) -> str:
    """Replace a missing or damaged SQLite database by its newest good copy; what was done, if anything."""
    database = open_database(url)
    database.dispose()
    if database.file.path is None:
        return ""
    with readable_errors(database.url):
        return put_back(database.file.path, copies)


def open_database(url: str) -> Database:
    """The database alone, for those that lead no manager; nothing is opened yet."""
    if "://" not in url:
        return open_sqlite(_plain_path(url))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise BadAddress(
            "The URL of the store cannot be read: write it as postgresql://user@host:5432/name."
        ) from error
    if parsed.drivername == "sqlite":
        return open_sqlite(_file(parsed.database, url))
    if parsed.drivername in POSTGRES:
        return open_postgres(parsed)
    raise BadAddress(
        f"There is no store of the kind {parsed.drivername}://: give a path, sqlite:////path, or"
        " postgresql://user@host/name."
    )


def _plain_path(text: str) -> Path:
    """A bare word is not taken for a file: it is more likely a slip than a place for a new database."""
    path = _file(text, text)
    if "/" not in text and not path.suffix and not path.exists():
        raise BadAddress(
            f"{text} is not the address of a database: write postgresql://user@host/name, or"
            f" ./{text} for a file."
        )
    return path


def _file(name: str | None, url: str) -> Path:
    if not name or name == ":memory:":
        raise BadAddress(
            f"A store must outlive the manager, and {url or 'an empty name'} names no file: write"
            " sqlite:////path/to/trainmaster.db."
        )
    return Path(name).expanduser()
