"""Deadlines through the command line: the page's worked example, number by number."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FIG7, Tm

DOCS = Path(__file__).parents[2] / "docs"
PAGE, REPORT_PAGE = DOCS / "deadlines.md", DOCS / "report.md"
FIELDS = {
    *("deadline_s", "deadline_verdict", "predicted_finish_s", "feasible_deadline_s"),
    *("deadline_met", "warned_s"),
}
RUN = "simulate trace.csv --cluster 1x2 --perf ideal --policy las,./punctual.py"


@pytest.fixture
def example(folder: Path) -> Path:
    """The page's files, written where the command runs."""
    for name, body in re.findall(
        r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", PAGE.read_text(), flags=re.DOTALL
    ):
        (folder / name).write_text(body)
    return folder


def as_on_the_page() -> dict[str, list[object]]:
    """The table: by job, the cells as JSON would have them."""
    rows = re.findall(r"^\| (\w+) \|(.*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    words = {"": None, "true": True, "false": False}
    found = {}
    for name, cells in rows[1:] if rows[0][0] == "job" else rows:
        texts = [cell.strip() for cell in cells.split("|")]
        found[name] = [
            words[text] if text in words else float(text) if text.isdigit() else text
            for text in texts
        ]
    return found


COLUMNS = (
    *("deadline_s", "deadline_verdict", "feasible_deadline_s", "predicted_finish_s", "finish_s"),
    *("deadline_met", "warned_s"),
)


@pytest.mark.usefixtures("example")
def test_the_json_has_what_the_page_says(tm: Tm) -> None:
    las, punctual = tm(f"{RUN} --json -").results()
    found = {job["job_id"]: [job[key] for key in COLUMNS] for job in punctual["jobs"]}
    assert found == as_on_the_page()
    assert {job["deadline_verdict"] for job in las["jobs"]} == {"none"}
    assert [job["deadline_met"] for job in las["jobs"]].count(True) == 2


@pytest.mark.usefixtures("example")
def test_the_terminal_sums_them_up(tm: Tm) -> None:
    said = tm(RUN).out
    for line in re.findall(r"^deadlines under .*$", PAGE.read_text(), flags=re.MULTILINE):
        assert line in said
    alone = tm("simulate trace.csv --cluster 1x2 --perf ideal --policy ./punctual.py").out
    assert "\ndeadlines: 4 asked, 3 accepted, 3 met; 1 declined; 0 late without warning" in alone


WITH_OTHERS = """\
job_id,submit_s,gpus,duration_s,deadline_s
soon,0,1,100,300
huge,0,64,100,300
after,5000,1,100,300
"""


@pytest.mark.usefixtures("example")
def test_only_deadlines_of_jobs_that_came_and_were_taken_are_counted(tm: Tm, folder: Path) -> None:
    (folder / "others.csv").write_text(WITH_OTHERS)
    line = "simulate others.csv --cluster 1x2 --perf ideal --policy las,./punctual.py"
    said = tm(f"{line} --until-s 1000 --report out")
    assert "deadlines under las: 1 asked, none judged, 1 met" in said.out
    assert "deadlines under punctual: 1 asked, 1 accepted, 1 met; 0 declined;" in said.out
    page = (folder / "out/index.html").read_text()
    assert "</span>las</th><td>1</td>" in page.partition(">Deadlines</h2>")[2]
    las, _ = tm(f"{line} --until-s 1000 --json -").results()
    assert [job["deadline_met"] for job in las["jobs"]] == [True, None, None]
    later = tm(line).out
    assert "deadlines under las: 2 asked, none judged, 2 met" in later


def test_the_report_has_a_table_and_the_csv_the_fields(tm: Tm, example: Path) -> None:
    assert tm(f"{RUN} --report out").code == 0
    page = (example / "out/index.html").read_text()
    assert ">Deadlines</h2>" in page
    row = re.search(r"</span>punctual</th>((?:<td>\d+</td>)+)</tr>", page)
    assert row is not None
    assert re.findall(r"\d+", row[1]) == ["4", "3", "3", "0", "0", "1", "0", "3"]
    headers = [path.read_text().splitlines()[0] for path in (example / "out").rglob("*jobs*.csv")]
    assert headers
    assert all(set(header.split(",")) >= FIELDS for header in headers)


def test_every_part_of_the_report_is_on_its_page_of_the_docs(tm: Tm, example: Path) -> None:
    assert tm(f"{RUN} --report out").code == 0
    parts = re.findall(r"<h2[^>]*>(.*?)</h2>", (example / "out/index.html").read_text())
    described = re.findall(r"^\| ([^|]+) \|", REPORT_PAGE.read_text(), flags=re.MULTILINE)
    assert "Deadlines" in parts
    assert set(parts) <= set(described)


def test_what_had_to_be_taken_back_is_in_the_report(tm: Tm, example: Path) -> None:
    (example / "cluster.yaml").write_text(BREAKING)
    said = tm(
        "simulate trace.csv --cluster cluster.yaml --perf ideal --policy ./punctual.py --report out"
    )
    assert "0 late without warning" in said.out
    page = (example / "out/index.html").read_text()
    assert "What punctual had to take back" in page
    assert re.search(r"<li>[\d:]+: \w+ will miss its deadline \(", page)


BREAKING = """\
nodes:
  - {name: n1, gpus: 2}
changes:
  - {at_s: 2000, leave: n1}
  - {at_s: 9000, join: n1}
"""


def test_a_trace_without_deadlines_has_none_of_it(tm: Tm, folder: Path) -> None:
    (folder / "plain.csv").write_text(FIG7)
    said = tm("simulate plain.csv --cluster 1x2 --policy las --json - --report out")
    result: dict[str, Any] = json.loads(said.out)["results"][0]
    assert all(FIELDS.isdisjoint(job) for job in result["jobs"])
    assert "Deadlines" not in (folder / "out/index.html").read_text()
    assert "deadlines" not in tm("simulate plain.csv --cluster 1x2 --policy las").out
