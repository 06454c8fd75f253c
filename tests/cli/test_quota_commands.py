"""Limits, budgets, prices and usage on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import node_list, node_row
from tests.cli.counterpart import Counterpart, refusal, serving
from tests.cli.test_live_commands import QUEUE, Tm


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        yield counterpart


BUDGET: dict[str, Any] = {
    "gpu_hours": 500.0,
    "per": "week",
    "when_used_up": "suspend",
    "starting": None,
    "used_gpu_hours": 420.5,
    "used_ratio": 0.841,
    "began_s": 1.0,
    "renews_s": None,
    "warning": "84 % of the budget of queue vision is used; it is not renewed.",
}
LIMITED = {**QUEUE, "max_gpus_per_user": 4, "budget": BUDGET}
ADA = {
    "user": "ada",
    "max_gpus": 8,
    "max_running": None,
    "max_jobs": 20,
    "budget": None,
    "gpus": 2,
    "running": 1,
    "jobs": 3,
}


def test_what_is_left_out_keeps_its_value_and_none_takes_it_back(
    tm: Tm, daemon: Counterpart
) -> None:
    daemon.on("GET", "/queues", {"queues": [LIMITED]})
    daemon.on("PUT", "/queues/vision", LIMITED)
    said = tm("queue set vision --max-jobs-per-user 20 --budget 600h")
    assert said.code == 0, said.err
    assert "gpus per user 4" in said.out
    assert "budget 420.5 of 500 h per week" in said.out
    assert "running jobs are suspended" in said.out
    tm("queue set vision --budget none --max-gpus-per-user none")
    tm("queue set vision --per month --starting 2026-10-01")
    first, second, third = daemon.bodies("PUT", "/queues/vision")
    kept = {"weight": 2, "guaranteed_gpus": 4, "allow_unpreemptible": True}
    assert first == kept | {
        "max_gpus_per_user": 4,
        "max_jobs_per_user": 20,
        "budget": {"gpu_hours": 600.0, "per": "week", "when_used_up": "suspend"},
    }
    assert second == kept
    assert third["budget"] == {
        "gpu_hours": 500.0,
        "per": "month",
        "when_used_up": "suspend",
        "starting": "2026-10-01",
    }


def test_lists_show_what_is_used_and_warn(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/queues", {"queues": [LIMITED]})
    said = tm("queues")
    assert "gpus per user" in said.out
    assert "420.5 of 500 h per week" in said.out
    assert said.err == f"Warning: {BUDGET['warning']}\n"
    daemon.on("GET", "/user-limits", {"limits": [ADA]})
    daemon.on("GET", "/users", refusal(403, "forbidden", "Only admins may."))
    said = tm("user list")
    assert said.out.splitlines()[1].split() == ["ada", "-", "-", "2", "8", "1", "-", "3", "20"]


def test_limits_of_a_user(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/user-limits", {"limits": [ADA]})
    daemon.on("PUT", "/user-limits/ada", ADA)
    said = tm("user set ada --max-running 4 --budget 100 --per month")
    assert said.out == "ada: max gpus 8, max jobs 20.\n"
    assert daemon.bodies("PUT", "/user-limits/ada") == [
        {
            "max_gpus": 8,
            "max_running": 4,
            "max_jobs": 20,
            "budget": {"gpu_hours": 100.0, "per": "month"},
        }
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "queue set vision --maximum few",
            "--maximum `few` is not a number: write one, or `none`.",
        ),
        ("queue set vision --budget lots", "--budget must be a length of time such as"),
        ("queue set vision --per week", "--per needs a --budget, such as 500h."),
        ("user set ada", "say what to set: --role, --max-gpus"),
        ("price set H200", "`H200` is not a price: write H200=3.20, or H200=none."),
        ("history --by user", "--by and --until are for --usage."),
        ("history --usage --limit 3", "--usage sums up all jobs"),
    ],
)
def test_mistakes_are_one_sentence(tm: Tm, daemon: Counterpart, line: str, sentence: str) -> None:
    daemon.on("GET", "/queues", {"queues": [QUEUE]})
    daemon.on("GET", "/prices", {"prices": {}, "currency": ""})
    said = tm(line)
    assert said.code == 2
    assert sentence in said.err


def test_what_all_use_is_not_shown_beside_the_limits_of_each(tm: Tm, daemon: Counterpart) -> None:
    everybody = {**ADA, "user": "*", "max_gpus": 2, "gpus": 77, "running": 55, "jobs": 66}
    daemon.on("GET", "/user-limits", {"limits": [everybody, ADA]})
    daemon.on("GET", "/users", {"users": []})
    rows = {line.split()[0]: line.split()[1:] for line in tm("user list").out.splitlines()[1:]}
    assert not {"77", "55", "66"} & {*rows["*"]}
    assert "2" in rows["*"]
    assert rows["ada"][-6:] == ["2", "8", "1", "-", "3", "20"]


def test_prices_are_added_and_taken_back(tm: Tm, daemon: Counterpart) -> None:
    known = {"prices": {"A100": 1.1, "V100": 0.3}, "currency": "EUR"}
    daemon.on("GET", "/prices", known)
    daemon.on("PUT", "/prices", known)
    assert "EUR per GPU-hour" in tm("price").out
    daemon.on("GET", "/nodes", node_list(node_row("n0", "H200")))
    said = tm("price set H200=3.20 V100=none")
    assert (said.code, said.err) == (0, "")
    assert "no node has a GPU type H2000; did you mean H200?" in tm("price set H2000=3.20").err
    assert daemon.bodies("PUT", "/prices")[0] == {
        "prices": {"A100": 1.1, "H200": 3.2},
        "currency": "EUR",
    }


def test_usage_as_a_table_and_as_csv(tm: Tm, daemon: Counterpart, tmp_path: Path) -> None:
    names = ("user", "queue", "job", "gpu_type", "outcome", "begin_s", "lost_to")
    none = dict.fromkeys(names)
    row = none | {
        "jobs": 2,
        "gpu_s": 9000.0,
        "gpu_hours": 2.5,
        "lost_gpu_hours": 0.5,
        "cost": 7.5,
        "unpriced_gpu_hours": 0.25,
    }
    report = {
        "by": "queue",
        "since_s": 0.0,
        "until_s": 9.0,
        "currency": "EUR",
        "rows": [row | {"queue": "vision"}],
        "total": row,
    }
    daemon.on("GET", "/usage", report)
    said = tm("history --usage --by queue --since 30d --until 1d")
    assert [line.split() for line in said.out.splitlines()[1:]] == [
        ["vision", "2", "2.50", "0.50", "7.50"],
        ["total", "2", "2.50", "0.50", "7.50"],
    ]
    assert "0.25 GPU-hours had no price" in said.err
    daemon.on("GET", "/usage", {**report, "total": {**row, "unpriced_gpu_hours": 0.004}})
    assert "had no price" not in tm("history --usage --by queue").err, "0.00 of them"
    lost = {**report, "by": "lost-to", "rows": [row | {"lost_to": "preemption"}]}
    daemon.on("GET", "/usage", lost)
    assert ["preemption", "2", "2.50", "0.50", "7.50"] in [
        line.split() for line in tm("history --usage --by lost-to").out.splitlines()
    ]
    daemon.on("GET", "/usage", report)
    line = ",vision,,,2,2.5,0.5,7.5,EUR,0.25"
    assert tm("history --usage --csv -").out.splitlines()[1] == line
    bill = tmp_path / "bill.csv"
    assert tm(f"history --usage --csv {bill}").out == ""
    assert bill.read_text().splitlines()[1] == line
    said = tm(f"history --usage --csv {tmp_path}/none/bill.csv")
    assert said.code == 2
    assert "there is no directory" in said.err
    assert json.loads(tm("history --usage --json").out) == report
