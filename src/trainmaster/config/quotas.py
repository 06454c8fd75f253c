"""Limits and budgets as files and requests state them, and prices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from trainmaster.config.validation import FileModel, Label, StrictModel, mistake, positive, shown
from trainmaster.model.quota import Budget, Period, Price, Prices, UserLimits, WhenUsedUp
from trainmaster.model.units import HOUR, SECOND, WHOLE

MOST_JOBS = 1_000_000
MICROS = 1_000_000
"""Prices are kept in millionths."""

GpusPerUser = Annotated[int, positive(WHOLE)]
JobsPerUser = Annotated[int, Field(ge=0, le=MOST_JOBS)]


def _day(value: object) -> str:
    """YAML reads an unquoted 2026-10-01 as a date."""
    if isinstance(value, date):
        value = value.isoformat()[:10]
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else _no_day(value)
    except ValueError:
        return _no_day(value)


def _no_day(value: object) -> str:
    raise ValueError(f"must be a date such as 2026-10-01, not {shown(value)}")


class BudgetEntry(FileModel):
    """GPU-hours in each period."""

    gpu_hours: Annotated[float, Field(gt=0, le=1e9, description="GPU-hours of each period.")]
    per: Literal["day", "week", "month", "year", "total"] = Field(
        "total", description="When it is renewed; `total`: never."
    )
    starting: Annotated[str, BeforeValidator(_day)] | None = Field(
        None, description="A day on which a period begins, in UTC, such as 2026-10-01."
    )
    when_used_up: Literal["finish", "suspend"] = Field(
        "finish", description="What happens to running jobs; new ones wait."
    )

    @property
    def budget(self) -> Budget:
        day = self.starting
        start = None if day is None else datetime.fromisoformat(day).replace(tzinfo=UTC)
        return Budget(
            amount=round(self.gpu_hours * WHOLE * HOUR),
            period=Period(self.per),
            start_ms=None if start is None else round(start.timestamp() * SECOND),
            when_used_up=WhenUsedUp(self.when_used_up),
        )


def budget_as_stated(budget: Budget) -> dict[str, Any]:
    """A budget as a file would state it."""
    start = budget.start_ms
    day = None if start is None else datetime.fromtimestamp(start / SECOND, UTC).date().isoformat()
    stated = {
        "gpu_hours": budget.amount / (WHOLE * HOUR),
        "per": budget.period.value,
        "when_used_up": budget.when_used_up.value,
    }
    return stated if day is None else stated | {"starting": day}


class UserLimitsEntry(StrictModel):
    """What one user may have at most, in all queues together; a missing one is no limit."""

    max_gpus: GpusPerUser | None = Field(None, description="GPUs in use.")
    max_running: JobsPerUser | None = Field(None, description="Running jobs.")
    max_jobs: JobsPerUser | None = Field(
        None, description="Jobs that have not ended: more are refused."
    )
    budget: BudgetEntry | None = Field(None, description="GPU-hours in each period.")

    def limits(self, user: str) -> UserLimits:
        budget = None if self.budget is None else self.budget.budget
        return UserLimits(user, self.max_gpus, self.max_running, self.max_jobs, budget)


class NamedUserLimits(UserLimitsEntry):
    """The same in a file, with the user's name; `*`: everybody who is not named."""

    name: Label


class PricesEntry(StrictModel):
    """What an hour of each GPU type costs."""

    prices: dict[Label, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        description="Price of a GPU-hour by GPU type."
    )
    currency: Annotated[str, Field(max_length=10)] = Field("", description="Such as EUR.")

    @model_validator(mode="after")
    def _check_currency(self) -> PricesEntry:
        if self.currency and not self.currency.isprintable():
            raise mistake("{} must be a word such as EUR", "currency")
        return self

    @property
    def as_value(self) -> Prices:
        found = sorted(self.prices.items())
        prices = tuple(Price(kind, round(price * MICROS)) for kind, price in found)
        return Prices(prices, self.currency)


def prices_as_stated(prices: Prices) -> Mapping[str, float]:
    """Price of a GPU-hour by GPU type."""
    return {each.gpu_type: each.micros_per_hour / MICROS for each in prices.by_type}
