"""When will training have converged? Optimus' loss curve, fitted to reports (EuroSys'18, section 3.1).

    loss(k) = 1 / (b0 k + b1) + b2,   all b >= 0,   k in epochs

A job has converged when the loss has fallen, over the last `WINDOW` epochs, by less than `THRESHOLD`
of its initial value. Reports are scaled by the largest, outliers are left out, and the later two thirds
weigh more than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from trainmaster.model.progress import Sample
from trainmaster.model.units import NOMINAL

WINDOW = 10
"""Epochs over which the loss must hardly have fallen."""
THRESHOLD = 0.05
"""The most that it may have fallen, as a fraction of the initial loss."""
ENOUGH = 5
"""Reports that a fit of three unknowns needs."""
SEGMENT_WEIGHTS = (1.0, 4.0, 16.0)
"""1 / sigma in each third of the reports: divided by 4 from one to the next."""
OUTLYING = 2.0
"""A loss that differs from all its neighbours by more than this factor is an outlier."""
FLOORS = (0.0, 0.3, 0.6, 0.9)
"""Guesses of b2, as parts of the smallest loss, to begin the fit from."""
ROUNDS = 30
SETTLED = 1e-5
"""A round that improves the fit by a smaller part than this is the last."""
EXACT = 1e-20
"""Squared residuals this small are rounding."""

PROGRESS = 1.08
"""A report is used only if its step count grew by this factor, so that fits are rarely repeated."""

Points = Sequence[tuple[float, float]]
"""(epochs done, loss), growing in epochs."""
Coefficients = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class LossCurve:
    """1 / (b0 k + b1) + b2."""

    b0: float
    b1: float
    b2: float

    def at(self, epoch: float) -> float:
        return 1 / (self.b0 * epoch + self.b1) + self.b2

    def settles_at(self, decrease: float, span: float) -> float:
        """From where on the loss falls by no more than `decrease` over the next `span` epochs."""
        step = span * self.b0
        root = (sqrt(step * step + 4 * step / decrease) - step) / 2
        return max(0.0, (root - self.b1) / self.b0)

    def converges_at(self) -> float:
        """The epoch at which the rule says that it has converged."""
        return self.settles_at(THRESHOLD * self.at(0), WINDOW) + WINDOW


def curve_converging_at(epochs: float, b1: float, b2: float) -> LossCurve:
    """The steeper of the two curves that begin at 1/b1 + b2 and converge, by the rule, at that epoch.

    There is none where such a slow curve would fall too little to count; then it is the slowest that counts.
    """
    start = max(0.0, epochs - WINDOW)
    decrease = THRESHOLD * (1 / b1 + b2)
    a = decrease * start * (start + WINDOW)
    b = decrease * b1 * (2 * start + WINDOW) - WINDOW
    c = decrease * b1 * b1
    if a == 0:
        return LossCurve(c / -b if b < 0 else b1, b1, b2)
    return LossCurve((-b + sqrt(max(0.0, b * b - 4 * a * c))) / (2 * a), b1, b2)


def fit_loss_curve(points: Points) -> LossCurve | None:
    """The curve through these reports; None where they are too few or do not fall.

    No curve of this form reaches 0, so losses of 0 are ignored.
    """
    points = without_outliers([(k, loss) for k, loss in points if loss > 0])
    if len(points) < ENOUGH:
        return None
    far, high = max(k for k, _ in points), max(loss for _, loss in points)
    if far <= 0:
        return None
    scaled = [(k / far, loss / high) for k, loss in points]
    weights = _weights(len(scaled))
    rational = _rational(scaled, weights)
    starts = [_hyperbola(scaled, weights, floor) for floor in FLOORS]
    if rational is not None:
        starts.insert(0, rational)
    start = min(starts, key=lambda each: _misfit(scaled, weights, each))
    b0, b1, b2 = _refined(scaled, weights, start)
    if b0 <= 0:
        return None
    return LossCurve(b0 / (far * high), b1 / high, b2 * high)


def total_work(samples: Sequence[Sample]) -> float | None:
    """Work from the beginning to convergence, as its losses predict; None where they do not."""
    if not samples:
        return None
    last = samples[-1]
    points = [(each.step / each.epoch_steps, each.loss_ppm / NOMINAL) for each in samples]
    curve = fit_loss_curve(points)
    if curve is None:
        return None
    return curve.converges_at() * last.epoch_steps * last.work / last.step


def informative_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Samples that each advanced notably over the last, without steps that were later repeated."""
    kept: list[Sample] = []
    for sample in samples:
        while kept and kept[-1].step >= sample.step:
            kept.pop()
        if sample.step >= (kept[-1].step * PROGRESS if kept else 1):
            kept.append(sample)
    return kept


def without_outliers(points: Points) -> Points:
    """The points within a factor of two of their neighbours, two on each side."""
    kept = []
    for i, (k, loss) in enumerate(points):
        beside = [other for _, other in (*points[max(0, i - 2) : i], *points[i + 1 : i + 3])]
        if not beside or min(beside) / OUTLYING <= loss <= max(beside) * OUTLYING:
            kept.append((k, loss))
    return kept


def _weights(count: int) -> list[float]:
    thirds = len(SEGMENT_WEIGHTS)
    return [SEGMENT_WEIGHTS[i * thirds // count] for i in range(count)]


def _rational(points: Points, weights: Sequence[float]) -> Coefficients | None:
    """The same curve as (1 + d k) / (a k + c), which is linear in a, c and d: exact for exact losses."""
    rows = [(w * k * loss, w * loss, -w * k) for (k, loss), w in zip(points, weights, strict=True)]
    a, c, d = _least_squares(rows, weights)
    if a <= 0:
        return None
    b2 = max(0.0, d / a)
    if c <= 0 or b2 * c >= 1:
        return None
    scale = 1 / (1 - b2 * c)
    return a * scale, c * scale, b2


def _hyperbola(points: Points, weights: Sequence[float], floor: float) -> Coefficients:
    """With b2 guessed as a part of the smallest loss, 1 / (loss - b2) is a straight line."""
    b2 = floor * min(loss for _, loss in points)
    rows, values = [], []
    for (k, loss), w in zip(points, weights, strict=True):
        weight = w * (loss - b2) ** 2
        rows.append((weight * k, weight))
        values.append(weight / (loss - b2))
    slope, height = _least_squares(rows, values)
    return max(slope, 1e-6), max(height, 1e-6), b2


def _least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    import numpy as np  # only where a loss curve is fitted: it takes 0.1 s to import

    found: list[float] = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0].tolist()
    return found


def _misfit(points: Points, weights: Sequence[float], b: Coefficients) -> float:
    b0, b1, b2 = b
    return sum(
        (w * (1 / (b0 * k + b1) + b2 - loss)) ** 2
        for (k, loss), w in zip(points, weights, strict=True)
    )


def _refined(points: Points, weights: Sequence[float], b: Coefficients) -> Coefficients:
    """Damped Gauss-Newton on the losses themselves, kept at b >= 0."""
    damping, misfit = 1e-6, _misfit(points, weights, b)
    for _ in range(ROUNDS):
        if misfit < EXACT:
            break
        moved = _moved(points, weights, b, damping)
        found = _misfit(points, weights, moved) if moved is not None else misfit
        if moved is None or found >= misfit:
            damping *= 10
            continue
        has_settled = misfit - found <= SETTLED * misfit
        b, misfit, damping = moved, found, max(damping / 10, 1e-12)
        if has_settled:
            break
    return b


def _moved(
    points: Points, weights: Sequence[float], b: Coefficients, damping: float
) -> Coefficients | None:
    import numpy as np

    b0, b1, b2 = b
    rows, left = [], []
    for (k, loss), w in zip(points, weights, strict=True):
        height = 1 / (b0 * k + b1)
        slope = -w * height * height
        rows.append((slope * k, slope, w))
        left.append(w * (loss - height - b2))
    slopes = np.array(rows)
    matrix = slopes.T @ slopes
    matrix[np.diag_indices(3)] *= 1 + damping
    try:
        change = np.linalg.solve(matrix, slopes.T @ np.array(left)).tolist()
    except np.linalg.LinAlgError:
        return None
    return max(0.0, b0 + change[0]), max(1e-9, b1 + change[1]), max(0.0, b2 + change[2])
