"""Small things that a new user stumbled over: what commands say, refuse and leave alone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import job_details, job_list, job_row
from tests.cli.conftest import Tm
from tests.cli.counterpart import Answer, Counterpart, serving
from trainmaster.cli.support.format import ago, left_jobs, lost
from trainmaster.cli.support.notes import Notes, reason_key
from trainmaster.daemon.job_rows import JobRow
from trainmaster.text.formatting import size


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        yield counterpart


# -- outputs -------------------------------------------------------------------------------------------


def archive(**files: str) -> Answer:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return Answer(200, made.getvalue(), "application/x-tar")


def has_written(daemon: Counterpart, **files: str) -> None:
    listed = [{"path": name, "size": len(text), "at_s": 1.0} for name, text in files.items()]
    daemon.on("GET", "/jobs/bert/outputs", {"folder": "/copy", "files": listed})
    daemon.on("GET", "/jobs/bert/outputs/archive", archive(**files))
    daemon.on("GET", "/jobs/bert", job_details("12", "succeeded"))


def test_outputs_replace_nothing_unless_forced(tm: Tm, folder: Path, daemon: Counterpart) -> None:
    has_written(daemon, a="new", b="new", c="new", d="new", e="new")
    (folder / "back").mkdir()
    for name in "bcde":
        (folder / "back" / name).write_text("mine")
    said = tm("outputs bert --to back")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "Error: back has b, c, d and 1 more already, and nothing was fetched: name another folder with"
        " --to, or replace them with --force.\n"
    )
    assert not (folder / "back" / "a").exists()
    assert (folder / "back" / "b").read_text() == "mine"
    assert tm("outputs bert --to back --force").out == "Fetched 5 files to back.\n"
    assert (folder / "back" / "b").read_text() == "new"


@pytest.mark.parametrize("force", ["", " --force"])
@pytest.mark.parametrize(
    ("blocked", "sentence"),
    [
        ("back", "back is not a folder"),
        ("back/deep", "back/deep is not a folder"),
        ("back/z/", "back/z is a folder"),
    ],
)
def test_outputs_write_nothing_where_a_file_is_in_the_way(
    tm: Tm, folder: Path, daemon: Counterpart, blocked: str, sentence: str, force: str
) -> None:
    has_written(daemon, **{"a": "new", "deep/model": "new", "z": "new"})
    if blocked.endswith("/"):
        (folder / blocked).mkdir(parents=True)
    else:
        (folder / blocked).parent.mkdir(exist_ok=True)
        (folder / blocked).write_text("mine")
    said = tm(f"outputs bert --to back{force}")
    assert (said.code, said.out) == (2, "")
    assert f"{sentence}, and nothing was fetched: name another folder with --to." in said.err
    assert not (folder / "back" / "a").exists()


def test_outputs_of_two_jobs_of_one_name_are_kept_apart(
    tm: Tm, folder: Path, daemon: Counterpart
) -> None:
    has_written(daemon, model="1")
    assert tm("outputs bert").out == "Fetched 1 file to outputs-12.\n"
    assert (folder / "outputs-12" / "model").read_text() == "1"


def test_a_size_has_the_unit_that_fits() -> None:
    sizes = (1, 700, 3 << 10, 98 << 20, 3 << 29)
    assert [size(each) for each in sizes] == ["1 byte", "700 bytes", "3 KiB", "98 MiB", "1.5 GiB"]


# -- waiting -------------------------------------------------------------------------------------------


def waiting(sentence: str, code: str = "NotEnoughFree", **more: Any) -> JobRow:
    reason = {"code": code, "sentence": sentence, "held_by": ["3"], "need": 2, "free": 1, **more}
    return JobRow.from_json(job_row("5", "pending", reason=reason))


def test_a_reason_is_said_once_while_only_its_times_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = Notes()
    rows = [waiting(f"Job 3 may be suspended in {left} s.") for left in (19, 18, 17)]
    rows += [waiting("2 are free.", free=2), waiting("Job 3 goes first.", "BehindOthers")]
    for row in rows:
        notes(row.why, reason_key(row))
    assert capsys.readouterr().err.splitlines() == [
        *("Job 3 may be suspended in 19 s.", "2 are free.", "Job 3 goes first.")
    ]


# -- words ---------------------------------------------------------------------------------------------


def test_set_says_what_was_typed(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("PATCH", "/jobs/5", job_row("5"))
    assert tm("set 5 preemptible=false").out == "Job 5: preemptible false.\n"


def test_states_are_words_for_people(tm: Tm, daemon: Counterpart) -> None:
    known = {
        "role": "active",
        "trouble": None,
        "notes": [],
        "version": "1",
        "pid": 1,
        "folder": "/f",
    }
    known |= {"database": "d", "policy": "fifo", "devices": 2, "used": 0, "device_type": "slot"}
    daemon.on("GET", "/status", known | {"jobs": {"running": 0, "timed_out": 2}})
    assert "2 timed out" in tm("status").out


def test_an_array_is_listed_by_its_name(tm: Tm, daemon: Counterpart) -> None:
    summary = {"jobs": 1, "states": {}, "unsuccessful": [], "sentence": "1 job."}
    daemon.on("GET", "/jobs/sweep", job_details("7", elements=summary))
    daemon.on("GET", "/jobs/alone", job_details("8"))
    daemon.on("GET", "/jobs", job_list(job_row("7_0", array="7", array_index=0)))
    assert "7_0" in tm("ps --array sweep").out
    assert daemon.asked[-1].query["array"] == "7"
    said = tm("ps --array alone")
    assert (said.code, "alone is a job and not an array" in said.err) == (2, True)


@pytest.mark.parametrize("line", ["NOT_SET_ANYWHERE", "1X=3", "=3"])
def test_a_bad_line_of_an_env_file_is_named(tm: Tm, folder: Path, line: str) -> None:
    (folder / "e.env").write_text(f"A=1\n{line}\n")
    said = tm("run -d --env-file e.env -- true")
    assert said.code == 2
    assert said.err.startswith("Error: e.env, line 2: ")


def test_next_to_nothing_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 100.0)
    assert (ago(99.6), ago(98.0)) == ("just now", "2s ago")
    assert lost(0.4) == "-"


def test_jobs_that_wait_do_not_go_on() -> None:
    assert left_jobs(0, 1) == "1 job waits"
    assert left_jobs(2, 1) == "2 jobs go on, 1 waits"
