"""Optimus' loss curve: worked numbers (EuroSys'18, section 3.1), and fits that find it again."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest

from trainmaster.estimators.convergence import (
    ENOUGH,
    THRESHOLD,
    WINDOW,
    LossCurve,
    curve_converging_at,
    fit_loss_curve,
    without_outliers,
)

CURVE = LossCurve(0.5, 0.8, 0.2)


def test_the_loss_of_the_worked_example() -> None:
    assert CURVE.at(10) == pytest.approx(0.372414, abs=5e-7)


def test_the_first_epoch_that_gains_less_than_a_hundredth() -> None:
    first = ceil(CURVE.settles_at(0.01, span=1))
    assert first == 13
    assert CURVE.at(13) - CURVE.at(14) < 0.01 <= CURVE.at(12) - CURVE.at(13)


@pytest.mark.parametrize("epochs", [range(20), range(3, 9), range(10, 60, 7)])
def test_exact_losses_give_the_coefficients_back(epochs: range) -> None:
    found = fit_loss_curve([(k, CURVE.at(k)) for k in epochs])
    assert found is not None
    assert (found.b0, found.b1, found.b2) == pytest.approx((0.5, 0.8, 0.2), rel=1e-6)


def test_a_curve_without_a_floor_is_found_too() -> None:
    found = fit_loss_curve([(k, LossCurve(0.3, 2.0, 0.0).at(k)) for k in range(12)])
    assert found is not None
    assert (found.b0, found.b1, found.b2) == pytest.approx((0.3, 2.0, 0.0), abs=1e-6)


def test_too_few_reports_or_none_that_fall_say_nothing() -> None:
    assert fit_loss_curve([(k, CURVE.at(k)) for k in range(ENOUGH - 1)]) is None
    assert fit_loss_curve([]) is None
    assert fit_loss_curve([(0.0, 1.0)] * 9) is None
    assert fit_loss_curve([(float(k), 0.0) for k in range(9)]) is None


def test_losses_of_zero_and_below_say_nothing() -> None:
    falling = [(float(k), CURVE.at(k)) for k in range(20)]
    over = [(20.0 + k, loss) for k, loss in enumerate((0.0, 0.0, 0.0, -0.1, -0.2))]
    assert fit_loss_curve([*falling, *over]) == fit_loss_curve(falling)
    assert fit_loss_curve(over) is None


def test_a_wild_report_is_left_out() -> None:
    points = [(float(k), CURVE.at(k)) for k in range(20)]
    points[7] = (7.0, 40.0)
    assert points[7] not in without_outliers(points)
    found = fit_loss_curve(points)
    assert found is not None
    assert found.b0 == pytest.approx(0.5, rel=1e-6)


def test_later_reports_weigh_more() -> None:
    """The first third is off by 20 %: the end of training is predicted by what came later."""
    points = [(float(k), CURVE.at(k) * (1.2 if k < 7 else 1.0)) for k in range(21)]
    found = fit_loss_curve(points)
    assert found is not None
    assert found.at(30) == pytest.approx(CURVE.at(30), rel=0.02)


@pytest.mark.parametrize("epochs", [20.0, 27.5, 40.0])
@pytest.mark.parametrize(("b1", "b2"), [(0.5, 0.0), (0.5, 0.2), (2.0, 0.05)])
def test_a_curve_made_to_converge_at_an_epoch_does(epochs: float, b1: float, b2: float) -> None:
    curve = curve_converging_at(epochs, b1, b2)
    assert curve.converges_at() == pytest.approx(epochs)
    fallen = curve.at(epochs - WINDOW) - curve.at(epochs)
    assert fallen == pytest.approx(THRESHOLD * curve.at(0))
    earlier = curve.at(epochs - WINDOW - 1) - curve.at(epochs - 1)
    assert earlier > THRESHOLD * curve.at(0)


def test_a_curve_too_short_for_the_rule_is_a_curve_all_the_same() -> None:
    curve = curve_converging_at(5, 1.0, 0.1)
    assert curve.at(5) < curve.at(0)
    assert curve.converges_at() >= WINDOW


@pytest.mark.parametrize(("done", "off"), [(0.3, 0.2), (0.6, 0.1), (0.9, 0.1)])
def test_noisy_reports_predict_the_end_better_the_later_they_are(done: float, off: float) -> None:
    random, errors = Random("losses"), []
    for _ in range(20):
        curve = curve_converging_at(30, random.uniform(0.5, 2), 0.05)
        epochs = [30 * done * i / 30 for i in range(1, 31)]
        found = fit_loss_curve([(k, curve.at(k) * random.uniform(0.98, 1.02)) for k in epochs])
        assert found is not None
        errors.append(abs(found.converges_at() / 30 - 1))
    assert sum(errors) / len(errors) < off
