"""From a simulation to its score: the measures over the measured jobs, as docs/evaluation.md has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import pstdev
from typing import Any

from trainmaster.evaluation.score import (
    BLOCKS,
    SERVICE_FLOOR_S,
    SHORT_S,
    SMALL_GPUS,
    TRANSIENT,
    BinTimes,
    Score,
    SizeDelay,
)
from trainmaster.evaluation.workloads import MeasurementWindow
from trainmaster.model.result import JobResult, Result, Status
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.sim import metrics
from trainmaster.sim.cost import total
from trainmaster.sim.driver import Simulation, arrival_span

DECIMALS = 6


def score_of(
    simulation: Simulation,
    window: MeasurementWindow,
    chosen: Mapping[str, str] | None,
    tuning_jobs: int,
) -> Score:
    """The score of a simulation that has run until its measured jobs had ended, or could not."""
    result = metrics.result_of(simulation)
    traced = window.measured(simulation.scenario.trace.jobs)
    jobs = _measured(result, traced)
    counted = [each for each in jobs if each.status is not Status.REJECTED]
    load = metrics.load_of(simulation.accepted, result.gpus)
    unfinished = sum(each.status is Status.UNFINISHED for each in counted)
    first = simulation.scenario.trace.jobs[0].job.submit_ms
    return Score(
        jobs=len(counted),
        load=_rounded(load),
        window_load=_rounded(_window_load(traced, window, result.gpus)),
        is_transient=load is None or round(load, 3) >= TRANSIENT,
        gpus=result.gpus,
        floor_s=_rounded(metrics.mean([each.service_ms / SECOND for each in counted])),
        gpu_util=_rounded(metrics.utilisation(simulation, simulation.now - first)),
        gpu_hours_wasted=round(metrics.gpu_hours_wasted(simulation.ledger), DECIMALS),
        preemptions=sum(each.preemptions for each in counted),
        migrations=sum(each.migrations for each in counted),
        rejected=len(jobs) - len(counted),
        unfinished=unfinished,
        lower_bound_s=_rounded(metrics.lower_bound_s(counted, simulation.now))
        if unfinished
        else None,
        after_arrivals=_after_arrivals(simulation, counted),
        cost=_rounded(total([each.cost for each in counted])),
        chosen=chosen,
        tuning_jobs=tuning_jobs,
        delays=_delays(result),
        remarks=tuple(_remarks(simulation)),
        **_times(simulation, counted),
    )


def excess_of(simulation: Simulation) -> float | None:
    """Mean of JCT - service over all jobs that could run; None if one of them did not end."""
    accounts = simulation.ledger.accounts
    found = []
    for each in simulation.accepted:
        account = accounts.get(each.job.id)
        if account is None or account.finish_ms is None:
            return None
        found.append((account.finish_ms - each.job.submit_ms - each.service_ms) / SECOND)
    return metrics.mean(found)


def _measured(result: Result, traced: Sequence[TracedJob]) -> list[JobResult]:
    names = {each.job.id for each in traced}
    return [each for each in result.jobs if each.job_id in names]


def _window_load(traced: Sequence[TracedJob], window: MeasurementWindow, gpus: int) -> float | None:
    """Over the window itself, which goes on after its last job."""
    load, span = metrics.load_of(traced, gpus), window.until_ms - window.from_ms
    return None if load is None or not span else load * arrival_span(traced) / span


def _times(simulation: Simulation, jobs: Sequence[JobResult]) -> dict[str, Any]:
    """The measures that exist only if every measured job has ended."""
    if not jobs or any(each.finish_ms is None for each in jobs):
        return {}
    jcts = metrics.jcts_of(jobs)
    runs = [_jct_s(each) - _queue_s(each) for each in jobs]
    rhos = sorted(rhos_of(simulation, jobs))
    first = simulation.scenario.trace.jobs[0].job.submit_ms
    last = max(each.finish_ms or 0 for each in jobs)
    numbers = {
        "mean_jct_s": metrics.mean(jcts),
        "passed_jct_s": metrics.mean(
            metrics.jcts_of(e for e in jobs if e.status is Status.SUCCEEDED)
        ),
        "excess_s": metrics.mean_excess_s(jobs),
        "p50_s": metrics.percentile(jcts, 0.5),
        "p95_s": metrics.percentile(jcts, 0.95),
        "p99_s": metrics.percentile(jcts, 0.99),
        "max_s": jcts[-1],
        "std_s": pstdev(jcts),
        "queue_s": metrics.mean([_queue_s(each) for each in jobs]),
        "makespan_s": (last - first) / SECOND,
        "rho_p99": metrics.percentile(rhos, 0.99),
        "rho_over_1": metrics.mean([float(rho > 1) for rho in rhos]),
        "rho_max": rhos[-1] if rhos else None,
        "run_s": metrics.mean(runs),
        "run_max_s": max(runs),
        "run_std_s": pstdev(runs),
    }
    rounded = {key: _rounded(value) for key, value in numbers.items()}
    return rounded | {"bins": _bins(jobs), "excess_blocks_s": _excess_blocks(jobs)}


def _bins(jobs: Sequence[JobResult]) -> tuple[BinTimes, ...]:
    """By size, then by length, smaller and shorter first."""
    jcts: dict[tuple[bool, bool], list[float]] = {}
    for each in jobs:
        is_large = each.gpus_milli > SMALL_GPUS * WHOLE
        is_long = each.service_ms > SHORT_S * SECOND
        jcts.setdefault((is_large, is_long), []).append(_jct_s(each))
    found = []
    for (is_large, is_long), values in sorted(jcts.items()):
        label = f"{'large' if is_large else 'small'}-{'long' if is_long else 'short'}"
        average, p95 = sum(values) / len(values), metrics.percentile(sorted(values), 0.95)
        assert p95 is not None
        found.append(BinTimes(label, len(values), round(average, DECIMALS), round(p95, DECIMALS)))
    return tuple(found)


def _excess_blocks(jobs: Sequence[JobResult]) -> tuple[float, ...]:
    """Mean excess of equal runs of consecutive submissions; none where they would be single jobs."""
    if len(jobs) < 2 * BLOCKS:
        return ()
    ordered = sorted(jobs, key=lambda each: each.submit_ms)
    excess = [_jct_s(each) - each.service_ms / SECOND for each in ordered]
    cuts = [place * len(excess) // BLOCKS for place in range(BLOCKS + 1)]
    return tuple(round(sum(excess[a:b]) / (b - a), DECIMALS) for a, b in pairwise(cuts))


def _jct_s(job: JobResult) -> float:
    assert job.jct_ms is not None
    return job.jct_ms / SECOND


def _queue_s(job: JobResult) -> float:
    """A job that was stopped without ever running was queued until then."""
    return _jct_s(job) if job.queue_ms is None else job.queue_ms / SECOND


def rhos_of(simulation: Simulation, jobs: Sequence[JobResult]) -> list[float]:
    """Of the jobs on GPUs, no service counted below the floor."""
    ledger, gpus = simulation.ledger, simulation.scenario.topology.training_gpus
    least_ms = SERVICE_FLOOR_S * SECOND
    rhos = (metrics.rho_of(ledger.accounts[each.job_id], ledger, gpus, least_ms) for each in jobs)
    return [rho for rho in rhos if rho is not None]


def _after_arrivals(simulation: Simulation, jobs: Sequence[JobResult]) -> int:
    last = simulation.accepted[-1].job.submit_ms if simulation.accepted else 0
    return sum(each.finish_ms is None or each.finish_ms > last for each in jobs)


def _delays(result: Result) -> tuple[SizeDelay, ...]:
    if result.delays is None:
        return ()
    parts = ("fair_share_s", "fragmentation_s", "contention_s")
    return tuple(
        SizeDelay(each.label, *(round(getattr(each, part), DECIMALS) for part in parts))
        for each in result.delays.by_size
    )


def _remarks(simulation: Simulation) -> list[str]:
    """What a reader of the score should know."""
    found = []
    if simulation.refusals:
        first = simulation.refusals[0]
        found.append(
            f"{len(simulation.refusals)} of its actions were refused, the first for job"
            f" {first.job}: {first.why.value}"
        )
    if not simulation.accepted:
        found.append("no job fits the cluster")
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)
