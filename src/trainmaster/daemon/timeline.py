"""Which job held which devices when, and what ended it: from the records of GPU time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from trainmaster.daemon.driver import Driver
from trainmaster.daemon.response_models import Timeline, TimelineSpan
from trainmaster.model.units import SECOND
from trainmaster.store.rows import DAY_MS, SpanRow

MOST = 5000
"""Spans of one answer."""
MOST_MS = 31 * DAY_MS
MOST_NODES = 16


async def timeline(
    driver: Driver,
    since_ms: int,
    until_ms: int,
    nodes: Sequence[str],
    sees: Callable[[str], bool],
) -> Timeline:
    """The last spans to end; `sees` says of a user whether their jobs are told of."""
    now = driver.clock.now()
    stored = await asyncio.to_thread(driver.store.spans, since_ms, until_ms, nodes, MOST)
    running = [span for span in _running(driver, now) if span.from_ms <= until_ms]
    found = [span for span in running if not nodes or _is_on(span, nodes)] + list(stored)

    def rows() -> Timeline:
        spans = joined(found)
        return Timeline(
            since_s=since_ms / SECOND,
            until_s=min(until_ms, now) / SECOND,
            is_cut=len(stored) == MOST or len(spans) > MOST,
            spans=[_row(span, now, is_named=sees(span.user)) for span in spans[:MOST]],
        )

    return await asyncio.to_thread(rows)


def joined(spans: Iterable[SpanRow]) -> list[SpanRow]:
    """The last to end first, and as one those that follow each other on the same devices.

    A record of GPU time also ends with a price, and what a run had until its suspension took effect is a
    record of its own.
    """
    found: list[SpanRow] = []
    last: dict[tuple[str, int | None, str], int] = {}
    for span in sorted(spans, key=lambda each: (each.from_ms, each.to_ms)):
        key = span.job, span.attempt, span.devices
        place = last.get(key)
        if place is not None and found[place].to_ms == span.from_ms:
            found[place] = replace(span, from_ms=found[place].from_ms)
        else:
            last[key] = len(found)
            found.append(span)
    return sorted(found, key=lambda each: -each.to_ms)


def _running(driver: Driver, now: int) -> Iterator[SpanRow]:
    for row in driver.usage.open_spans(driver.jobs, now):
        live = driver.jobs[row.job]
        yield SpanRow(
            job=row.job,
            user=row.user,
            name=live.name,
            attempt=row.attempt,
            devices=row.devices or "",
            from_ms=row.from_ms,
            to_ms=now,
            ended=None,
        )


def _is_on(span: SpanRow, nodes: Sequence[str]) -> bool:
    return any(f"\n{node}:" in span.devices for node in nodes)


def _row(span: SpanRow, now: int, *, is_named: bool) -> TimelineSpan:
    return TimelineSpan(
        job=span.job if is_named else None,
        name=span.name if is_named else "",
        user=span.user if is_named else "",
        attempt=span.attempt if is_named else None,
        devices=list(devices_of(span.devices)),
        from_s=span.from_ms / SECOND,
        to_s=span.to_ms / SECOND,
        ended=span.ended if is_named else None,
        goes_on=span.to_ms == now and span.ended is None,
    )


def devices_of(written: str) -> Iterator[str]:
    """`n0:0`, `n0:1` of what `ChargeRow.devices` says."""
    for line in written.split("\n")[1:]:
        node, _, numbers = line.rpartition(":")
        for number in numbers.split(","):
            yield f"{node}:{number}"
