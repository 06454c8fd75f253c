"""Secrets by reference: private files only, and nothing of a value in what a program prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.engines.local.logs import RankLog
from trainmaster.engines.local.secret_files import (
    Mask,
    SecretProblem,
    problem_sentence,
    read_secrets,
)

VALUE = "w-secret-123"


def a_file(path: Path, content: str = f"{VALUE}\n", mode: int = 0o600) -> str:
    path.write_text(content)
    path.chmod(mode)
    return str(path)


def test_a_private_file_is_read_without_its_line_break(tmp_path: Path) -> None:
    assert read_secrets({"KEY": a_file(tmp_path / "key")}) == {"KEY": VALUE}


@pytest.mark.parametrize(
    ("make", "want"),
    {
        "others may read it": (lambda path: a_file(path, mode=0o644), "chmod 600"),
        "it is not there": (str, "does not exist"),
        "it is empty": (lambda path: a_file(path, "\n"), "is not a text"),
        "it is too large": (lambda path: a_file(path, "x" * 70_000), "is not a text"),
        "it is a pipe": (lambda path: os.mkfifo(path, 0o600) or str(path), "is not a text"),
    }.values(),
)
def test_any_other_is_refused_with_its_name(tmp_path: Path, make: object, want: str) -> None:
    files = {"FIRST": a_file(tmp_path / "first"), "KEY": make(tmp_path / "key")}  # type: ignore[operator]
    with pytest.raises(SecretProblem) as problem:
        read_secrets(files)
    said = problem_sentence(files, problem.value.code)
    assert want in said
    assert "the secret KEY" in said


@pytest.mark.parametrize("size", range(1, 2 * len(VALUE)))
def test_a_value_is_hidden_however_it_is_cut_into_pieces(size: int) -> None:
    text = f"a {VALUE}{VALUE} w-sec w-secret-12 {VALUE}".encode()
    mask = Mask([VALUE])
    pieces = [mask.hide(text[at : at + size]) for at in range(0, len(text), size)]
    assert b"".join((*pieces, mask.rest())) == b"a ****** w-sec w-secret-12 ***"


def test_lines_of_a_value_are_hidden_and_short_ones_are_not() -> None:
    mask = Mask(["first-line\nsecond-line", "abc"])
    assert mask.hide(b"second-line abc.") == b"*** abc."


def test_a_log_holds_nothing_back_at_its_end(tmp_path: Path) -> None:
    log = RankLog(str(tmp_path / "log"), 1000, 2)
    log.hide([VALUE])
    log.write(f"{VALUE} w-sec".encode())
    log.close()
    assert (tmp_path / "log").read_text() == "*** w-sec"
