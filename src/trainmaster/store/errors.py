"""Errors of databases, as one sentence that says what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolExhausted


class StoreError(Exception):
    """The store cannot be used now: one sentence that says why and what to do."""


class BadAddress(StoreError):
    """What names the database makes no sense."""


class StoreAway(StoreError):
    """The database's server cannot be reached: it may be there again later."""


class DamagedStore(StoreError):
    """The database's file is damaged."""


class MigrationFailed(StoreError):
    """The tables could not be brought up to date: waiting does not help."""


class LeadershipLost(StoreError):
    """Another manager is the leader now: this one must not write any more."""


SQLITE = {
    "SQLITE_FULL": "is full, or its disk is: free some space",
    "SQLITE_READONLY": "is read-only: give this user the right to write to it and to its folder",
    "SQLITE_BUSY": "is locked by another program: close that one",
    "SQLITE_LOCKED": "is locked by another program: close that one",
    "SQLITE_PROTOCOL": "is locked by another program: close that one",
    "SQLITE_CORRUPT": (
        "is damaged: stop the manager and start `trainmaster up --adopt`, which keeps it under another"
        " name, puts the newest copy in its place and takes over what runs"
    ),
    "SQLITE_NOTADB": (
        "is not an SQLite database: name another file; if it was the manager's own, start"
        " `trainmaster up --adopt`"
    ),
    "SQLITE_CANTOPEN": "cannot be opened: check that this user may read it and write to its folder",
    "SQLITE_PERM": "cannot be opened: check that this user may read it and write to its folder",
    "SQLITE_AUTH": "cannot be opened: check that this user may read it and write to its folder",
    "SQLITE_IOERR": "cannot be read or written: check its disk",
    "SQLITE_NOMEM": "needs more memory than there is: free some",
    "SQLITE_TOOBIG": "cannot store a text this long: shorten what was submitted",
}
"""By the beginning of SQLite's own name for the error."""
DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")

POSTGRES = {
    "28": "refuses the user or the password: correct them in the URL",
    "3D": "does not exist on the server: create it, or name another",
    "42501": "does not let this user do that: grant it all rights on the database",
    "42P07": "has tables of the same names by another program: give Trainmaster a database of its own",
    "25006": "is read-only: name the primary server",
    "53100": "is full: free some space on the server's disk",
    "53300": "takes no more connections: close some, or raise max_connections",
    "53": "lacks memory or disk: free some on the server",
    "55P03": "is locked by another program: end its transaction",
    "40": "was busy with another transaction: it is tried again",
    "57014": "reached its own time limit: raise the server's statement_timeout",
    "57P01": "lost the connection, which the server ended: check the server",
    "57": "is shutting down or starting: wait for the server",
    "08": "lost the connection: check the server and the network",
    "XX": "reports damage or an internal error: see the server's log",
}
"""By the beginning of PostgreSQL's code for the error; the longest that fits is taken."""

WORDS = {
    "too many clients": POSTGRES["53300"],
    "too many connections": POSTGRES["53300"],
    "password authentication failed": POSTGRES["28"],
    "no password supplied": POSTGRES["28"],
    "no pg_hba.conf entry": "does not let this user in from here: allow it in pg_hba.conf",
    "role": POSTGRES["28"],
    "does not exist": POSTGRES["3D"],
    "refused": "does not answer (connection refused): start the server, or correct the URL",
    "no such file or directory": "does not answer: start the server, or correct the URL",
    "translate host name": "is on an unknown host: correct the URL",
    "resolve host": "is on an unknown host: correct the URL",
    "timeout expired": "does not answer: check the server and the network",
    "timed out": "does not answer: check the server and the network",
    "starting up": POSTGRES["57"],
    "shutting down": POSTGRES["57"],
    "invalid connection option": "has an unknown setting in its URL: correct the URL",
}
"""By words in PostgreSQL's message, the first that fits: a connection that failed to begin has no code."""

UNKEEPABLE = "cannot store this: a number is too large, or a text has invalid characters"


@contextmanager
def readable_errors(url: str) -> Iterator[None]:
    """Turn any error of the database into a StoreError."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OverflowError, UnicodeError) as error:
        kind = StoreAway if is_away(error) else DamagedStore if is_damage(error) else StoreError
        raise kind(f"The database {url} {trouble(error)}.") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"The database {url} {SQLITE['SQLITE_FULL']}.") from error
        raise StoreError(
            f"The database {url} cannot be reached ({error.strerror}): check that this user may"
            " read it and write to its folder."
        ) from error


def is_away(error: BaseException) -> bool:
    """Whether no connection to a server could be made, or it is ending or starting."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    code: str = getattr(error.orig, "sqlstate", None) or ""
    if not code:
        return type(error.orig).__name__ == "OperationalError"
    return code.startswith(("08", "53", "57"))


def is_its_own(error: BaseException) -> bool:
    """Whether this is a trouble of the database itself (locked, full, away), and not of a statement."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return (getattr(cause, "sqlite_errorname", None) or "").startswith(tuple(SQLITE))
    if not isinstance(error, DBAPIError):
        return isinstance(error, (PoolExhausted, OSError))
    code: str = getattr(cause, "sqlstate", None) or ""
    return not code or code[:5] in POSTGRES or code[:2] in POSTGRES


def is_damage(error: BaseException) -> bool:
    """Whether SQLite cannot read its own file."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code: str = getattr(cause, "sqlite_errorname", None) or ""
    return isinstance(cause, sqlite3.Error) and code.startswith(DAMAGED)


def trouble(error: BaseException) -> str:
    """What is wrong and what to do, to follow `The database X `."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(error, PoolExhausted):
        return "has too many requests at once: try again"
    if isinstance(cause, (OverflowError, UnicodeError)):
        return UNKEEPABLE
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    if isinstance(error, DBAPIError):
        return _of_postgres(error)
    return f"cannot be used: {first_line(error)}"


def first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _of_sqlite(cause: sqlite3.Error) -> str:
    code: str = getattr(cause, "sqlite_errorname", None) or ""
    for begin, words in SQLITE.items():
        if code.startswith(begin):
            return words
    if isinstance(cause, sqlite3.IntegrityError):
        return f"refuses what does not fit together: {first_line(cause)}"
    return f"cannot be used: {first_line(cause)}"


def _of_postgres(error: DBAPIError) -> str:
    cause = error.orig
    code: str = getattr(cause, "sqlstate", None) or ""
    for length in (5, 2):
        if code and code[:length] in POSTGRES:
            return POSTGRES[code[:length]]
    if code.startswith("23"):
        return f"refuses what does not fit together: {first_line(cause)}"
    if code.startswith("22") or type(cause).__name__ == "DataError":
        return UNKEEPABLE
    said = str(cause).lower()
    if not code:
        for words, answer in WORDS.items():
            if words in said:
                return answer
        if error.connection_invalidated or type(cause).__name__ == "OperationalError":
            return f"lost the connection ({first_line(cause)}): check the server and the network"
    return f"cannot be used: {first_line(cause)}"
