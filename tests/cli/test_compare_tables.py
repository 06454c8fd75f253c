"""The tables of `trainmaster compare` on the screen, of made-up scores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.evaluation.made_up import SUITE, made_up, score
from tests.evaluation.test_report import result_of
from trainmaster.cli.support.compare_tables import overview, show
from trainmaster.evaluation.comparisons import comparisons
from trainmaster.evaluation.suite import Contender, ContenderRole

OURS = Contender("ours", "trainmaster", role=ContenderRole.OURS)
LAS = Contender("las", "las")


def shown(capsys: pytest.CaptureFixture[str], ours_s: float, las_s: float) -> str:
    show(result_of(LAS, OURS, scores={"ours": [score(ours_s)], "las": [score(las_s)]}))
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
    found = result_of(LAS, OURS, scores={"ours": [score(-1_000.0)], "las": [score(1_000.0)]})
    console = Console(width=200)
    console.print(overview(comparisons(found)))
    said = capsys.readouterr().out
    assert "0.60 of mean JCT" in said
    assert "\N{MINUS SIGN}16.7 min" in said


def test_rejected_jobs_are_counted_and_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    choosy = score(500.0, jobs=790, rejected=10)
    show(result_of(LAS, OURS, scores={"ours": [choosy], "las": [score(1_000.0)]}))
    said = capsys.readouterr().out
    assert "rejected" in said
    assert "0.50" not in said


# -- narrow screens ----------------------------------------------------------------------------------

MEASURES = ("mean JCT", "p99", "mean queueing", "utilisation", "preemptions")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


def many(capsys: pytest.CaptureFixture[str], *, is_wide: bool = False) -> str:
    rivals = [Contender(f"las for {n} hours", "las") for n in range(6)]
    scores = {each.label: [score(1_000.0)] for each in (LAS, OURS, *rivals)}
    show(result_of(LAS, OURS, *rivals, scores=scores), is_wide=is_wide)
    return capsys.readouterr().out


@pytest.mark.usefixtures("narrow")
def test_on_a_narrow_screen_a_few_contenders_stand_side_by_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys, 500.0, 1_000.0).splitlines()
    assert [line for line in lines if "las" in line and "ours" in line]
    for measure in MEASURES:
        assert [line for line in lines if line.strip().startswith(measure)]
    assert not [line for line in lines if "\N{HORIZONTAL ELLIPSIS}" in line]


@pytest.mark.usefixtures("narrow")
def test_where_many_contenders_leave_no_room_it_says_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, _, left_out = many(capsys).partition("Left out for want of room: ")
    assert "excess against las" in table
    assert "preemptions" not in table
    assert "preemptions" in left_out
    assert "--wide" in left_out
    assert all((measure in table) != (measure in left_out) for measure in MEASURES)


@pytest.mark.usefixtures("narrow")
def test_wide_shows_everything_whatever_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    said = many(capsys, is_wide=True)
    assert "Left out" not in said
    assert all(measure in said for measure in MEASURES)
    assert "\N{HORIZONTAL ELLIPSIS}" not in said


@pytest.mark.usefixtures("narrow")
def test_the_overview_cuts_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    show(made_up(SUITE))
    assert "\N{HORIZONTAL ELLIPSIS}" not in capsys.readouterr().out


# -- ratios of next to nothing -----------------------------------------------------------------------


def test_a_ratio_of_next_to_nothing_is_marked_and_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown(capsys, 2.0, 20.0)
    assert "0.10\N{DAGGER}" in said
    assert "\N{DAGGER} Negligible: both excesses are below 1 % of the mean JCT." in said


def test_other_ratios_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\N{DAGGER}" not in shown(capsys, 20.0, 200.0), "one of them waits"
    assert "\N{DAGGER}" not in shown(capsys, -1_000.0, 1_000.0), "not a ratio of excess"


def test_the_overview_marks_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    few = result_of(LAS, OURS, scores={"ours": [score(2.0)], "las": [score(20.0)]})
    (experiment,) = few.suite.experiments
    names = [f"again {n}" for n in range(7)]
    suite = replace(few.suite, experiments=tuple(replace(experiment, name=n) for n in names))
    scored = tuple(
        replace(each, trial=replace(each.trial, experiment=name))
        for name in names
        for each in few.scored
    )
    show(replace(few, suite=suite, scored=scored))
    said = capsys.readouterr().out
    assert said.count("0.10\N{DAGGER}") == 7
    assert said.count("Negligible") == 1
