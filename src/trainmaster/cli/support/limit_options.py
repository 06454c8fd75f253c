"""Options for limits and budgets, which queues and users have alike."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from trainmaster.cli.support.format import at
from trainmaster.cli.support.options import option
from trainmaster.config.units import duration_ms
from trainmaster.errors import BadInput
from trainmaster.model.units import HOUR

NONE = "none"
"""What takes a limit back."""
BUDGET = "GPU-hours that may be used in each period, such as 500h, or none."
PER = "Period after which the budget is renewed; total: never."
STARTING = (
    "A day on which a period begins, such as 2026-10-01. Default: Monday, the first, January."
)
RULE = "What happens to running jobs when it is used up; new ones wait. Default: finish."

Period = Literal["day", "week", "month", "year", "total"]
BudgetOption = Annotated[str | None, option("--budget HOURS|none", BUDGET)]
PerOption = Annotated[Period | None, option("--per day|week|month|year|total", PER)]
StartingOption = Annotated[str | None, option("--starting DATE", STARTING)]
RuleOption = Annotated[
    Literal["finish", "suspend"] | None, option("--when-used-up finish|suspend", RULE)
]


def number_of(text: str | None, name: str, *, whole: bool = True) -> float | int | str | None:
    """A number, `none` to take a limit back, or None where the option was left out."""
    if text is None or text == NONE:
        return text
    try:
        return int(text) if whole else float(text)
    except ValueError:
        what = "a whole number" if whole else "a number"
        raise BadInput(f"{name} `{text}` is not {what}: write one, or `none`.") from None


def budget_of(
    known: dict[str, Any] | None,
    budget: str | None,
    per: str | None,
    starting: str | None,
    when_used_up: str | None,
) -> dict[str, Any] | str | None:
    """The budget with these changes; `none` takes it back, None where nothing is said of it."""
    if budget == NONE:
        return NONE
    said = {"per": per, "starting": starting, "when_used_up": when_used_up}
    stated = {key: value for key, value in said.items() if value is not None}
    if budget is None and not stated:
        return None
    keys = ("gpu_hours", *said)
    kept = {key: value for key in keys if known and (value := known.get(key)) is not None}
    if budget is None and "gpu_hours" not in kept:
        raise BadInput(f"--{next(iter(stated)).replace('_', '-')} needs a --budget, such as 500h.")
    if budget is not None:
        kept["gpu_hours"] = _hours(budget)
    return kept | stated


def _hours(text: str) -> float:
    try:
        return duration_ms(f"{text}h" if text.replace(".", "", 1).isdecimal() else text) / HOUR
    except ValueError as error:
        raise BadInput(f"--budget {error}.") from None


def known_rule(row: dict[str, Any]) -> str | None:
    """The rule of the budget that a queue or a user has: with it, the budget is stated as it is."""
    budget = row.get("budget")
    return None if budget is None else str(budget["when_used_up"])


def changed(known: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """What is known with what is stated over it, without what is taken back."""
    merged = known | {key: value for key, value in stated.items() if value is not None}
    return {key: value for key, value in merged.items() if value not in (None, NONE)}


def budget_cell(row: dict[str, Any] | None) -> str | None:
    """`120 of 500 h per week, until 2026-11-23 01:00`."""
    if row is None:
        return None
    per = "" if row["per"] == "total" else f" per {row['per']}"
    return f"{row['used_gpu_hours']:.4g} of {row['gpu_hours']:g} h{per}"


def budget_words(row: dict[str, Any]) -> str:
    """The same with its rule and when it is renewed, for a sentence."""
    renewed = "not renewed" if row["renews_s"] is None else f"renewed {at(row['renews_s'])}"
    rule = (
        "running jobs finish" if row["when_used_up"] == "finish" else "running jobs are suspended"
    )
    return f"budget {budget_cell(row)} ({renewed}; when it is used up, {rule})"
