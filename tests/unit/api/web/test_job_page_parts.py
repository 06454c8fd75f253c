"""What the page of a job is made of: lines of output, links, actions, the job file as text."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from trainmaster.api.web.job.allowed_actions import Action, allowed_actions
from trainmaster.api.web.job.job_text import NotYaml, as_yaml, for_copy, from_yaml
from trainmaster.api.web.job.log_text import MOST_HELD, MOST_OF_LINE, LogText
from trainmaster.api.web.job.run_links import RunLink, links_in
from trainmaster.api.web.parts.plain_text import shown, shown_lines
from trainmaster.model.job_state import ENDED_STATES

LINES = {
    "plain": ([b"a\nb\n"], ["a", "b"], ""),
    "in pieces": ([b"st", b"ep \xe2", b"\x82", b"\xac\nx"], ["step \N{EURO SIGN}"], "x"),
    "colours": ([b"\x1b[1;31mred\x1b[0m\x1b]0;title\x07!\n"], ["red!"], ""),
    "links": ([b"\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\\n"], ["text"], ""),
    "progress bar": ([b"\r 10%", b"\r 20%", b"\r 30%"], [], " 30%"),
    "ended progress bar": ([b" 10%\r", b" 20%\r\nnext\r\n"], [" 20%", "next"], ""),
    "control characters": ([b"a\x00b\x07\n"], ["a\\x00b\\x07"], ""),
    "direction": (["\u202egnp.exe\n".encode()], ["\\u202egnp.exe"], ""),
    "not UTF-8": ([b"\xff\xfe\n"], ["\ufffd\ufffd"], ""),
    "tabs": ([b"a\tb\n"], ["a       b"], ""),
}


@pytest.mark.parametrize(("pieces", "want", "rest"), LINES.values(), ids=LINES)
def test_output_becomes_lines(pieces: list[bytes], want: list[str], rest: str) -> None:
    text = LogText()
    assert [line for piece in pieces for line in text.take(0, piece)] == want
    assert text.unfinished() == rest


def test_a_line_without_an_end_is_cut_and_not_held() -> None:
    text = LogText(names=True)
    for _ in range(50):
        assert text.take(3, b"x" * 100_000) == []
    assert len(text._ranks[3].rest) == MOST_HELD
    assert text.unfinished().endswith("(5,000,000 characters)")
    (line,) = text.take(3, b"\n")
    assert line == f"[3] {'x' * MOST_OF_LINE}\N{HORIZONTAL ELLIPSIS} (5,000,000 characters)"
    assert text.take(3, b"short\n") == ["[3] short"]


LINKS = {
    "wandb: \N{ROCKET} View run fine-7 at https://wandb.ai/ada/x/runs/a1": RunLink(
        "https://wandb.ai/ada/x/runs/a1"
    ),
    "View run big at: http://mlflow.local:5000/#/experiments/1": RunLink(
        "http://mlflow.local:5000/#/experiments/1"
    ),
    "TensorBoard 2.17.0 at http://localhost:6006/ (Press CTRL+C to quit)": RunLink(
        "http://localhost:6006/", 6006
    ),
    "View run x at javascript:alert(1)": None,
    "View run x at https://wandb.ai@evil.example/": None,
    "View run x at http://w\u0430ndb.ai/": None,
    "View run x at http://host:port/": None,
    "see https://example.org": None,
}


@pytest.mark.parametrize(("line", "want"), LINKS.items())
def test_runs_are_found_in_the_output(line: str, want: RunLink | None) -> None:
    assert links_in(["step 1", line, line]) == ([want] if want else [])


def a_job(state: str, transition: str | None = None, by: str = "", why: str = "") -> Any:
    return SimpleNamespace(
        state=state,
        has_ended=state in ENDED_STATES,
        transition=transition,
        suspended_by=by or None,
        reason=SimpleNamespace(code=why) if why else None,
    )


A = Action
ACTIONS = {
    "pending": (a_job("pending", why="NotEnoughFree"), [A.SUSPEND, A.CHANGE, A.CANCEL]),
    "held": (a_job("pending", why="Held"), [A.RESUME, A.CHANGE, A.CANCEL]),
    "running": (a_job("running"), [A.SUSPEND, A.SAVE, A.MOVE, A.CHANGE, A.CANCEL]),
    "stopping": (a_job("running", "stopping"), [A.CANCEL]),
    "suspended by its owner": (a_job("suspended", by="user"), [A.RESUME, A.CHANGE, A.CANCEL]),
    "suspended by the policy": (a_job("suspended", by="policy"), [A.SUSPEND, A.CHANGE, A.CANCEL]),
    "failed": (a_job("failed"), []),
}


@pytest.mark.parametrize(("job", "want"), ACTIONS.values(), ids=ACTIONS)
def test_a_state_allows_its_actions_and_a_viewer_none(job: Any, want: list[Action]) -> None:
    assert list(allowed_actions(job, may_change=True)) == want
    assert allowed_actions(job, may_change=False) == ()


SPECS: list[dict[str, Any]] = [
    {"command": ["python", "train.py"], "gpus": "2-8", "env": {"A": "true", "B": 1}},
    {"command": "set -e\npython a.py\n", "array": "0-9%2", "max_runtime": "1:30:00"},
    {"command": "echo '\u202e' \"<b>\" \x1b", "name": "no", "umask": "022"},
]


@pytest.mark.parametrize("spec", SPECS, ids=json.dumps)
def test_a_job_file_comes_back_from_its_text(spec: dict[str, Any]) -> None:
    assert from_yaml(as_yaml(spec)) == spec


BILLION = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
"""387,420,489 values in 277 characters."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command: [", "line 1: this is not YAML"),
        ("command: a\n---\ncommand: b\n", "several"),
        ("just text", "This is no job file"),
        ("1: 2", "This is no job file"),
        ("command: x\x00", "NUL"),
        ("env: &a {A: b}\ncommand: [*a]", "aliases"),
        ("[" * 2_000, "This is not YAML"),
        ("command: " + "x" * 70_000, "more than 64 KiB"),
        (BILLION, "too many values"),
    ],
)
def test_what_a_form_cannot_show_is_said(text: str, said: str) -> None:
    with pytest.raises(NotYaml, match=said):
        from_yaml(text)
    assert from_yaml("# nothing yet\n") == {}


def test_a_very_large_job_file_is_written_without_a_wait() -> None:
    spec = {"command": "x", "env": {f"NAME_{n}": "a\nb" for n in range(20_000)}}
    before_s = time.process_time()
    text = as_yaml(spec)
    assert time.process_time() - before_s < 1
    assert json.loads(text) == spec


def test_a_star_alone_is_no_alias() -> None:
    assert from_yaml("command: 'ls *a'\n") == {"command": "ls *a"}


def test_hidden_values_are_not_copied() -> None:
    spec = {"command": "x", "user": "ada", "env": {"HF_TOKEN": "***", "LR": "0.1"}}
    assert for_copy(spec) == ({"command": "x", "env": {"LR": "0.1"}}, ["HF_TOKEN"])
    assert for_copy({"command": "x", "env": {"A": "(hidden)"}}) == ({"command": "x"}, ["A"])


def test_text_of_users_is_shown_as_text() -> None:
    assert shown("a\u202eb\x1b[1m\nc") == "a\\u202eb\\x1b[1m\\x0ac"
    assert len(shown("x" * 9_000)) == 500
    assert shown_lines("a\n\tb\u202e") == "a\n    b\\u202e"
