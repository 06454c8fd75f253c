"""Errors of databases in plain words: those that no test can provoke for real as well."""

from __future__ import annotations

import sqlite3

import psycopg.errors
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError

from trainmaster.store.errors import (
    POSTGRES,
    SQLITE,
    UNKEEPABLE,
    WORDS,
    StoreError,
    readable_errors,
    trouble,
)


def of_sqlite(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (of_sqlite("SQLITE_FULL"), "free some space"),
        (of_sqlite("SQLITE_IOERR_WRITE"), "check its disk"),
        (of_sqlite("SQLITE_READONLY_DBMOVED"), "is read-only"),
        (of_sqlite("SQLITE_BUSY_RECOVERY"), "locked by another program"),
        (of_sqlite("SQLITE_ERROR"), "cannot be used: what SQLite says"),
        (psycopg.errors.DiskFull(), "is full: free some space on the server's disk"),
        (psycopg.errors.OutOfMemory(), "lacks memory or disk"),
        (psycopg.errors.InvalidPassword(), "refuses the user or the password"),
        (psycopg.errors.CannotConnectNow(), "is shutting down or starting"),
        (psycopg.errors.SerializationFailure(), "busy with another transaction"),
        (psycopg.errors.DataCorrupted(), "see the server's log"),
        (psycopg.errors.QueryCanceled(), "raise the server's statement_timeout"),
        (psycopg.errors.NumericValueOutOfRange(), UNKEEPABLE),
        (psycopg.errors.UndefinedTable("no table"), "cannot be used: no table"),
        (psycopg.OperationalError("timeout expired"), "does not answer"),
        (psycopg.OperationalError('too many connections for role "a"'), "takes no more"),
        (psycopg.OperationalError("the line is dead\nDETAIL"), "(the line is dead)"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_wrong_and_what_to_do(error: Exception, says: str) -> None:
    assert says in trouble(OperationalError("SELECT 1", {}, error))


def test_every_sentence_says_what_to_do() -> None:
    for said in (*SQLITE.values(), *POSTGRES.values(), *WORDS.values(), UNKEEPABLE):
        assert ": " in said
        assert not said.endswith(".")


@pytest.mark.parametrize(
    "error", [DBAPIError("x", {}, ValueError("odd")), OSError(5, "Input/output error")]
)
def test_whatever_it_is_becomes_one_sentence(error: Exception) -> None:
    with (
        pytest.raises(StoreError, match=r"^The database db cannot be .*\.$"),
        readable_errors("db"),
    ):
        raise error


def test_our_own_sentences_pass() -> None:
    with pytest.raises(StoreError, match=r"^as it is$"), readable_errors("db"):
        raise StoreError("as it is")
