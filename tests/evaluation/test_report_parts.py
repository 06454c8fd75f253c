"""Pieces of the report: claims, sweeps, winners, labels beside lines, words and units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.published.claims import (
    CLAIMS,
    ClaimOutcome,
    PublishedClaim,
    check_claims,
    claims_context,
)
from tests.evaluation.made_up import CONCURRENCY, SUITE, SWITCHING, made_up, score
from tests.evaluation.test_report import result_of
from trainmaster.evaluation.comparisons import Comparison, comparisons
from trainmaster.evaluation.number_format import (
    change_words,
    ratio_words,
    with_interval,
)
from trainmaster.evaluation.report.figures import SweptValues
from trainmaster.evaluation.report.ranking import records, wins
from trainmaster.evaluation.report.sweeps import setting_sweep, steps_of, sweeps
from trainmaster.evaluation.statistics import Basis, Interval, IntervalEstimate
from trainmaster.evaluation.suite import Contender, Suite
from trainmaster.report.rendering import markdown_words

LAS, FIFO = Contender("las", "las"), Contender("fifo", "fifo")


def found(las: list[float], fifo: list[float]) -> tuple[Comparison, ...]:
    return comparisons(
        result_of(
            LAS, FIFO, scores={"las": [score(v) for v in las], "fifo": [score(v) for v in fifo]}
        )
    )


@pytest.mark.parametrize(
    ("las", "fifo", "outcome"),
    {
        "held": ([1_000.0], [5_000.0], ClaimOutcome.HELD),
        "reversed": ([5_000.0], [1_000.0], ClaimOutcome.REVERSED),
        "a draw within one percent": ([1_000.0], [1_040.0], ClaimOutcome.DRAW),
        "a draw when the interval reaches over 1": (
            [1_000.0, 9_000.0, 1_000.0],
            [9_000.0, 1_000.0, 1_500.0],
            ClaimOutcome.DRAW,
        ),
    }.values(),
)
def test_a_claim_is_held_reversed_or_a_draw(
    las: list[float], fifo: list[float], outcome: ClaimOutcome
) -> None:
    (checked,) = check_claims(found(las, fifo), [PublishedClaim("las", "fifo", "somebody")])
    assert [each.outcome for each in checked.instances] == [outcome]


def test_a_fixed_trace_is_a_draw_where_its_blocks_do_not_part_the_two() -> None:
    las = score(2_000.0, excess_blocks_s=(0.0, 4_000.0) * 10)
    alike = score(2_400.0, excess_blocks_s=(4_800.0, 0.0) * 10)
    apart = score(2_400.0, excess_blocks_s=(400.0, 4_400.0) * 10)
    claim = PublishedClaim("las", "fifo", "somebody")
    for other, outcome in ((alike, ClaimOutcome.DRAW), (apart, ClaimOutcome.HELD)):
        made = comparisons(result_of(LAS, FIFO, scores={"las": [las], "fifo": [other]}))
        (checked,) = check_claims(made, [claim])
        assert [each.outcome for each in checked.instances] == [outcome]


@pytest.mark.parametrize(
    "claim",
    [
        PublishedClaim("las", "themis", "somebody"),
        PublishedClaim("las", "fifo", "somebody", tracks=("elastic",)),
    ],
)
def test_a_claim_without_both_sides_is_not_tested(claim: PublishedClaim) -> None:
    (checked,) = check_claims(found([1.0], [2.0]), [claim])
    assert not checked.instances
    assert not checked.is_tested


def test_where_both_sides_decide_alike_nothing_is_tested() -> None:
    claim = PublishedClaim("las", "fifo", "somebody")
    (checked,) = check_claims(found([1_000.0, 2_000.0], [1_000.0, 2_000.0]), [claim])
    assert [each.outcome for each in checked.instances] == [ClaimOutcome.UNTESTED]
    assert not checked.is_tested


def test_a_side_may_take_part_in_its_tuned_form_only() -> None:
    tuned = replace(FIFO, label="fifo tuned")
    made = comparisons(
        result_of(LAS, tuned, scores={"las": [score(1_000.0)], "fifo tuned": [score(5_000.0)]})
    )
    (checked,) = check_claims(made, [PublishedClaim("las", "fifo", "somebody")])
    assert [each.outcome for each in checked.instances] == [ClaimOutcome.HELD]


def test_the_page_lists_every_claim_that_no_experiment_tests() -> None:
    context = claims_context(found([1_000.0], [5_000.0]))
    untested = context["untested"]
    assert isinstance(untested, list)
    assert len(untested) == len(CLAIMS) - 1
    assert any("themis below tiresias-l, largest rho" in each for each in untested)


def test_no_contender_is_claimed_to_be_below_itself_or_twice() -> None:
    pairs = [(each.better, each.worse, each.measured) for each in CLAIMS]
    assert len(set(pairs)) == len(pairs)
    assert all(better != worse for better, worse, _ in pairs)
    assert not {(worse, better, by) for better, worse, by in pairs} & set(pairs)


@pytest.mark.parametrize(
    ("names", "title", "values"),
    [
        (("load 0.5", "load 0.7", "load 1.0"), "load", (0.5, 0.7, 1.0)),
        (
            ("switch cost 0 s", "switch cost 10 s", "switch cost 300 s"),
            "switch cost (s)",
            (0, 10, 300),
        ),
        (("10 %", "20 %", "40 %"), "%", (10, 20, 40)),
    ],
)
def test_steps_are_read_from_names(
    names: tuple[str, ...], title: str, values: tuple[float, ...]
) -> None:
    steps = steps_of(names)
    assert steps is not None
    assert (steps.title, steps.values) == (title, values)


@pytest.mark.parametrize(
    "names",
    [
        ("load 0.5", "load 0.7"),
        ("load 0.5", "load 0.7", "philly"),
        ("load 0.5", "noise 0.7", "load 0.9"),
        ("load 0.5", "load 0.5", "load 0.7"),
        ("8x4", "4x8", "2x16"),
        (),
    ],
)
def test_other_names_are_no_steps(names: tuple[str, ...]) -> None:
    assert steps_of(names) is None


def test_a_sweep_goes_up_whatever_the_order_of_its_conditions() -> None:
    backwards = replace(SWITCHING, conditions=tuple(reversed(SWITCHING.conditions)))
    (sweep,) = sweeps(comparisons(made_up(Suite("s", "S", (backwards,)))))
    assert sweep.steps.values == (0, 10, 60, 300)
    assert sweep.comparisons[0].conditions.name == "switch cost 0 s"


def test_contenders_that_differ_in_one_number_are_a_sweep() -> None:
    (comparison,) = comparisons(made_up(Suite("s", "S", (CONCURRENCY,))))
    made = setting_sweep(comparison)
    assert made is not None
    assert (made.steps.title, made.steps.values) == ("concurrency", (1, 2, 3, 4, 5, 6))
    assert setting_sweep(comparisons(made_up(SUITE))[0]) is None


def test_crowded_steps_are_set_apart_evenly() -> None:
    assert SweptValues("s", (0, 10, 60, 300), ("0", "10", "60", "300")).places == (0, 1, 2, 3)
    assert SweptValues("load", (0.5, 0.7, 1.2), ("", "", "")).places == (0.5, 0.7, 1.2)


def test_the_winner_is_never_above_the_next() -> None:
    for win in wins(comparisons(made_up(SUITE))):
        assert win.lead is not None
        assert win.lead.value <= 1.0


def test_equal_contenders_share_the_lowest_excess() -> None:
    (win,) = wins(found([1_000.0], [1_000.0]))
    assert win.winners == "las = fifo"
    (win,) = wins(found([2_000.0], [1_000.0]))
    assert win.winners == "fifo"


def test_wins_and_ranks_add_up() -> None:
    made = comparisons(made_up(SUITE))
    elsewhere = sum(win.comparison.experiment.track == "paper" for win in wins(made))
    assert sum(record.wins for record in records(made)) == len(wins(made)) - elsewhere
    assert all(1 <= record.mean_rank <= 9 for record in records(made))
    assert records(made)[0].label == "trainmaster"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.034, "0.034"),
        (0.874, "0.87"),
        (1.3, "1.30"),
        (12.44, "12.4"),
        (270.0, "270"),
        (None, "–"),
    ],
)
def test_ratios_in_words(value: float | None, words: str) -> None:
    assert ratio_words(value) == words


def test_intervals_in_words() -> None:
    assert (
        with_interval(IntervalEstimate(0.5, Interval(0.4, 0.61), 9, Basis.SEEDS))
        == "0.50 [0.40, 0.61]"
    )
    assert with_interval(IntervalEstimate(0.5, None, 1, Basis.NOTHING)) == "0.50"
    assert with_interval(None) == "–"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(0.87, "13 % lower"), (1.001, "alike"), (1.25, "25 % higher"), (4.2, "4.2 times")],
)
def test_changes_in_words(ratio: float, words: str) -> None:
    assert change_words(ratio) == words


def test_markdown_means_nothing_but_code() -> None:
    assert markdown_words("a_b *c* <d> [e](f) `g_h`") == r"a\_b \*c\* \<d\> \[e\](f) `g_h`"
