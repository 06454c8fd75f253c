"""From a simulation to its score: the measures over the measured jobs, as docs/evaluation.md has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import pstdev

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
from trainmaster.evaluation.window import Window
from trainmaster.model.result import JobResult, Result, Status
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.sim.driver import Simulation, arrival_span
from trainmaster.sim.metrics import load_of, mean, percentile, result_of

DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Times:
    """What is None as soon as one measured job has not ended."""

    mean_jct_s: float | None = None
    passed_jct_s: float | None = None
    excess_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    std_s: float | None = None
    queue_s: float | None = None
    makespan_s: float | None = None
    rho_p99: float | None = None
    rho_over_1: float | None = None
    rho_max: float | None = None
    run_s: float | None = None
    run_max_s: float | None = None
    run_std_s: float | None = None
    bins: tuple[BinTimes, ...] = ()
    excess_blocks_s: tuple[float, ...] = ()


def score_of(
    simulation: Simulation, window: Window, chosen: Mapping[str, str] | None, tuning_jobs: int
) -> Score:
    """The score of a simulation that has run until its measured jobs had ended, or could not."""
    result = result_of(simulation)
    traced = window.measured(simulation.scenario.trace.jobs)
    jobs = _measured(result, traced)
    counted = [each for each in jobs if each.status is not Status.REJECTED]
    gpus, load = result.gpus, load_of(simulation.accepted, result.gpus)
    times = _times(simulation, counted)
    unfinished = sum(each.status is Status.UNFINISHED for each in counted)
    return Score(
        jobs=len(counted),
        load=_rounded(load),
        window_load=_rounded(_window_load(traced, window, gpus)),
        is_transient=load is None or round(load, 3) >= TRANSIENT,
        gpus=gpus,
        mean_jct_s=times.mean_jct_s,
        passed_jct_s=times.passed_jct_s,
        floor_s=_rounded(mean([each.service_ms / SECOND for each in counted])),
        excess_s=times.excess_s,
        p50_s=times.p50_s,
        p95_s=times.p95_s,
        p99_s=times.p99_s,
        max_s=times.max_s,
        std_s=times.std_s,
        queue_s=times.queue_s,
        makespan_s=times.makespan_s,
        gpu_util=_rounded(_utilisation(simulation)),
        gpu_hours_wasted=round(_wasted(simulation), DECIMALS),
        preemptions=sum(each.preemptions for each in counted),
        migrations=sum(each.migrations for each in counted),
        rho_p99=times.rho_p99,
        rho_over_1=times.rho_over_1,
        rho_max=times.rho_max,
        rejected=len(jobs) - len(counted),
        unfinished=unfinished,
        lower_bound_s=_rounded(_lower_bound(counted, simulation.now)) if unfinished else None,
        after_arrivals=_after_arrivals(simulation, counted),
        cost=_cost(counted),
        chosen=chosen,
        tuning_jobs=tuning_jobs,
        delays=_delays(result),
        run_s=times.run_s,
        run_max_s=times.run_max_s,
        run_std_s=times.run_std_s,
        bins=times.bins,
        excess_blocks_s=times.excess_blocks_s,
        remarks=tuple(_remarks(simulation)),
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
    return mean(found)


def _measured(result: Result, traced: Sequence[TracedJob]) -> list[JobResult]:
    names = {each.job.id for each in traced}
    return [each for each in result.jobs if each.job_id in names]


def _window_load(traced: Sequence[TracedJob], window: Window, gpus: int) -> float | None:
    """Over the window itself, which goes on after its last job."""
    load, span = load_of(traced, gpus), window.until_ms - window.from_ms
    return None if load is None or not span else load * arrival_span(traced) / span


def _times(simulation: Simulation, jobs: Sequence[JobResult]) -> Times:
    if not jobs or any(each.finish_ms is None for each in jobs):
        return Times()
    jcts = sorted(_jct_s(each) for each in jobs)
    passed = [_jct_s(each) for each in jobs if each.status is Status.SUCCEEDED]
    runs = [_jct_s(each) - _queue_s(each) for each in jobs]
    rhos = sorted(rhos_of(simulation, jobs))
    first = simulation.scenario.trace.jobs[0].job.submit_ms
    last = max(each.finish_ms or 0 for each in jobs)
    return Times(
        mean_jct_s=_rounded(mean(jcts)),
        passed_jct_s=_rounded(mean(passed)),
        excess_s=_rounded(mean([_jct_s(each) - each.service_ms / SECOND for each in jobs])),
        p50_s=percentile(jcts, 0.5),
        p95_s=percentile(jcts, 0.95),
        p99_s=percentile(jcts, 0.99),
        max_s=jcts[-1],
        std_s=_rounded(pstdev(jcts)),
        queue_s=_rounded(mean([_queue_s(each) for each in jobs])),
        makespan_s=(last - first) / SECOND,
        rho_p99=_rounded(percentile(rhos, 0.99)),
        rho_over_1=_rounded(mean([float(rho > 1) for rho in rhos])),
        rho_max=_rounded(rhos[-1] if rhos else None),
        run_s=_rounded(mean(runs)),
        run_max_s=_rounded(max(runs)),
        run_std_s=_rounded(pstdev(runs)),
        bins=_bins(jobs),
        excess_blocks_s=_excess_blocks(jobs),
    )


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
        average, p95 = sum(values) / len(values), percentile(sorted(values), 0.95)
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
    """A job that was stopped without ever running queued for all its life."""
    return _jct_s(job) if job.queue_ms is None else job.queue_ms / SECOND


def rhos_of(simulation: Simulation, jobs: Sequence[JobResult]) -> list[float]:
    """JCT / (service x max(1, GPUs x N / cluster GPUs)), no service below the floor; GPU jobs only."""
    ledger, gpus = simulation.ledger, simulation.scenario.topology.training_gpus
    found = []
    for each in jobs:
        account = ledger.accounts[each.job_id]
        if account.traced.job.demand.gpu_type == CPU_TYPE:
            continue
        crowd = max(1.0, each.gpus_milli / WHOLE * ledger.mean_active(account) / gpus)
        service_s = max(each.service_ms / SECOND, SERVICE_FLOOR_S)
        found.append(_jct_s(each) / (service_s * crowd))
    return found


def _utilisation(simulation: Simulation) -> float | None:
    """Over all jobs, from the first submission to where the simulation stopped."""
    first = simulation.scenario.trace.jobs[0].job.submit_ms
    gpus, span = simulation.scenario.topology.training_gpus, simulation.now - first
    accounts = simulation.ledger.accounts.values()
    on_gpus = [a for a in accounts if a.traced.job.demand.gpu_type != CPU_TYPE]
    trained = sum(account.trained - account.on_slots for account in on_gpus)
    busy = trained - simulation.ledger.overlap(simulation.now)
    return busy / (gpus * WHOLE * span) if span else None


def _wasted(simulation: Simulation) -> float:
    accounts = simulation.ledger.accounts.values()
    return sum(account.charged + account.wasted for account in accounts) / (WHOLE * HOUR)


def _lower_bound(jobs: Sequence[JobResult], now: int) -> float | None:
    """Mean JCT if every job still open ended where the simulation did; later ones count nothing."""
    seen = [each for each in jobs if each.submit_ms <= now]
    ends = [(now if each.finish_ms is None else each.finish_ms) - each.submit_ms for each in seen]
    return mean([end / SECOND for end in ends])


def _after_arrivals(simulation: Simulation, jobs: Sequence[JobResult]) -> int:
    last = simulation.accepted[-1].job.submit_ms if simulation.accepted else 0
    return sum(each.finish_ms is None or each.finish_ms > last for each in jobs)


def _cost(jobs: Sequence[JobResult]) -> float | None:
    costs = [each.cost for each in jobs if each.cost is not None]
    return round(sum(costs), DECIMALS) if costs else None


def _delays(result: Result) -> tuple[SizeDelay, ...]:
    if result.delays is None:
        return ()
    return tuple(
        SizeDelay(
            size=each.label,
            fair_share_s=round(each.fair_share_s, DECIMALS),
            fragmentation_s=round(each.fragmentation_s, DECIMALS),
            contention_s=round(each.contention_s, DECIMALS),
        )
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
