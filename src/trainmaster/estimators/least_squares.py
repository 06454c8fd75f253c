"""Small least-squares problems: a handful of unknowns, exact answers, no library."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from operator import mul

SINGULAR = 1e-12
"""A pivot this small, relative to the largest of its matrix, is none."""


def solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float] | None:
    """The solution by elimination with pivoting; None where there is not just one."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    scale = max((abs(value) for row in matrix for value in row), default=0.0)
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) <= SINGULAR * scale:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            if factor:
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution


def normal_equations(
    rows: Sequence[Sequence[float]], values: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    """Matrix and right side whose solution has the least squared residuals."""
    columns = list(zip(*rows, strict=True))
    matrix = [[sum(map(mul, one, other)) for other in columns] for one in columns]
    return matrix, [sum(map(mul, column, values)) for column in columns]


def nonnegative(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Coefficients >= 0 with the least squared residuals (NNLS).

    The best of all choices of which are zero: with at most five unknowns that is 32 small systems,
    and no rounds that might not end. Columns that say the same leave one of them zero.
    """
    size = len(rows[0])
    matrix, right = normal_equations(rows, values)
    best = [0.0] * size
    least = 0.0
    for count in range(1, size + 1):
        for chosen in combinations(range(size), count):
            part = [[matrix[i][j] for j in chosen] for i in chosen]
            found = solved(part, [right[i] for i in chosen])
            if found is None or min(found) < 0:
                continue
            gained = sum(right[i] * value for i, value in zip(chosen, found, strict=True))
            if gained > least * (1 + 1e-12):
                least = gained
                best = [0.0] * size
                for i, value in zip(chosen, found, strict=True):
                    best[i] = value
    return best
