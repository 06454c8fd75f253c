"""The goal, put to made-up comparisons: every bound on either side of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.published.acceptance import (
    AcceptanceVerdict,
    Criterion,
    goal_context,
    judge,
    verdicts,
)
from tests.evaluation.made_up import order, score
from tests.evaluation.test_report import result_of
from trainmaster.evaluation.comparisons import comparisons
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.suite import Contender, ContenderRole

OURS = Contender("ours", "trainmaster", role=ContenderRole.OURS)
LAS, BEST = Contender("las", "las"), Contender("tiresias-l tuned", "tiresias-l")
SRSF = Contender("srsf", "srsf", role=ContenderRole.BOUND)
FAIR = {"rho_p99": 2.0, "rho_over_1": 0.1, "rho_max": 5.0}


def at(excess_s: float, floor_s: float = 4_000.0, **changes: object) -> Score:
    return score(excess_s, floor_s, **(FAIR | changes))


def verdict(
    ours: Sequence[Score], las: Sequence[Score], best: Sequence[Score], srsf: float = 400.0
) -> AcceptanceVerdict:
    found = result_of(
        LAS,
        OURS,
        BEST,
        SRSF,
        scores={"ours": ours, "las": las, "tiresias-l tuned": best, "srsf": [at(srsf)] * len(ours)},
    )
    judged = judge(comparisons(found)[0])
    assert judged is not None
    return judged


@pytest.mark.parametrize(
    ("las", "ours", "best", "is_met"),
    {
        "exactly ten percent lower, where waiting matters": (2_000.0, 900.0, 1_000.0, True),
        "a little less than ten percent lower": (2_000.0, 901.0, 1_000.0, False),
        "a fifth of LAS's mean is where it begins to matter": (1_000.0, 901.0, 1_000.0, False),
        "just below a fifth, one percent more is allowed": (999.0, 1_005.0, 1_000.0, True),
        "below a fifth, more than one percent is not": (999.0, 1_011.0, 998.0, False),
    }.values(),
)
def test_the_excess_that_is_asked(las: float, ours: float, best: float, is_met: bool) -> None:
    judged = verdict([at(ours)], [at(las)], [at(best)])
    assert judged.is_met is is_met
    assert [check.criterion for check in judged.misses] == [] if is_met else [Criterion.EXCESS]


@pytest.mark.parametrize(
    ("changes", "criterion"),
    {
        "p99 at 1.1 times is allowed": ({"rho_p99": 2.2}, None),
        "p99 above it is not": ({"rho_p99": 2.21}, Criterion.RHO_P99),
        "share at 1.1 times is allowed": ({"rho_over_1": 0.11}, None),
        "share above it is not": ({"rho_over_1": 0.111}, Criterion.RHO_OVER_1),
        "the largest may be LAS's and one more": ({"rho_max": 6.0}, None),
        "but no more than that": ({"rho_max": 6.01}, Criterion.RHO_MAX),
    }.values(),
)
def test_the_tails_that_are_allowed(
    changes: dict[str, object], criterion: Criterion | None
) -> None:
    judged = verdict([at(500.0, **changes)], [at(2_000.0)], [at(1_000.0)])
    assert [check.criterion for check in judged.misses] == ([criterion] if criterion else [])


def test_the_largest_rho_is_held_against_las_on_the_same_seed() -> None:
    ours = [at(500.0, rho_max=5.0), at(500.0, rho_max=9.0)]
    las = [at(2_000.0, rho_max=20.0), at(2_000.0, rho_max=7.5)]
    judged = verdict(ours, las, [at(1_000.0)] * 2)
    assert [(check.found, check.allowed) for check in judged.misses] == [(9.0, 8.5)]


def test_the_best_published_policy_may_be_las_itself() -> None:
    assert verdict([at(500.0)], [at(900.0)], [at(1_000.0)]).best.label == "las"


def test_the_best_is_chosen_by_the_measure_that_is_compared() -> None:
    best = [at(10.0), at(10_000.0)]
    las = [at(1_000.0), at(1_000.0)]
    judged = verdict([at(200.0)] * 2, las, best)
    assert judged.best.label == "tiresias-l tuned"
    assert judged.to_best is not None
    assert judged.to_best.value == pytest.approx((20 * 0.02) ** 0.5)


def test_bounds_and_ablations_are_no_published_policies() -> None:
    judged = verdict([at(500.0)], [at(2_000.0)], [at(1_000.0)], srsf=1.0)
    assert judged.best.label == "tiresias-l tuned"
    assert judged.bound is not None
    assert judged.bound.label == "srsf"


def test_without_us_there_is_no_verdict() -> None:
    found = result_of(LAS, BEST, scores={"las": [at(1.0)], "tiresias-l tuned": [at(2.0)]})
    assert verdicts(comparisons(found)) == ()
    assert goal_context(()) == {}


def test_sweeps_are_not_judged() -> None:
    found = result_of(LAS, OURS, scores={"las": [at(900.0)], "ours": [at(500.0)]})
    swept = order(track="sweep", contenders=(LAS, OURS))
    comparison = replace(comparisons(found)[0], experiment=swept)
    assert verdicts((comparison,)) == ()


def test_unfinished_jobs_leave_it_undecided() -> None:
    cut = replace(at(1.0), excess_s=None, mean_jct_s=None, rho_p99=None, rho_over_1=None)
    judged = verdict([replace(cut, rho_max=None)], [at(2_000.0)], [at(1_000.0)])
    assert judged.checks == ()
    assert not judged.is_met
    assert "undecided" in str(goal_context([judged]))


def test_an_interval_that_reaches_over_the_bound_is_not_sure() -> None:
    sure = verdict([at(500.0), at(510.0)], [at(2_000.0)] * 2, [at(1_000.0)] * 2)
    doubtful = verdict([at(500.0), at(950.0)], [at(2_000.0)] * 2, [at(1_000.0)] * 2)
    assert sure.is_sure
    assert not doubtful.is_sure


def test_a_miss_says_whether_the_gain_was_there_to_be_had() -> None:
    short = verdict([at(980.0)], [at(2_000.0)], [at(1_000.0)], srsf=950.0)
    words = str(goal_context([short]))
    assert "missed by 8.0 % of it" in words
    assert (
        "Out of reach by ordering alone: even srsf, which knows every run time, only reaches 0.95."
        in words
    )


def test_unfinished_jobs_on_one_seed_leave_it_undecided() -> None:
    cut = replace(at(1.0, unfinished=3), excess_s=None, mean_jct_s=None, rho_p99=None)
    ours = [at(500.0), replace(cut, rho_over_1=None, rho_max=None)]
    judged = verdict(ours, [at(2_000.0)] * 2, [at(1_000.0)] * 2)
    assert not judged.is_met
    assert "undecided: unfinished jobs" in str(goal_context([judged]))


def test_a_failed_trial_of_ours_leaves_it_undecided() -> None:
    judged = verdict([at(500.0)], [at(2_000.0)] * 2, [at(1_000.0)] * 2)
    assert not judged.is_met
    assert "undecided: failed trials" in str(goal_context([judged]))


def test_a_contender_that_failed_on_a_seed_is_not_the_best() -> None:
    judged = verdict([at(500.0)] * 2, [at(2_000.0), at(3_000.0)], [at(1_000.0)])
    assert judged.best.label == "las"


def test_a_contender_that_rejects_jobs_that_others_serve_is_not_the_best() -> None:
    choosy = at(1_000.0, jobs=790, rejected=10)
    assert verdict([at(500.0)], [at(2_000.0)], [choosy]).best.label == "las"


def test_rejected_jobs_that_others_serve_leave_it_undecided() -> None:
    judged = verdict([at(500.0, jobs=790, rejected=10)], [at(2_000.0)], [at(1_000.0)])
    assert not judged.is_met
    assert judged.to_best is None
    assert "undecided: rejected jobs" in str(goal_context([judged]))
