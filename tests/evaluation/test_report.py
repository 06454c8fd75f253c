"""The report's files: the same bytes for the same scores, nothing fetched, and no scores it cannot show."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.published.page import compose
from tests.evaluation.made_up import (
    CONTENDERS,
    SEEDS,
    SUITE,
    SWITCHING,
    made_up,
    order,
    score,
)
from trainmaster.evaluation.report import ReportError, write_report
from trainmaster.evaluation.report.page import Compose, report_files
from trainmaster.evaluation.score import FailedTrial, Score, ScoredTrial, Skipped, SuiteResult
from trainmaster.evaluation.scores_json import from_json, to_json
from trainmaster.evaluation.suite import Contender, ContenderRole, Generated, Suite, Workload

VOID = {"meta", "br", "wbr"}


class Balance(HTMLParser):
    """Checks that every element is closed, and notes what would be fetched and where links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.anchors += [value or "" for name, value in attrs if name == "id"]
        self.fetched += [value or "" for name, value in attrs if name == "src"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


DRAWN = (".pdf", ".png")


def files(result: SuiteResult, compose: Compose | None = compose) -> dict[str, str]:
    """The published report's files by name, the page and the Markdown checked for soundness."""
    found = [each for each in report_files(result, compose) if not each.name.endswith(DRAWN)]
    made = {each.name: each.content.decode() for each in found}
    page = made["index.html"]
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    assert balance.fetched == []
    assert len(set(balance.anchors)) == len(balance.anchors)
    assert {link.removeprefix("#") for link in balance.links} <= set(balance.anchors)
    for value in re.findall(r'="([^"]*)"', page):
        assert not re.search(r"\b(nan|inf|None)\b", value)
    for name, text in made.items():
        if name.endswith(".svg"):
            ElementTree.fromstring(text)
    linked = re.findall(r"\]\((figures/[^)]+)\)", made["README.md"])
    assert sorted(linked) == sorted(name for name in made if name.startswith("figures/"))
    _check_tables(made["README.md"])
    return made


def _check_tables(markdown: str) -> None:
    for table in re.findall(r"(?:^\|.*\n?)+", markdown, re.M):
        lines = table.strip().split("\n")
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1, lines[0]


def result_of(*contenders: Contender, scores: dict[str, Sequence[Score]]) -> SuiteResult:
    """One comparison whose scores are given by label, one per seed."""
    number = max(len(found) for found in scores.values())
    experiment = order(
        workloads=(Workload("w", Generated(800, 0.9), "16x4", tuple(range(number))),),
        contenders=contenders,
        baseline=contenders[0].label,
    )
    suite = Suite("s", "S", (experiment,))
    scored = [
        ScoredTrial(trial, scores[trial.contender.label][trial.seed], 1.0)
        for trial in suite.trials()
        if trial.seed < len(scores[trial.contender.label])
    ]
    return SuiteResult(suite, tuple(scored))


SMALL = Suite("small", "An experiment and a sweep", (order(), SWITCHING))
"""Enough for what does not depend on how much there is."""


@pytest.fixture(scope="module")
def small() -> dict[str, str]:
    return files(made_up(SMALL))


@pytest.fixture(scope="module")
def whole() -> dict[str, str]:
    return files(made_up(SUITE))


def test_the_same_scores_give_the_same_bytes_however_long_they_took(small: dict[str, str]) -> None:
    again = made_up(SMALL)
    slower = replace(again, scored=tuple(replace(each, wall_s=99.0) for each in again.scored))
    found = [each for each in report_files(slower, compose) if not each.name.endswith(DRAWN)]
    assert {each.name: each.content.decode() for each in found} == small


def test_the_report_has_every_section_and_figure(whole: dict[str, str]) -> None:
    headings = re.findall(r"^## (.*)$", whole["README.md"], re.M)
    assert headings == [
        "The goal for `trainmaster`",
        "Who wins where",
        "Order only: rigid jobs, ideal conditions",
        "With locality and the cost of switching",
        "Sweeps",
        "Experiments from the papers",
        "Ablations",
        "The published orderings",
        "What each part is worth",
        "Why jobs waited",
        "Methods",
    ]
    figures = {name for name in whole if name.startswith("figures/")}
    assert {
        "figures/overall-goal.svg",
        "figures/load.svg",
        "figures/concurrency-jct-by-concurrency.svg",
    } <= figures


def test_a_user_s_report_has_no_case_of_ours() -> None:
    made = files(made_up(SUITE), None)
    headings = re.findall(r"^## (.*)$", made["README.md"], re.M)
    assert headings == [
        "Who wins where",
        "Order only: rigid jobs, ideal conditions",
        "With locality and the cost of switching",
        "Sweeps",
        "Experiments from the papers",
        "Ablations",
        "Why jobs waited",
        "Methods",
    ]
    assert "goal" not in made["index.html"].partition("</style>")[2]


def test_the_published_report_is_rebuilt_from_the_scores_beside_it(small: dict[str, str]) -> None:
    result = made_up(SUITE)
    again = from_json(to_json(result), lambda name: SUITE)
    assert again.scored == tuple(replace(each, wall_s=0.0) for each in result.scored)
    assert files(from_json(to_json(made_up(SMALL)), lambda name: SMALL)) == small


def test_page_and_markdown_number_the_same_tables_and_figures(whole: dict[str, str]) -> None:
    def numbered(text: str, pattern: str) -> list[str]:
        return re.findall(pattern, text)

    on_page = numbered(whole["index.html"], r"<b>((?:Table|Figure) \d+)\.</b>")
    in_markdown = numbered(whole["README.md"], r"\*\*((?:Table|Figure) \d+)\.\*\*")
    assert on_page == in_markdown
    assert len(set(on_page)) == len(on_page) > 10


def test_the_csv_has_a_line_per_trial(whole: dict[str, str]) -> None:
    lines = list(csv.DictReader(io.StringIO(whole["scores.csv"])))
    assert len(lines) == sum(1 for _ in SUITE.trials())
    assert lines[0]["contender"] == "trainmaster"
    assert lines[0]["cost"] == ""
    assert lines[0]["is_transient"] == "no"
    assert float(lines[0]["excess_s"]) > 0


def test_results_under_overload_are_labelled_transient(whole: dict[str, str]) -> None:
    assert re.search(r"\| load 1\.2 \|.*1\.2\d\d, transient \|", whole["README.md"])
    assert not re.search(r"\| load 0\.9 \|.*transient", whole["README.md"])


def test_a_sweep_of_conditions_is_drawn_over_its_numbers(whole: dict[str, str]) -> None:
    drawn = whole["figures/switching.svg"]
    assert "switch cost (s) (equal steps)" in drawn
    assert re.findall(r">(\d+)</text>", drawn)[:4] == ["0", "10", "60", "300"]


def test_names_are_shown_and_never_obeyed() -> None:
    nasty = Contender('<script>alert("x")</script> | *a* `b`', "las", {"k|": "`<v>`"})
    result = result_of(
        nasty,
        Contender("fifo", "fifo"),
        scores={nasty.label: [score(500.0)], "fifo": [score(900.0)]},
    )
    made = files(result)
    assert "<script>" not in made["index.html"]
    assert "<script>" not in "".join(t for name, t in made.items() if name.endswith(".svg"))
    assert "&lt;script&gt;" in made["index.html"]


def test_one_seed_without_blocks_has_no_intervals_and_says_so() -> None:
    made = files(
        result_of(
            Contender("las", "las"),
            Contender("fifo", "fifo"),
            scores={"las": [score(500.0)], "fifo": [score(900.0)]},
        )
    )
    assert "One trace each, so there are no intervals." in made["README.md"]
    assert "| fifo | 1.80 |" in made["README.md"]


def test_unfinished_jobs_leave_a_bound_instead_of_a_mean() -> None:
    unfinished = replace(
        score(900.0),
        mean_jct_s=None,
        passed_jct_s=None,
        excess_s=None,
        p50_s=None,
        p95_s=None,
        p99_s=None,
        max_s=None,
        std_s=None,
        queue_s=None,
        makespan_s=None,
        rho_p99=None,
        rho_over_1=None,
        rho_max=None,
        unfinished=3,
        lower_bound_s=7_200.0,
    )
    made = files(
        result_of(
            Contender("las", "las"),
            Contender("fifo", "fifo"),
            scores={"las": [score(500.0)] * 2, "fifo": [unfinished, score(900.0)]},
        )
    )
    row = next(line for line in made["README.md"].split("\n") if line.startswith("| fifo | –"))
    assert "≥ 101 min" in row
    assert "at least what is shown" in made["README.md"]


def test_what_was_skipped_and_what_failed_is_listed() -> None:
    result = made_up(Suite("s", "S", (order(),)))
    trial = result.scored[0].trial
    result = replace(
        result,
        skipped=(Skipped("order", "philly-82k", "philly/philly-82k.csv is not there"),),
        failures=(FailedTrial(trial, "the policy raised"),),
    )
    text = files(result)["README.md"]
    assert "- order, philly-82k: philly/philly-82k.csv is not there" in text
    assert "the policy raised" in text
    assert "2 skipped or failed" in text


def test_an_empty_campaign_is_still_a_report() -> None:
    made = files(SuiteResult(SUITE, ()))
    assert "There is nothing to compare." in made["index.html"]


def test_a_contender_that_missed_some_comparisons_is_left_out_there() -> None:
    result = made_up(SMALL)
    kept = tuple(
        each
        for each in result.scored
        if each.trial.contender.label != "las" or each.trial.workload.name != "philly1k"
    )
    text = files(replace(result, scored=kept))["README.md"]
    assert "The goal for" in text


def test_a_negative_excess_is_shown_and_judged_in_seconds() -> None:
    ours = Contender("trainmaster", "trainmaster", role=ContenderRole.OURS)
    grown = result_of(
        Contender("las", "las"),
        ours,
        scores={"las": [score(-100.0)] * 3, "trainmaster": [score(-300.0)] * 3},
    )
    text = files(grown)["README.md"]
    assert "\N{MINUS SIGN}5 min" in text
    assert "| met |" in text
    assert "| contender | mean JCT ratio |" in text


def test_the_report_is_written_into_a_directory_with_its_figures(tmp_path: Path) -> None:
    result = made_up(Suite("s", "S", (order(),)))
    page = write_report(result, tmp_path / "out")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = write_report(result, tmp_path / "out")
    assert again == page
    assert (tmp_path / "out/figures/order.svg").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="it is a file"):
        write_report(result, tmp_path / "file")


def test_a_report_replaces_an_earlier_one_and_leaves_the_files_of_others(tmp_path: Path) -> None:
    write_report(made_up(SMALL), tmp_path)
    (tmp_path / "figures/mine.svg").write_text("<svg/>")
    write_report(made_up(Suite("s", "S", (order(),))), tmp_path)
    left = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert left == ["mine.svg", "order.pdf", "order.png", "order.svg"]


def test_seeds_and_contenders_are_what_the_suite_says(whole: dict[str, str]) -> None:
    assert "| generated | 800 | 64 | 0.90" in whole["README.md"]
    assert f"means over {len(SEEDS)} seeds" in whole["README.md"]
    for contender in CONTENDERS:
        assert f"| {contender.label} |" in whole["README.md"].replace("**", "")


def test_wins_in_sweeps_alone_make_a_report_too() -> None:
    cut = replace(score(1.0), excess_s=None, mean_jct_s=None, rho_p99=None, unfinished=1)
    judged = order(workloads=(Workload("w", Generated(8, 0.9), "1x4"),), contenders=CONTENDERS[1:4])
    swept = order(
        name="sweep",
        track="sweep",
        workloads=judged.workloads,
        contenders=CONTENDERS[4:6],
        baseline="tiresias-l",
    )
    suite = Suite("s", "S", (judged, swept))
    scored = [
        ScoredTrial(trial, cut if trial.experiment == "order" else score(500.0), 1.0)
        for trial in suite.trials()
    ]
    made = files(SuiteResult(suite, tuple(scored)))
    assert "There is nothing to compare." in made["README.md"]


def test_negligible_ratios_are_marked_and_explained_on_page_and_in_markdown(
    whole: dict[str, str],
) -> None:
    contenders = (
        Contender("las", "las"),
        Contender("ours", "trainmaster", role=ContenderRole.OURS),
        Contender("fifo", "fifo"),
    )
    scores = {"las": [score(20.0)], "ours": [score(2.0)], "fifo": [score(2_000.0)]}
    made = files(result_of(*contenders, scores=scores))
    note = "\N{DAGGER} Negligible: both excesses are below 1 % of the mean JCT."
    for name in ("README.md", "index.html"):
        assert "0.10\N{DAGGER}" in made[name]
        assert "100\N{DAGGER}" not in made[name], "fifo's jobs wait"
        assert note in made[name]
        assert "\N{DAGGER}" not in whole[name]
    marked = [line for line in made["README.md"].split("\n\n") if "\N{DAGGER}" in line]
    captions = [each for each in marked if note in each]
    assert 2 * len(captions) == len(marked), "every marked table has the note, and no other"
