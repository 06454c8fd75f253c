"""`outputs`: what is fetched, where it goes, and what it never replaces."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.answers import job_details
from tests.cli.conftest import Tm
from tests.cli.counterpart import Answer, Counterpart, serving


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        yield counterpart


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
