"""The JSON contract of `simulate`: field by field as design.md section 4 states it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from trainmaster.model.result import Delays, JobResult, Result
from trainmaster.model.units import SECOND, WHOLE


def to_json(results: Sequence[Result], wall_s: Mapping[str, float]) -> str:
    """`{"results": [...]}`, one entry per policy; one job per line."""
    entries = [_entry(result, wall_s.get(result.policy)) for result in results]
    return '{"results": [\n' + ",\n".join(entries) + "\n]}\n"


def _entry(result: Result, wall_s: float | None) -> str:
    summary = {key: rounded(value) for key, value in asdict(result.summary).items()}
    summary["wall_s"] = rounded(wall_s)
    for last in ("events", "cost", "cost_wasted", "cost_idle"):
        summary[last] = summary.pop(last)
    head = {
        "policy": result.policy,
        "options": dict(result.options),
        "cluster": result.cluster,
        "summary": summary,
        "bins": [_rounded_all(asdict(each)) for each in result.bins],
        "delays": None if result.delays is None else _delays(result.delays),
        "queues": [_rounded_all(asdict(each)) for each in result.queues],
    }
    jobs = ",\n".join(json.dumps(job_fields(job)) for job in result.jobs)
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


def _s(ms: int | None) -> float | None:
    return None if ms is None else ms / SECOND
