"""Sums of records that are all there, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trainmaster.daemon.response_models import UsageReport
from trainmaster.daemon.usage_report import UsageSums
from trainmaster.store.rows import ChargeRow


def usage_report(
    rows: Iterable[ChargeRow],
    by: str,
    since_ms: int,
    until_ms: int,
    currency: str,
    outcomes: Mapping[str, str] = MappingProxyType({}),
) -> UsageReport:
    sums = UsageSums(by, since_ms, until_ms, outcomes)
    sums.add(rows)
    return sums.report(currency)
