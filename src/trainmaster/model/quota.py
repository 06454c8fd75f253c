"""Quotas: what users may hold at once, and GPU-hours that queues and users may use in a period."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from trainmaster.model.units import DAY, SECOND

EVERYBODY = "*"
"""Stands for every user that has no limits of their own."""
MONDAY = 4 * DAY
"""The first Monday of Unix time, 1970-01-05."""


class Period(Enum):
    """How long a budget lasts until it is renewed."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"
    TOTAL = "total"
    """It is never renewed."""


class WhenUsedUp(Enum):
    """What happens to running jobs when a budget is used up; new ones wait in any case."""

    FINISH = "finish"
    SUSPEND = "suspend"


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU time that may be used in each period."""

    amount: int
    """Thousandths of a GPU x ms."""
    period: Period = Period.TOTAL
    start_ms: int | None = None
    """When a period begins; None: at midnight UTC, on Monday, on the first of the month or of January."""
    when_used_up: WhenUsedUp = WhenUsedUp.FINISH

    def began_ms(self, now: int) -> int:
        """When the period of this time began."""
        return _period_of(self, now)[0]

    def renews_ms(self, now: int) -> int | None:
        """When the next period begins; None: never."""
        return _period_of(self, now)[1]


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What one user may have at most, in all queues together; None = no limit."""

    user: str
    max_gpus: int | None = None
    """Thousandths of a GPU in use."""
    max_running: int | None = None
    max_jobs: int | None = None
    """Jobs that have not ended: more are refused at submission."""
    budget: Budget | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return self == UserLimits(self.user)


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of a GPU costs, in millionths of the currency."""

    gpu_type: str
    micros_per_hour: int


@dataclass(frozen=True, slots=True)
class Prices:
    """What GPU types cost, and in which currency; types that are not named have no price."""

    by_type: tuple[Price, ...] = ()
    currency: str = ""


def _period_of(budget: Budget, now: int) -> tuple[int, int | None]:
    period, start = budget.period, budget.start_ms
    if period is Period.TOTAL:
        return 0 if start is None else start, None
    if period is Period.DAY or period is Period.WEEK:
        length = DAY if period is Period.DAY else 7 * DAY
        first = MONDAY if start is None else start
        began = first + (now - first) // length * length
        return began, began + length
    first_day = datetime.fromtimestamp((start or 0) / SECOND, UTC)
    per_year = 12 if period is Period.MONTH else 1
    at = datetime.fromtimestamp(now / SECOND, UTC)
    number = (at.year - first_day.year) * per_year
    number += at.month - first_day.month if period is Period.MONTH else 0
    while _boundary(first_day, period, number) > now:
        number -= 1
    return _boundary(first_day, period, number), _boundary(first_day, period, number + 1)


def _boundary(first: datetime, period: Period, number: int) -> int:
    """When the period of that number begins; on the last day of a month that is too short."""
    months = number * (1 if period is Period.MONTH else 12) + first.month - 1
    year, month = first.year + months // 12, months % 12 + 1
    after = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    last = (after - timedelta(days=1)).day
    at = first.replace(year=year, month=month, day=min(first.day, last))
    return round(at.timestamp() * SECOND)
