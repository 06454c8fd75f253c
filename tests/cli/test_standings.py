"""The tables of `trainmaster compare` on the screen, of made-up scores."""

from __future__ import annotations

import pytest
from rich.console import Console

from tests.evaluation.made_up import score
from tests.evaluation.test_report import campaign_of
from trainmaster.cli.standings import overview, show
from trainmaster.evaluation.report.comparisons import comparisons
from trainmaster.evaluation.suite import Contender, Standing

OURS = Contender("ours", "trainmaster", standing=Standing.OURS)
LAS = Contender("las", "las")


def shown(capsys: pytest.CaptureFixture[str], ours_s: float, las_s: float) -> str:
    show(campaign_of(LAS, OURS, scores={"ours": [score(ours_s)], "las": [score(las_s)]}))
    return capsys.readouterr().out


def test_contenders_are_compared_by_excess(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, 500.0, 1_000.0)
    assert "excess against las" in said
    assert "0.50" in said


def test_where_grown_jobs_make_an_excess_negative_they_are_compared_by_mean_jct(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown(capsys, -1_000.0, 1_000.0)
    assert "mean JCT against las" in said
    assert "0.60" in said
    assert "\N{MINUS SIGN}16.7 min" in said


def test_many_comparisons_have_a_line_each_that_says_what_was_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = campaign_of(LAS, OURS, scores={"ours": [score(-1_000.0)], "las": [score(1_000.0)]})
    console = Console(width=200)
    console.print(overview(comparisons(found)))
    said = capsys.readouterr().out
    assert "0.60 of mean JCT" in said
    assert "\N{MINUS SIGN}16.7 min" in said


def test_rejected_jobs_are_counted_and_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    choosy = score(500.0, jobs=790, rejected=10)
    show(campaign_of(LAS, OURS, scores={"ours": [choosy], "las": [score(1_000.0)]}))
    said = capsys.readouterr().out
    assert "rejected" in said
    assert "0.50" not in said
