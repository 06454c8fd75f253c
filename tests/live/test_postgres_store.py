"""What goes wrong with PostgreSQL servers: a real one, stopped, restarted, refusing, full, locked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.contract.stores import JOB, batch, job, step, tell_postgres, wait_until
from tests.live import postgres
from trainmaster.store import postgres as settings
from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.open import open_store
from trainmaster.store.store import Store

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def own_server() -> Iterator[postgres.Server]:
    """A server of our own, which tests stop."""
    try:
        with postgres.server() as running:
            yield running
    except postgres.Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")


@pytest.fixture
def server(own_server: postgres.Server) -> Iterator[postgres.Server]:
    """It runs again afterwards, with an empty database `trains`."""
    tell_postgres(own_server.url("postgres"), "CREATE DATABASE trains")
    yield own_server
    own_server.stop()
    own_server.start()
    tell_postgres(own_server.url("postgres"), "DROP DATABASE IF EXISTS trains WITH (FORCE)")


@pytest.fixture
def store(server: postgres.Server) -> Iterator[Store]:
    with closing(open_store(server.url("trains"))) as found:
        assert found.acquire_leadership()
        found.append([batch(1, JOB)])
        yield found


def sentence(action: Callable[[], object]) -> str:
    """The one sentence that a failing action says, which says what to do."""
    with pytest.raises(StoreError) as caught:
        action()
    said = str(caught.value)
    assert re.fullmatch(r"[^\n]*: [^\n]*\.", said), said
    assert not isinstance(caught.value, LeadershipLost)
    return said


def lead(url: str) -> None:
    """Open a store and use it; one that is away is opened all the same, so that a manager can wait for it."""
    with closing(open_store(url)) as found:
        found.acquire_leadership()


def test_a_server_that_is_down(server: postgres.Server) -> None:
    server.stop()
    for url in (server.url("trains"), server.url_by_password("trains")):
        said = sentence(lambda url=url: lead(url))
        assert "does not answer" in said
        assert "start the server, or correct the URL" in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("not-a-secret", "wrong"), "refuses the user or the password: correct them in the URL"),
        (("postgres:", "stranger:"), "refuses the user or the password: correct them in the URL"),
        (("/trains", "/elsewhere"), "does not exist on the server: create it, or name another"),
        (("127.0.0.1", "no.such.host.invalid"), "is on an unknown host: correct the URL"),
        (("/trains", "/trains?no_such_option=1"), "has an unknown setting in its URL"),
    ],
)
def test_a_url_that_is_wrong(server: postgres.Server, change: tuple[str, str], says: str) -> None:
    url = server.url_by_password("trains")
    with closing(open_store(url)) as right:
        assert right.url == url.replace(":not-a-secret", "")
    said = sentence(lambda: lead(url.replace(*change)))
    assert says in said
    assert "not-a-secret" not in said
    assert "wrong" not in said


def test_a_user_without_rights(server: postgres.Server) -> None:
    admin = server.url("trains")
    tell_postgres(admin, "CREATE ROLE guest LOGIN PASSWORD 'guest'")
    url = server.url_by_password("trains", "guest").replace("postgres:", "guest:", 1)
    url = url.replace("guestql:", "postgresql:")
    try:
        with closing(open_store(url)) as store:
            assert "does not let this user do that: grant it" in sentence(store.acquire_leadership)
            assert not store.is_leader()
    finally:
        tell_postgres(admin, "DROP ROLE guest")


def test_a_database_of_another_program(server: postgres.Server) -> None:
    tell_postgres(server.url("trains"), "CREATE TABLE jobs (colour text)")
    with closing(open_store(server.url("trains"))) as store:
        assert "give Trainmaster a database of its own" in sentence(store.acquire_leadership)


def test_a_server_that_only_reads(server: postgres.Server, store: Store) -> None:
    store.close()
    tell_postgres(
        server.url("postgres"), "ALTER DATABASE trains SET default_transaction_read_only = on"
    )
    with closing(open_store(server.url("trains"))) as reader:
        assert "is read-only: name the primary server" in sentence(reader.acquire_leadership)
        assert reader.job("1") == JOB


def test_a_restart_of_the_server_is_survived(server: postgres.Server, store: Store) -> None:
    """The call in the middle fails, the next one connects again; the same batch is appended."""
    server.stop()
    for _ in range(2):
        sentence(lambda: store.append([batch(2, job("2"))]))
    sentence(store.count)
    assert not store.is_leader()  # as far as can be told
    server.start()
    store.append([batch(2, job("2"))])
    assert store.is_leader()
    assert store.steps() == [step(1), step(2)]
    with closing(open_store(server.url("trains"))) as other:
        assert not other.acquire_leadership()  # the lock was taken back


def test_a_leader_that_another_followed_during_a_restart(
    server: postgres.Server, store: Store
) -> None:
    server.stop()
    sentence(lambda: store.append([batch(2, job("2"))]))
    server.start()
    with closing(open_store(server.url("trains"))) as other:
        assert other.acquire_leadership()
        with pytest.raises(LeadershipLost):
            store.append([batch(2, job("2"))])
        assert not store.is_leader()
        assert other.steps() == [step(1)]


def test_connections_that_the_server_cut(server: postgres.Server, store: Store) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'trains'"
    assert store.count() == {"pending": 1}
    tell_postgres(server.url("postgres"), cut)
    assert store.count() == {"pending": 1}  # a reader looks first whether its connection lives
    assert "lost the connection" in sentence(lambda: store.append([batch(2, job("2"))]))
    store.append([batch(2, job("2"))])
    assert store.is_leader()


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_longer: bool
) -> None:
    """The server commits, and the connection dies before it can say so."""
    import psycopg

    commit = psycopg.Connection.commit

    def cut_off(connection: psycopg.Connection[object]) -> None:
        commit(connection)
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    again = [batch(2, job("2")), batch(3, job("3"))]
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "commit", cut_off)
        assert "lost the connection" in sentence(lambda: store.append(again[:1]))
    assert store.job("2") == job("2")
    if is_longer:
        store.append(again)
    else:
        store.append(again[:1])
        store.append(again[1:])
    assert store.steps() == [step(1), step(2), step(3)]
    assert len(store.story("2")) == 1
    assert "the next one is 4" in sentence(lambda: store.append(again[:1]))


def test_a_row_that_another_program_holds(
    server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(settings, "CAREFUL", settings.CAREFUL.replace("'10000'", "'50'"))
    with (
        closing(open_store(server.url("trains"))) as store,
        closing(psycopg.connect(server.url("trains"))) as other,
    ):
        assert store.acquire_leadership()
        other.execute("SELECT * FROM ledger FOR UPDATE")
        said = sentence(lambda: store.append([batch(1, JOB)]))
        assert "is locked by another program: end its transaction" in said
        other.rollback()
        store.append([batch(1, JOB)])


def test_a_new_leader_does_not_wait_for_the_last_write_of_the_old_one(
    server: postgres.Server, store: Store
) -> None:
    """It holds the ledger while it writes: not led yet, and not deposed in the middle either."""
    import psycopg

    url = server.url("trains")
    with closing(psycopg.connect(url)) as old:
        old.execute("UPDATE ledger SET last_seq = last_seq")
        store.close()
        with closing(open_store(url)) as new:
            assert not new.acquire_leadership()
            old.rollback()
            assert new.acquire_leadership()


def test_no_more_connections(server: postgres.Server) -> None:
    admin = server.url("postgres")
    tell_postgres(admin, "CREATE ROLE narrow LOGIN SUPERUSER CONNECTION LIMIT 1")
    tell_postgres(admin, "ALTER DATABASE trains CONNECTION LIMIT 0")
    tell_postgres(admin, "ALTER ROLE narrow NOSUPERUSER")
    url = server.url("trains").replace("postgres@", "narrow@")
    assert "takes no more connections" in sentence(lambda: lead(url))
    tell_postgres(admin, "DROP ROLE narrow")


def test_schemas_of_one_database_have_leaders_of_their_own(server: postgres.Server) -> None:
    url = server.url("trains")
    tell_postgres(url, "CREATE SCHEMA other")
    with (
        closing(open_store(url)) as one,
        closing(open_store(url + "&options=-csearch_path%3Dother")) as two,
    ):
        assert one.acquire_leadership()
        assert two.acquire_leadership()
        one.append([batch(1, JOB)])
        assert two.count() == {}


def test_many_threads_share_the_connections(store: Store) -> None:
    with ThreadPoolExecutor(64) as threads:
        assert set(threads.map(lambda _: store.job("1"), range(300))) == {JOB}


def test_sessions_end_with_the_store(server: postgres.Server, store: Store) -> None:
    store.count()
    store.close()
    sessions = "SELECT 1 FROM pg_stat_activity WHERE datname = 'trains'"
    wait_until(lambda: not tell_postgres(server.url("postgres"), sessions))
