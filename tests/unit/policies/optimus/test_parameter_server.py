"""Speeds with parameter servers (Optimus, EuroSys'18, section 3.2), and fits."""

from __future__ import annotations

import pytest

from trainmaster.policies.optimus.parameter_server import SpeedModel, fit_speed_model, nonnegative

SYNCHRONOUS = SpeedModel((0.01, 0.1, 0.2, 0.02, 0.01), batch=100)
ASYNCHRONOUS = SpeedModel((2.0, 1.0, 0.1, 0.1))
GRID = [(p, w) for p in (1, 2, 3) for w in (1, 2, 4)]


@pytest.mark.parametrize(
    ("servers", "workers", "want"),
    [(1, 1, 0.751880), (1, 2, 0.952381), (2, 1, 0.806452), (2, 2, 1.162791)],
)
def test_synchronous(servers: int, workers: int, want: float) -> None:
    assert SYNCHRONOUS.speed(servers, workers) == pytest.approx(want, abs=5e-7)


@pytest.mark.parametrize(
    ("servers", "workers", "want"),
    [(1, 1, 0.3125), (1, 2, 0.465116), (2, 2, 0.588235), (2, 3, 0.75)],
)
def test_asynchronous(servers: int, workers: int, want: float) -> None:
    assert ASYNCHRONOUS.speed(servers, workers) == pytest.approx(want, abs=5e-7)


@pytest.mark.parametrize("model", [SYNCHRONOUS, ASYNCHRONOUS])
def test_measured_points_give_the_times_back(model: SpeedModel) -> None:
    found = fit_speed_model([(p, w, model.speed(p, w)) for p, w in GRID], model.batch)
    assert found is not None
    assert found.times == pytest.approx(model.times)
    assert found.speed(5, 7) == pytest.approx(model.speed(5, 7))


def test_too_few_points_give_no_model() -> None:
    points = [(p, w, SYNCHRONOUS.speed(p, w)) for p, w in GRID]
    assert fit_speed_model(points[:4], batch=100) is None
    assert fit_speed_model(points[:5], batch=100) is not None
    assert fit_speed_model(points[:3]) is None
    assert fit_speed_model(points[:4]) is not None


def test_as_many_servers_as_workers_need_fewer_points() -> None:
    points = [(n, n, SYNCHRONOUS.speed(n, n)) for n in (1, 2, 4)]
    assert fit_speed_model(points[:2], batch=100) is None
    found = fit_speed_model(points, batch=100)
    assert found is not None
    assert found.speed(3, 3) == pytest.approx(SYNCHRONOUS.speed(3, 3))


def test_a_measured_point_overrides_the_fit() -> None:
    points = [(p, w, ASYNCHRONOUS.speed(p, w)) for p, w in GRID]
    points[4] = (2, 2, 0.1)
    found = fit_speed_model(points)
    assert found is not None
    assert found.speed(2, 2) == 0.1
    assert SpeedModel(found.times).speed(2, 2) > 0.2


def test_no_time_is_negative() -> None:
    """More servers that slow it down, and a law that cannot say so."""
    found = fit_speed_model([(p, w, 1.0 + 0.5 * p * w) for p, w in GRID])
    assert found is not None
    assert min(found.times) >= 0


def test_least_squares_without_negatives_is_the_best_there_is() -> None:
    rows = [(1.0, 2.0), (2.0, 1.0), (1.0, 0.0)]
    assert nonnegative(rows, [5.0, 4.0, 1.0]) == pytest.approx([1.0, 2.0])
    first_only = nonnegative(rows, [1.0, 2.0, 5.0])
    assert first_only[1] == 0
    assert first_only[0] == pytest.approx(10 / 6)
    assert nonnegative(rows, [-1.0, -1.0, -1.0]) == [0.0, 0.0]


def test_columns_that_say_the_same_leave_one_out() -> None:
    assert nonnegative([(1.0, 1.0), (2.0, 2.0)], [1.0, 2.0]) in ([1.0, 0.0], [0.0, 1.0])
