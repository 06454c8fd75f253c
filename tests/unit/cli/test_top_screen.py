"""The drawing of `trainmaster top`: the grid of GPUs, the letters of jobs, and the plain snapshot."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from tests.cli.answers import job_row, node_row
from trainmaster.cli.top import top
from trainmaster.cli.top_screen.cluster_view import Choice, ClusterView
from trainmaster.cli.top_screen.gpu_grid import grid_lines, jobs_on
from trainmaster.cli.top_screen.job_letters import LETTERS, JobLetters
from trainmaster.cli.top_screen.snapshot_text import snapshot_text
from trainmaster.client.manager_api import ManagerApi
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import Failed
from trainmaster.text.control_characters import visible

EVIL = "\x1b]0;PWNED\x07[red]x\u202e"


def node(name: str, *jobs: str, **more: Any) -> dict[str, Any]:
    """A node: for each device the jobs on it, with commas between; `!`: set aside."""
    devices = [
        {
            "name": f"{name}:{at}",
            "jobs": [] if each in ("", "!") else each.split(","),
            "gpu": None,
            "set_aside": {"since_s": 0, "why": ""} if each == "!" else None,
        }
        for at, each in enumerate(jobs)
    ]
    return node_row(name, devices=devices, **more)


def drawn(nodes: list[dict[str, Any]], width: int = 80) -> list[str]:
    letters = JobLetters()
    letters.give(jobs_on(nodes))
    lines = ["".join(part.text for part in line) for line in grid_lines(nodes, letters, width)]
    assert all(len(line) <= width for line in lines)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("nodes", "width", "lines"),
    {
        "a gang over two nodes": (
            [node("n1", "7", "7", "9", ""), node("n2", "7", "", "", "")],
            80,
            ["n1 AAB.   n2 A..."],
        ),
        "shared, set aside, suspended": (
            [node("n1", "1,2", "!", "", frozen=["3", "4"])],
            80,
            ["n1 +!. z2"],
        ),
        "drained and away": (
            [node("a", "5", "", state="draining"), node("bc", "", "", state="away")],
            80,
            ["a  A-   bc !!"],
        ),
        "a narrow screen": (
            [node("n1", *"12"), node("n2", *"34"), node("n3", "", "")],
            13,
            ["n1 AB   n2 CD", "n3 .."],
        ),
        "a node wider than the screen": (
            [node("big", *[""] * 12)],
            10,
            ["big ......", "    ......"],
        ),
        "nodes of different sizes": (
            [node("n1", "", "", "", ""), node("n2", "")],
            80,
            ["n1 ....   n2 ."],
        ),
        "no node": ([], 80, []),
    }.values(),
)
def test_the_grid(nodes: list[dict[str, Any]], width: int, lines: list[str]) -> None:
    assert drawn(nodes, width) == lines


def test_a_job_keeps_its_letter_and_a_free_letter_is_not_given_again_soon() -> None:
    letters = JobLetters()
    letters.give(["1", "2"])
    assert (letters.of("1"), letters.of("2"), letters.of("3")) == ("A", "B", " ")
    letters.give(["2", "3"])
    assert (letters.of("1"), letters.of("2"), letters.of("3")) == (" ", "B", "C")


def test_with_more_jobs_than_letters_each_has_one() -> None:
    letters = JobLetters()
    many = [str(number) for number in range(3 * len(LETTERS))]
    letters.give(many)
    assert {letters.of(job) for job in many} == set(LETTERS)


def status(**more: Any) -> dict[str, Any]:
    counts = {"running": 1, "pending": 3, "suspended": 0}
    own = {"role": "active", "trouble": None, "notes": [], "policy": "fifo", "device_type": "H100"}
    return own | {"used": 2, "devices": 4, "jobs": counts} | more


def queue(name: str) -> dict[str, Any]:
    limits = {"parent": None, "guaranteed_gpus": 2, "maximum_gpus": None}
    return {"name": name, "gpus": 2, "running": 1, "pending": 3, "suspended": 0} | limits


def view(*jobs: dict[str, Any], **more: Any) -> ClusterView:
    rows = [JobRow.from_json(each) for each in jobs]
    return ClusterView(
        status(**more), [node("n0", "1", "1", "", "")], [queue("default")], rows, False
    )


WAITS = {
    "nodes": [],
    "devices": [],
    "start_s": None,
    "waiting_s": 90.0,
    "reason": {
        "code": "NotEnoughFree",
        "sentence": "It needs 4 GPUs and 2 are free.",
        "held_by": (),
        "need": 4,
        "free": 2,
        "until_s": None,
    },
}


def element(index: int) -> dict[str, Any]:
    return job_row(
        f"3_{index}", "pending", array="3", array_index=index, name=f"s_{index}", **WAITS
    )


def test_the_snapshot_has_grid_jobs_and_queues() -> None:
    jobs = (job_row("1"), job_row("2", "pending", **WAITS), element(0), element(1))
    said = snapshot_text(view(*jobs), Choice(), 100).splitlines()
    assert said[0] == "2 of 4 GPUs in use   1 running, 3 pending, 0 suspended   fifo"
    assert said[2] == "n0 AA.."
    rows = [line.split() for line in said[5:9]]
    assert rows[0] == [
        "id",
        "name",
        "user",
        "state",
        "gpus",
        "time",
        "progress",
        "where",
        "or",
        "why",
    ]
    assert rows[1] == ["A", "1", "job-1", "ada", "running", "2", "2m05s", "-", "n0"]
    assert " ".join(rows[2]) == "2 job-2 ada pending 2 1m30s - It needs 4 GPUs and 2 are free."
    assert rows[3][:4] == ["3_[0-1]", "s", "ada", "2"]
    assert said[-1].split() == ["default", "-", "2", "2", "-", "1", "3", "0"]


def test_a_snapshot_fits_80_columns_and_keeps_why_jobs_wait() -> None:
    said = snapshot_text(view(job_row("2", "pending", **WAITS)), Choice(), 80)
    assert max(map(len, said.splitlines()[2:])) <= 80
    assert "It needs 4 GPUs and 2 a" in said


def test_names_that_a_terminal_would_obey_are_codes() -> None:
    evil = {**WAITS, "reason": {**WAITS["reason"], "sentence": f"Job {EVIL} holds them.\nall"}}
    row = job_row("2", "pending", **{**evil, "name": EVIL, "user": EVIL})
    said = snapshot_text(view(row, notes=[EVIL], policy=EVIL), Choice(text=EVIL), 300)
    assert visible(said) == said
    assert r"\x1b]0;PWNED\x07[red]x\u202e" in said
    assert r"holds them.\x0aall" in said


def test_what_does_not_work_stands_below_the_headline() -> None:
    said = snapshot_text(view(notes=["The store is full."]), Choice(), 80).splitlines()
    assert said[1] == "The store is full."
    assert "No job of all jobs." not in said


def test_an_empty_list_says_so() -> None:
    assert "No jobs." in snapshot_text(view(), Choice(), 80)
    said = snapshot_text(view(), Choice(only_mine=True, text="bert"), 80)
    assert "None of my jobs with bert in name or id." in said


def test_a_standby_says_what_it_is() -> None:
    said = snapshot_text(view(policy=None, role="standby"), Choice(), 80)
    assert said.startswith("This manager is a standby: it runs no jobs now.")


def test_without_textual_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("trainmaster.cli.top.find_spec", lambda _: None)
    with pytest.raises(Failed, match=r"pip install 'trainmaster\[tui\]'"):
        top(cast(ManagerApi, None))
