"""GPU time summed up: of a stretch that reaches over the ends of a time, the part within."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.usage_sums import usage_report
from trainmaster.daemon.queries import Queries
from trainmaster.daemon.usage_report import SUMMED_BY
from trainmaster.model.units import HOUR, WHOLE
from trainmaster.store.rows import ChargeRow


def stretch(
    job: str, begin_h: int, end_h: int, gpus: int, price: int | None, **at: str
) -> ChargeRow:
    said = {"user": "ada", "queue": "vision", "gpu_type": "H200"} | at
    held = (end_h - begin_h) * HOUR * gpus * WHOLE
    return ChargeRow(
        job=job,
        from_ms=begin_h * HOUR,
        to_ms=end_h * HOUR,
        gpu_ms=held,
        lost_gpu_ms=held // 4,
        price=price,
        currency="EUR",
        **said,
    )


ROWS = (
    stretch("1", 0, 10, 2, 3_000_000),
    stretch("1", 10, 12, 2, 4_000_000),
    stretch("2", 4, 8, 1, None, user="bob", gpu_type="A100"),
)


@pytest.mark.parametrize("by", [by for by in SUMMED_BY if by != "lost-to"])
def test_all_sums_agree(by: str) -> None:
    report = usage_report(ROWS, by, 0, 100 * HOUR, "EUR")
    assert report.total.gpu_hours == sum(row.gpu_hours for row in report.rows) == 28
    assert report.total.cost == sum(row.cost for row in report.rows) == 20 * 3 + 4 * 4
    assert report.total.unpriced_gpu_hours == 4
    assert report.total.lost_gpu_hours == 7
    assert report.total.jobs == 2


def test_rows_are_named_by_what_they_are_summed_by_the_largest_first() -> None:
    users = usage_report(ROWS, "user", 0, 100 * HOUR, "EUR").rows
    assert [(row.user, row.job, row.gpu_hours) for row in users] == [
        ("ada", None, 24),
        ("bob", None, 4),
    ]
    jobs = usage_report(ROWS, "job", 0, 100 * HOUR, "EUR").rows
    assert [(row.job, row.user, row.queue) for row in jobs] == [
        *(("1", "ada", "vision"), ("2", "bob", "vision")),
    ]


def test_only_the_part_within_the_time_counts_at_the_price_of_then() -> None:
    report = usage_report(ROWS, "job", 9 * HOUR, 11 * HOUR, "EUR")
    assert [(row.job, row.gpu_hours, row.cost) for row in report.rows] == [("1", 4, 2 * 3 + 2 * 4)]
    for cut in range(13):
        parts = [
            usage_report(ROWS, "job", *ends, "EUR").total
            for ends in ((0, cut * HOUR), (cut * HOUR, 12 * HOUR))
        ]
        assert sum(part.gpu_hours for part in parts) == 28


def test_days_are_cut_at_midnight_and_their_sum_is_the_whole() -> None:
    rows = (stretch("1", 20, 51, 2, 3_000_000),)
    report = usage_report(rows, "day", 22 * HOUR, 100 * HOUR, "EUR")
    assert [(row.begin_s, row.gpu_hours) for row in report.rows] == [
        *((0, 4), (86_400, 48), (2 * 86_400, 6)),
    ]
    assert [row.lost_gpu_hours for row in report.rows] == [0, 0, 6], (
        "at its end, not above its time"
    )
    assert report.total.gpu_hours == 58
    hours = usage_report(rows, "hour", 22 * HOUR, 100 * HOUR, "EUR").rows
    assert [row.begin_s for row in hours] == [hour * 3600 for hour in range(22, 51)]


def test_outcomes_are_the_states_of_jobs() -> None:
    states = {"1": "succeeded", "2": "failed"}
    rows = usage_report(ROWS, "outcome", 0, 100 * HOUR, "EUR", states).rows
    assert [(row.outcome, row.gpu_hours, row.jobs) for row in rows] == [
        *(("succeeded", 24, 1), ("failed", 4, 1)),
    ]


def test_lost_work_by_what_it_was_lost_to() -> None:
    lost = (
        replace(ROWS[0], lost_to="preemption"),
        replace(ROWS[1], lost_to="cuda-out-of-memory"),
        ROWS[2],
    )
    rows = usage_report(lost, "lost-to", 0, 100 * HOUR, "EUR").rows
    assert [(row.lost_to, row.lost_gpu_hours, row.gpu_hours) for row in rows] == [
        *(("preemption", 5, 0), ("cuda-out-of-memory", 1, 0), ("not recorded", 1, 0)),
    ]


def test_records_are_added_up_as_they_are_read_and_then_those_of_running_jobs() -> None:
    asked: list[tuple[Any, ...]] = []

    def each_charge(*wanted: Any) -> Iterator[ChargeRow]:
        asked.append(wanted)
        return iter(ROWS[:2])

    driver = SimpleNamespace(
        store=SimpleNamespace(each_charge=each_charge),  # and nothing that reads all at once
        usage=SimpleNamespace(open_rows=lambda jobs, now: iter(ROWS[2:])),
        jobs={"2": SimpleNamespace(state="running")},
        controller=SimpleNamespace(state=SimpleNamespace(prices=SimpleNamespace(currency="EUR"))),
    )
    queries: Any = SimpleNamespace(_driver=driver, now_ms=lambda: 100 * HOUR)
    for user, hours in ((None, 28), ("ada", 24)):
        found = asyncio.run(Queries.usage(queries, "user", 0, 200 * HOUR, user))
        assert (found.total.gpu_hours, found.until_s) == (hours, 100 * HOUR / 1000)
        assert (
            found.total
            == usage_report(ROWS[: 3 if user is None else 2], "job", 0, 100 * HOUR, "EUR").total
        )
    assert asked == [(0, 200 * HOUR, None, None), (0, 200 * HOUR, "ada", None)]
