"""The JSON that `simulate` writes, field by field; docs/simulator.md describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from trainmaster.model.failure_report import as_json
from trainmaster.model.result import Delays, JobResult, Result, Verdict
from trainmaster.model.units import SECOND, WHOLE

DEADLINE_FIELDS = (
    *("deadline_s", "deadline_verdict", "predicted_finish_s", "feasible_deadline_s"),
    *("deadline_met", "warned_s"),
)


def to_json(results: Sequence[Result], wall_s: Mapping[str, float]) -> str:
    """`{"results": [...]}`, one entry per policy; one job per line."""
    entries = [_entry(result, wall_s.get(result.policy)) for result in results]
    return '{"results": [\n' + ",\n".join(entries) + "\n]}\n"


def _entry(result: Result, wall_s: float | None) -> str:
    summary = _rounded_all(asdict(result.summary))
    summary["wall_s"] = rounded(wall_s)
    for last in ("events", "cost", "cost_wasted", "cost_idle"):
        summary[last] = summary.pop(last)
    head: dict[str, object] = {
        "policy": result.policy,
        "options": dict(result.options),
        "cluster": result.cluster,
        "summary": summary,
        "bins": [_rounded_all(asdict(each)) for each in result.bins],
        "delays": None if result.delays is None else _delays(result.delays),
        "queues": [_rounded_all(asdict(each)) for each in result.queues],
    }
    if result.failures is not None:
        failures = result.failures
        head["failures"] = {**as_json(failures.effects), **as_json(failures.report)}
    rows = [job_fields(job) for job in result.jobs]
    if any(job.deadline is not None for job in result.jobs):
        rows = [row | deadline_fields(job) for row, job in zip(rows, result.jobs, strict=True)]
    jobs = ",\n".join(map(json.dumps, rows))
    return json.dumps(head)[:-1] + ', "jobs": [\n' + jobs + "\n]}"


def _delays(delays: Delays) -> dict[str, object]:
    by_size = [_rounded_all(asdict(each)) for each in delays.by_size]
    return _rounded_all(asdict(delays)) | {"by_size": by_size}


def _rounded_all(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: rounded(value) for key, value in fields.items()}


def rounded(value: object) -> object:
    """Numbers to 3 decimals; everything else as it is."""
    return round(value, 3) if isinstance(value, float) else value


def job_fields(job: JobResult) -> dict[str, object]:
    """One job as the contract writes it: seconds, absent = null."""
    return {
        "job_id": job.job_id,
        "submit_s": _s(job.submit_ms),
        "start_s": _s(job.start_ms),
        "finish_s": _s(job.finish_ms),
        "jct_s": _s(job.jct_ms),
        "queue_s": _s(job.queue_ms),
        "suspended_s": _s(job.suspended_ms),
        "gpu_s": round(job.held / (WHOLE * SECOND), 3),
        "preemptions": job.preemptions,
        "migrations": job.migrations,
        "rho": rounded(job.rho),
        "cost": rounded(job.cost),
        "cost_wasted": rounded(job.cost_wasted),
        "status": job.status.value,
    }


def deadline_fields(job: JobResult) -> dict[str, object]:
    """Fields that a trace with deadlines adds to each job; deadlines count from the submission."""
    known = job.deadline
    if known is None:
        return dict.fromkeys(DEADLINE_FIELDS) | {"deadline_verdict": Verdict.NONE.value}
    feasible = None if known.feasible_ms is None else known.feasible_ms - job.submit_ms
    values = (
        _s(known.deadline_ms - job.submit_ms),
        known.verdict.value,
        _s(known.predicted_finish_ms),
        _s(feasible),
        known.is_met,
        _s(known.warned_ms),
    )
    return dict(zip(DEADLINE_FIELDS, values, strict=True))


def _s(ms: int | None) -> float | None:
    return None if ms is None else ms / SECOND
