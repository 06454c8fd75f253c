"""How live things are said and read: times, arrays, output of several ranks, escapes of a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from trainmaster.cli.explain import failure_lines, lines_of
from trainmaster.cli.support import format as words
from trainmaster.cli.support.output_lines import PrefixedLines
from trainmaster.cli.support.plain_table import STYLES, Coloured, PlainTable, fit_table
from trainmaster.cli.support.submit_request import environment_of
from trainmaster.cli.support.terminal import Escapes
from trainmaster.client.job_request import with_environment
from trainmaster.daemon.array_rows import ArrayRow, fold, ranges
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import BadInput


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (-3, "0s"),
        (59.9, "59s"),
        (61, "1m01s"),
        (3600, "1h00m"),
        (90061, "1d01h"),
    ],
)
def test_lengths_are_said_by_two_units(seconds: float | None, said: str) -> None:
    assert words.length_cell(seconds) == said


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172800),
        ("1:30", 5400),
        ("1:30:05", 5405),
    ],
)
def test_lengths_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert words.seconds_of(text, "--time") == seconds


@pytest.mark.parametrize("text", ["", "soon", "3x", "90", "1h and more", "-5", "1:2:3:4"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--time"):
        words.seconds_of(text, "--time")


def row(
    id: str, state: str = "pending", array: str | None = None, index: int | None = None
) -> JobRow:
    return JobRow.from_json({"id": id, "state": state, "array": array, "array_index": index})


def test_elements_of_an_array_are_folded_where_the_first_of_them_stood() -> None:
    rows = [row("9"), row("8_2", "running", "8", 2), row("7"), row("8_1", array="8", index=1)]
    nine, eight, seven = fold(rows)
    assert (nine, seven) == (rows[0], rows[2])
    assert isinstance(eight, ArrayRow)
    assert (eight.id, eight.state_words) == ("8_[1-2]", "1 pending, 1 running")


def test_a_folded_array_says_which_of_its_elements_hang() -> None:
    rows = [row(f"8_{n}", "running", array="8", index=n) for n in range(3)]
    hung = {"since_s": 1.0, "sentence": "No output for 12 min.", "stacks": [], "trouble": None}
    said = {"id": "8_3", "state": "running", "array": "8", "array_index": 3, "hung": hung}
    (array,) = fold([*rows, JobRow.from_json(said)])
    assert isinstance(array, ArrayRow)
    assert array.state_words == "4 running (1 hung)"
    assert array.where_or_why == "8_[3] hung."


def test_the_array_itself_is_not_listed_beside_its_elements() -> None:
    (only,) = fold([row("8"), row("8_0", array="8", index=0)])
    assert isinstance(only, ArrayRow)
    (alone,) = fold([row("8")])
    assert isinstance(alone, JobRow)


def test_ranges() -> None:
    assert ranges([5, 0, 1, 2, 9, 8]) == "0-2,5,8-9"
    assert ranges([]) == ""


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("succeeded", 0, 0),
        ("failed", 7, 7),
        ("failed", None, 1),
        ("failed", 0, 1),
        ("cancelled", None, 1),
        ("cancelled", 143, 143),
        ("timed_out", 143, 124),
    ],
)
def test_only_success_is_0(state: str, code: int | None, status: int) -> None:
    assert JobRow.from_json({"id": "1", "state": state, "exit_code": code}).exit_status == status


def test_lines_of_ranks_are_not_torn(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = PrefixedLines()
    for rank, text in ((0, b"one\ntw"), (1, b"eins\n"), (0, b"o\n"), (1, b"\xff no end")):
        lines.write(str(rank), text)
    lines.close()
    assert capfdbinary.readouterr().out == b"[0] one\n[1] eins\n[0] two\n[1] \xff no end\n"


def test_an_escape_counts_only_at_the_beginning_of_a_line() -> None:
    keys = Escapes()
    assert keys.feed(b"ls ~/x\r") == (b"ls ~/x\r", False)
    assert keys.feed(b"~~a") == (b"~a", False)
    assert keys.feed(b"~.") == (b"~.", False)
    assert keys.feed(b"\r") == (b"\r", False)
    assert keys.feed(b"~") == (b"", False)
    assert keys.feed(b"x") == (b"~x", False)
    assert keys.feed(b"\r~.never sent") == (b"\r", True)


def test_variables_come_from_files_options_and_this_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPIED", "here")
    monkeypatch.delenv("ABSENT", raising=False)
    file = tmp_path / "env"
    file.write_text("# a remark\n\nexport A=1\nB='two words'\nCOPIED\n")
    assert environment_of(["A=3", "C=x=y"], [file]) == {
        "A": "3",
        "B": "two words",
        "COPIED": "here",
        "C": "x=y",
    }
    with pytest.raises(BadInput, match="ABSENT"):
        environment_of(["ABSENT"], [])
    with pytest.raises(BadInput, match="no such file"):
        environment_of([], [tmp_path / "none"])


def test_programs_are_found_as_here_but_not_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/mine")
    monkeypatch.setenv("TRAINMASTER_USER", "ada")
    made = with_environment({"command": "x", "env": {"K": 1}})
    assert made["env"]["PATH"] == "/mine"
    assert (made["env"]["K"], made["user"], made["workdir"]) == ("1", "ada", str(tmp_path))
    assert "PATH" not in with_environment({"container": {"docker": "i"}})["env"]
    assert with_environment({"env": {"PATH": "/other"}, "workdir": "a"})["env"]["PATH"] == "/other"


def test_an_explanation_says_all_that_is_known() -> None:
    said = {
        "code": "NotEnoughFree",
        "sentence": "It needs 2 GPUs and 1 is free.",
        "numbers": {"need": 2.0, "free": 1, "largest_block": 1, "until_s": None},
        "held_by": [
            {
                "id": "4",
                "name": "bert",
                "user": "ada",
                "state": "running",
                "gpus": 1,
                "devices": ["n:0"],
            }
        ],
        "forecast": {"start_s": None, "basis": "nobody said how long"},
        "remarks": ["It cannot be resized."],
    }
    assert lines_of(said) == [
        "It needs 2 GPUs and 1 is free. (NotEnoughFree)",
        "GPUs: needed 2, free 1, free together 1.",
        "In the way:",
        "  job 4 bert of ada, running, holds n:0",
        "Expected start: not known (nobody said how long).",
        "Note: It cannot be resized.",
    ]


@pytest.mark.parametrize(
    ("state", "said"), [("running", "Last failure: x;"), ("failed", "Failure: x;")]
)
def test_a_failure_that_was_retried_is_not_the_end(state: str, said: str) -> None:
    failure = {"title": "x", "blame": "user", "rank": None, "path": None, "lines": [], "advice": ""}
    assert failure_lines({"state": state, "failure": failure})[0].startswith(said)


HEADINGS = ("id", "name", "user", "why")


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, ["id  name  user  why", "1   bert  ada   It needs 2 GPUs and 0 are free."]),
        (42, ["id  name  user  why", "1   bert  ada   It needs 2 GPUs and 0 are…"]),
        (36, ["id  name  why", "1   bert  It needs 2 GPUs and 0 are…"]),
    ],
)
def test_columns_give_way_before_sentences_are_lost(width: int, lines: list[str]) -> None:
    made = fit_table(
        HEADINGS, [("1", "bert", "ada", "It needs 2 GPUs and 0 are free.")], width, ["user"]
    )
    assert isinstance(made, PlainTable)
    assert made.text(width, {}).splitlines() == lines


def test_a_table_is_the_same_in_a_file_and_in_a_terminal_but_for_colours() -> None:
    rows = [
        ("1", Coloured("bert", "red"), "ada", "It needs 2 GPUs and 0 are free."),
        ("2", "模型", "ada", Coloured("vm", "green")),
        ("3", "x" * 50, "[bold]", "-"),
    ]
    made = fit_table(HEADINGS, rows, 70)
    assert isinstance(made, PlainTable)
    in_terminal = made.text(70, STYLES)
    assert "\x1b[31mbert\x1b[0m " in in_terminal
    assert "\x1b[32mvm\x1b[0m\n" in in_terminal
    assert re.sub(r"\x1b\[[0-9;]*m", "", in_terminal) == made.text(70, {})
    assert made.text(70, {}).splitlines() == [
        "id  name                              user    why",
        "1   bert                              ada     It needs 2 GPUs and 0 a…",
        "2   模型                              ada     vm",
        f"3   {'x' * 31}…  [bold]  -",
    ]


@pytest.mark.parametrize(
    ("width", "lines"),
    {
        50: ["id  name            user  why", "1   xxxxxxxxxxxxx…  ada   It needs 2 GPUs and 0 a…"],
        20: ["id  name  user  why", "1   xxx…  ada   It …"],
        9: ["id  name", "1   xxx…"],
    }.items(),
)
def test_no_line_is_wider_than_the_screen(width: int, lines: list[str]) -> None:
    made = fit_table(HEADINGS, [("1", "x" * 50, "ada", "It needs 2 GPUs and 0 are free.")], width)
    assert isinstance(made, PlainTable)
    assert made.text(width, {}).splitlines() == lines
    styled = made.text(width, STYLES).splitlines()
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in styled) <= width


def test_what_is_to_be_folded_is_whole() -> None:
    from rich.console import Console

    made = fit_table(
        HEADINGS, [("1", Coloured("bert", "red"), "a", "one two three four")], 24, folds=True
    )
    console = Console(width=24, record=True, file=io.StringIO())
    console.print(made)
    assert "".join(console.export_text().split()) == "idnameuserwhy1bertaonetwothreefour"


def test_next_to_nothing_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 100.0)
    assert (words.ago(99.6), words.ago(98.0)) == ("just now", "2s ago")
    assert words.lost(0.4) == "-"


def test_jobs_that_wait_do_not_go_on() -> None:
    assert words.left_jobs(0, 1) == "1 job waits"
    assert words.left_jobs(2, 1) == "2 jobs go on, 1 waits"
