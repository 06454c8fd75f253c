"""PostgreSQL by URL: a pool of connections, and one apart that holds the leader's lock."""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec
from shlex import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from trainmaster.store.database import Database, DatabaseFile
from trainmaster.store.errors import StoreError

DEFAULTS = {
    "connect_timeout": "5",
    "application_name": "trainmaster",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Settings of libpq: to notice a server that is gone. The URL overrides them."""

CAREFUL = """
SELECT set_config(name, ours.value, false)
FROM pg_settings JOIN (VALUES
    ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'),
    ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '30000'),
    ('idle_session_timeout', '0'), ('lock_timeout', '10000')
) AS ours(name, value) USING (name)
"""
"""Settings of the server for a leader's sessions, where it supports them: a leader whose machine lost
power is detected in half a minute, idle sessions are not closed, and a locked table is reported."""

READERS = 4
MOST_READERS = 32


def open_postgres(url: URL) -> Database:
    """A database on a server; connects when first used."""
    if find_spec("psycopg") is None:
        raise StoreError(
            f"PostgreSQL needs one more package: {quote(sys.executable)} -m pip install 'psycopg[binary]'."
        )
    missing = {name: value for name, value in DEFAULTS.items() if name not in url.query}
    url = url.set(drivername="postgresql+psycopg").update_query_dict(missing)
    reader = create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        pool_size=READERS,
        max_overflow=MOST_READERS - READERS,
        pool_pre_ping=True,
    )
    return Database(
        url=without_password(url),
        writer=_careful(create_engine(url, pool_size=1, max_overflow=0)),
        reader=reader,
        lock=AdvisoryLock(_careful(create_engine(url, poolclass=NullPool))),
        file=DatabaseFile(None),
    )


def _careful(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def settle(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute(CAREFUL)
        cursor.close()
        connection.commit()

    return engine


def without_password(url: URL) -> str:
    """The URL for messages: without secrets, and without what we added."""
    bare = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    return bare.difference_update_query(["password", "sslpassword", *DEFAULTS]).render_as_string()


_TAKE = text("SELECT pg_try_advisory_lock(:ours, hashtext(current_schema()))")
_END_HOLDER = text("""
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND classid = CAST(:ours AS oid)
    AND objid = CAST(hashtext(current_schema()) AS oid)
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
""")
_END_WRITERS = text("""
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE relation = to_regclass('ledger') AND mode IN ('RowShareLock', 'RowExclusiveLock')
    AND granted AND pid <> pg_backend_pid()
""")
_OURS = 0x7261_696C  # "rail": the first half of the key of our advisory locks


class AdvisoryLock:
    """A lock of PostgreSQL on a connection of its own: the server frees it when that one ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None

    def take(self) -> bool:
        self.release()
        connection = self._engine.connect()
        try:
            is_ours = bool(connection.scalar(_TAKE, {"ours": _OURS}))
        except BaseException:
            _drop(connection)
            raise
        if is_ours:
            self._connection = connection
        else:
            _drop(connection)
        return is_ours

    def end_former(self) -> None:
        with self._engine.connect() as connection:
            connection.execute(_END_WRITERS)

    def seize(self) -> bool:
        """End the session that holds it."""
        with self._engine.connect() as connection:
            connection.execute(_END_HOLDER, {"ours": _OURS})
        return self.take()

    def is_held(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self.release()
            return False
        return True

    def release(self) -> None:
        if self._connection is not None:
            _drop(self._connection)
            self._connection = None


def _drop(connection: Connection) -> None:
    """End the session itself: one that went back to a pool would keep the lock."""
    with contextlib.suppress(SQLAlchemyError):
        connection.invalidate()
    connection.close()
