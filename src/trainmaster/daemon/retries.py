"""Retries: a job that failed or was lost is tried again at growing intervals, and not for ever."""

from __future__ import annotations

from trainmaster.config.limits import Limits
from trainmaster.core.reducer import losses_after
from trainmaster.core.state import JobRecord
from trainmaster.model import events as e
from trainmaster.model.reasons import Reason, Retry, Why
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.model.units import SECOND

AFTER_FAILURE = 2
AFTER_LOSS = 4
"""How much longer each delay is than the one before: what loses runs takes longer to mend."""


def delay_ms(times: int, factor: int, limits: Limits) -> int:
    """How long to wait before the retry after that many failures or losses."""
    growth = factor ** min(times - 1, 32)
    return int(min(limits.max_retry_delay, limits.retry_delay * growth))


def failed_run(record: JobRecord, limits: Limits, *, can_help: bool) -> e.RunFailed:
    """Its run ended with an error; `can_help`: another attempt may end otherwise."""
    wait = delay_ms(record.failures + 1, AFTER_FAILURE, limits)
    return e.RunFailed(record.run, record.saved_work, can_help, wait)


def lost_run(record: JobRecord, now: int, limits: Limits) -> e.RunLost:
    """Its run is gone, and did not end by itself."""
    losses = losses_after(record, now)
    wait = delay_ms(losses, AFTER_LOSS, limits)
    return e.RunLost(record.run, record.saved_work, losses <= limits.losses, wait)


def retry_detail(event: e.RunFailed | e.RunLost, record: JobRecord) -> dict[str, object]:
    """When it is tried again, for its story; nothing where it is not."""
    is_lost = isinstance(event, e.RunLost)
    is_retried = event.retryable and (is_lost or record.failures < record.job.retries)
    return {"retry_in_s": event.retry_in_ms / SECOND} if is_retried else {}


def lost_too_often(record: JobRecord, now: int, why: str) -> EndReason:
    """Why a job has failed that was lost more often than the limit allows."""
    return EndReason(EndCode.LOST, times=losses_after(record, now), detail=why)


def retry_reason(record: JobRecord, limits: Limits) -> Reason | None:
    """Why a job waits whose retry is delayed; None for any other."""
    if record.retry_at_ms is None:
        return None
    was_lost = record.losses > 0
    times, most = (
        (record.losses, limits.losses) if was_lost else (record.failures, record.job.retries)
    )
    need = record.demand.nominal.total_share
    retry = Retry(times + 1, most + 1, was_lost)
    return Reason(Why.RETRY_DELAY, need, until_ms=record.retry_at_ms, retry=retry)
