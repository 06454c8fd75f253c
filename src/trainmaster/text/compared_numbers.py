"""The numbers by which policies are compared side by side: what each is called, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.text.formatting import ABSENT, count, decimal, duration, share


@dataclass(frozen=True, slots=True)
class ComparedNumber:
    key: str
    label: str
    words: Callable[[float | None], str]
    hint: str = ""
    is_more_better: bool | None = False
    """None: neither more nor less is better."""

    def best(self, values: Sequence[float | None]) -> str:
        """The best as it is written; empty where there is nothing to choose between."""
        known = [value for value in values if value is not None]
        if self.is_more_better is None or len({self.words(value) for value in known}) < 2:
            return ""
        return self.words(max(known) if self.is_more_better else min(known))


def _count(value: float | None) -> str:
    return ABSENT if value is None else count(round(value))


NUMBERS = (
    ComparedNumber("mean_jct_s", "mean JCT", duration, "From submission to end."),
    ComparedNumber("p50_jct_s", "median JCT", duration),
    ComparedNumber("p95_jct_s", "p95 JCT", duration),
    ComparedNumber("p99_jct_s", "p99 JCT", duration),
    ComparedNumber("mean_wait_s", "mean wait", duration, "From submission to the first start."),
    ComparedNumber(
        "utilisation", "utilisation", share, "Part of the devices that jobs held.", None
    ),
    ComparedNumber(
        "fairness",
        "Jain's index",
        decimal,
        "GPU time received / entitled, over queues; 1 is fair.",
        is_more_better=True,
    ),
    ComparedNumber("preemptions", "preemptions", _count),
    ComparedNumber("migrations", "migrations", _count),
    ComparedNumber(
        "winners",
        "jobs that win",
        _count,
        "Their JCT is shorter than under the policy in force, simulated.",
        is_more_better=True,
    ),
    ComparedNumber("losers", "jobs that lose", _count),
)
