"""Budgets and limits, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def budget_words(budget: Mapping[str, Any] | None) -> str:
    """`12.5 of 500 GPU-hours per week`."""
    if budget is None:
        return "none"
    per = "in total" if budget["per"] == "total" else f"per {budget['per']}"
    return f"{budget['used_gpu_hours']:,.2f} of {budget['gpu_hours']:,g} GPU-hours {per}"


def of_most(used: float, most: float | None) -> str:
    """`3 of 8`; without a limit what is used."""
    return f"{used:g}" if most is None else f"{used:g} of {most:g}"
