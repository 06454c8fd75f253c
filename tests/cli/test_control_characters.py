"""Names and texts of others that a terminal would obey: every command shows them as codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.answers import NOW, end, forecast, job_details, job_list, job_row, story_entry
from tests.cli.conftest import Tm
from tests.cli.counterpart import Counterpart, refusal, serving
from trainmaster.text.control_characters import UNSAFE, visible, visible_json, visible_line

C1 = "\x9b31mC1\x9d0;PWNED\x9c"
TITLE = "\x1b]0;PWNED\x07 \x1b[2J"
REVERSED = "train\u202egpj\u200b"
EVIL = {"name": C1, "user": REVERSED, "queue": TITLE}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        yield counterpart


def is_clean(text: str) -> bool:
    return visible(text) == text


@pytest.mark.parametrize("line", ["ps -a", "ps -a -o wide", "ps -a --json", "ps --each"])
def test_ps(tm: Tm, daemon: Counterpart, line: str) -> None:
    reason = {"code": "NotEnoughFree", "sentence": f"Job {C1} holds them.\nall"}
    daemon.on("GET", "/jobs", job_list(job_row("1", "pending", reason=reason, **EVIL)))
    said = tm(line)
    assert said.code == 0, said.err
    assert is_clean(said.out)
    assert "31mC1" in said.out
    if "--json" in line:
        assert json.loads(said.out)["jobs"][0]["name"] == C1
    else:
        assert r"\x9b31mC1\x9d0;PWNED\x9c" in said.out
    if "wide" not in line and "--json" not in line:
        assert len(said.out.splitlines()) == 2  # a line break in a cell makes no row


def test_show_and_explain(tm: Tm, daemon: Counterpart) -> None:
    command = f"echo {TITLE}"
    lines = {"last_lines": [TITLE, "\x1b[31mred"], "remarks": [C1]}
    ended = {"end_reason": end("Failed", f"It said {TITLE}."), "finish_s": NOW + 90, "exit_code": 1}
    details = job_details("1", "failed", **EVIL, **lines, **ended)
    details["spec"] = {"command": command, "workdir": f"/tmp/{C1}"}
    daemon.on("GET", "/jobs/1", details)
    said = tm("show 1")
    assert said.code == 0, said.err
    assert is_clean(said.out)
    assert r"\x1b]0;PWNED\x07 \x1b[2J" in said.out
    assert json.loads(tm("show 1 --json").out)["spec"]["command"] == command

    explanation = {
        "id": "1",
        "name": C1,
        "suspended_by": None,
        "array": None,
        "state": "failed",
        "code": "NotEnoughFree",
        "sentence": f"Job {C1} holds them.",
        "numbers": None,
        "held_by": [{"id": "2", "state": "running", "gpus": 1, "devices": [TITLE], **EVIL}],
        "forecast": forecast(None, TITLE),
        "end": None,
        "remarks": [REVERSED],
        "failure": None,
        "last_lines": [TITLE],
    }
    daemon.on("GET", "/jobs/1/explain", explanation)
    said = tm("explain 1")
    assert said.code == 0, said.err
    assert is_clean(said.out)
    assert r"train\u202egpj\u200b" in said.out


def test_story_and_history(tm: Tm, daemon: Counterpart) -> None:
    daemon.on(
        "GET",
        "/jobs/1/story",
        {"story": [story_entry(NOW, "submitted", f"Submitted as {C1}{TITLE}")]},
    )
    said = tm("story 1")
    assert r"Submitted as \x9b31mC1" in said.out
    assert is_clean(said.out)
    ended = job_row("1", "succeeded", finish_s=NOW + 90, exit_code=0, **EVIL)
    daemon.on("GET", "/jobs", job_list(ended))
    for line in ("history", "history --csv -", "history --json"):
        said = tm(line)
        assert said.code == 0, said.err
        assert is_clean(said.out)
        assert "31mC1" in said.out


def test_errors_notes_and_answers(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs/1", refusal(404, "no_such_job", f"There is no job {C1}{TITLE}."))
    said = tm("show 1")
    assert said.code == 1
    assert is_clean(said.err)
    assert r"\x1b]0;PWNED\x07" in said.err
    daemon.on("POST", "/jobs/1/cancel", job_row("1", "cancelled", **EVIL))
    assert is_clean(tm("cancel 1").out)
    said = tm("show", f"x{C1}")  # what is not there is named, also from one's own arguments
    assert is_clean(said.err)


def test_a_terminal_gets_styles_of_ours_and_nothing_else(daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", job_list(job_row("1", **EVIL)))
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "ps"],
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
        stdout=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:  # the end of a pseudo terminal
        pass
    os.close(ours)
    assert child.wait() == 0
    text = said.decode()
    assert "\x1b[1mid\x1b[0m" in text
    assert "\x1b]0" not in text
    assert "\x9b" not in text
    assert r"\x1b]0;PWNED" in text


def test_every_unsafe_character_becomes_a_code() -> None:
    every = "".join(sign for sign in map(chr, range(0x110000)) if visible_line(sign) != sign)
    for sign in (
        "\x1b",
        "\r",
        "\x7f",
        "\x9b",
        "\xad",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\U000e0041",
    ):
        assert sign in every
    assert is_clean(visible(every).replace("\n", "").replace("\t", ""))
    assert json.loads(visible_json(json.dumps("\x9b\u202e\U000e0041", ensure_ascii=False))) == (
        "\x9b\u202e\U000e0041"
    )
    assert (
        visible("two\nlines\tof text, größer, 日本語, 🚂")
        == "two\nlines\tof text, größer, 日本語, 🚂"
    )
    assert visible_line("a\nb") == r"a\x0ab"
    assert UNSAFE


def test_unicode_itself_says_the_same() -> None:
    """Every character that Unicode calls a control, a format sign or a separator of lines is one."""
    import unicodedata

    missed = [
        hex(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and visible_line(chr(code)) == chr(code)
    ]
    assert missed == []
