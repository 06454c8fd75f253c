"""An upgrade while jobs run: the earlier version is real, see tests/fixtures/versions/README.md."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, sweep, until
from tests.live.test_identity import is_running
from trainmaster.store import schema

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
EARLIER = ROOT / "tests" / "fixtures" / "versions" / "e34a038.tar.xz"
"""The manager and its supervisor of an earlier version, whose store has schema version 0001."""
SLOTS = ("--slots", "3")
BROKEN = f"""
from alembic import op

revision = "9001"
down_revision = "{schema.VERSIONS[-1]}"


def upgrade() -> None:
    op.execute("DELETE FROM stories")
    op.execute("UPDATE jobs SET name = 'wrong'")
    raise ValueError("a migration with a mistake")
"""


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    sweep(tmp_path)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    with tarfile.open(EARLIER) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return tmp_path / "earlier"


@pytest.fixture
def mistaken(tmp_path: Path) -> Path:
    """This version with one migration more, which fails half-way."""
    checkout = tmp_path / "mistaken"
    shutil.copytree(
        ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__", "templates")
    )
    place = checkout / "src" / "trainmaster" / "store"
    (place / "migrations" / "versions" / "v9001_mistake.py").write_text(BROKEN)
    text = (place / "schema.py").read_text()
    known = f'"{schema.VERSIONS[-1]}"'
    assert text.count(known) == 1
    (place / "schema.py").write_text(text.replace(known, f'{known}, "9001"'))
    return checkout


def rows(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """All of a store, as it is in the file."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in named}


def version(found: dict[str, list[tuple[object, ...]]]) -> object:
    return found[schema.VERSION_TABLE][0][0]


def refusal(data: Path, checkout: Path | None) -> str:
    """What a manager says that does not start."""
    (data / "out.txt").unlink(missing_ok=True)
    refused = LiveDaemon(data, *SLOTS, checkout=checkout)
    refused.start()
    assert refused.process is not None
    assert refused.process.wait(60) == 1
    said = " ".join((data / "out.txt").read_text().split())
    assert "Traceback" not in said
    return said


def test_jobs_run_through_an_upgrade_and_through_one_that_fails(
    data: Path, earlier: Path, mistaken: Path, tmp_path: Path
) -> None:
    ticking, store = Path(__file__).parent / "ticking.py", data / "trainmaster.db"
    job = {"workdir": str(tmp_path), "command": ["python3", str(ticking), "1000000", str(tmp_path)]}
    with live(data, *SLOTS, checkout=earlier) as old:
        ticks, sleeps = old.submit(**job), old.submit(command="sleep 3600", workdir="/tmp")
        stopped = old.submit(command="sleep 3600", workdir="/tmp")
        pids = {id: until(lambda id=id: old.job(id)["pids"], id) for id in (ticks, sleeps, stopped)}
        old.call("POST", f"/api/v1/jobs/{stopped}/suspend")
        old.until_state(stopped, "held", "suspended")
        waits = old.submit(command="true", workdir="/tmp", held=True)
        steps = until(lambda: old.job(ticks)["progress"], "the first progress")["step"]
        old.kill()
        before = rows(store)
        assert version(before) == "0001"
        assert version(before) != schema.VERSIONS[-1]

        said = refusal(data, mistaken)
        assert "could not be brought from schema version 0001 to 9001" in said
        assert "a migration with a mistake" in said
        assert "it is as it was, and jobs go on" in said
        assert rows(store) == before
        assert all(is_running(pid) for each in pids.values() for pid in each)

        (copy,) = (data / "backups").glob("schema-*.db")
        assert rows(copy) == before
        with live(data, *SLOTS) as new:
            assert str(copy) in (data / "out.txt").read_text()
            assert version(rows(store)) == schema.VERSIONS[-1]
            for id, state in ((ticks, "running"), (sleeps, "running"), (stopped, "suspended")):
                row = new.job(id)
                assert (row["state"], row["pids"], row["attempt"]) == (state, pids[id], 1), id
            assert new.job(waits)["state"] == "pending"
            until(lambda: new.job(ticks)["progress"]["step"] > steps + 3, "it to go on")
            new.call("POST", f"/api/v1/jobs/{stopped}/resume")
            assert new.until_state(stopped, "running")["pids"] == pids[stopped]
            new.kill()

            upgraded = rows(store)
            assert "newer Trainmaster" in refusal(data, earlier)
            assert rows(store) == upgraded
            assert all(is_running(pid) for each in pids.values() for pid in each)

            new.start()
            new.until_active()
            for id, known in pids.items():
                assert new.job(id)["pids"] == known
                new.call("POST", f"/api/v1/jobs/{id}/cancel")
                new.until_state(id, "cancelled")
                until(lambda known=known: not any(map(is_running, known)), "its processes to end")
    assert "TWICE" not in (tmp_path / "told.txt").read_text()
