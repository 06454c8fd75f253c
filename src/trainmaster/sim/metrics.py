"""Make results from accounts: the summary, size bins, curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.config.options import effective
from trainmaster.model.failure_report import JobEnd, SimulatedFailures
from trainmaster.model.result import Bin, JobResult, Result, Status, Summary
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.sim.accounting import Account, Ledger, jain
from trainmaster.sim.cost import money, queue_costs, total, wasted_part
from trainmaster.sim.deadlines import with_deadlines
from trainmaster.sim.driver import Simulation, arrival_span
from trainmaster.sim.timeseries import SIZE_BINS


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """Value[min(n-1, int(p x n))] of n sorted values: the contract's definition."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def result_of(simulation: Simulation) -> Result:
    """The result of a simulation; of an interrupted one, up to that point."""
    scenario = simulation.scenario
    jobs = with_deadlines(_job_results(simulation), simulation)
    sampler = simulation.sampler
    return Result(
        policy=simulation.policy.name,
        options=effective(simulation.policy.options),  # type: ignore[attr-defined]
        cluster=scenario.cluster,
        gpus=scenario.topology.training_gpus,
        nodes=tuple((node.name, node.gpus) for node in scenario.topology.nodes),
        summary=_summary(simulation, jobs),
        jobs=tuple(jobs),
        bins=_bins(jobs),
        delays=sampler.delays(),
        queues=queue_costs(jobs),
        utilisation=sampler.utilisation(),
        queue_length=sampler.queue_length(),
        fragmentation=sampler.fragmentation(),
        stints=tuple(simulation.ledger.stints or ()),
        horizon_s=simulation.now / SECOND if any(_is_open(job) for job in jobs) else None,
        failures=_failures(simulation, jobs),
    )


def _failures(simulation: Simulation, jobs: Iterable[JobResult]) -> SimulatedFailures | None:
    """Only where rules about failures were asked for."""
    if simulation.scenario.failure_rules is None:
        return None
    ends = [JobEnd(job.status.value, job.held) for job in jobs if job.finish_ms is not None]
    return simulation.judge.found(ends)


def _is_on_gpus(traced: TracedJob) -> bool:
    """Jobs on CPU slots are left out of numbers counted in GPUs."""
    return traced.job.demand.gpu_type != CPU_TYPE


def _is_open(job: JobResult) -> bool:
    return job.status is Status.UNFINISHED


def _job_results(simulation: Simulation) -> list[JobResult]:
    """One per job of the trace, in the trace's order."""
    accounts = simulation.ledger.accounts
    rejected = {traced.job.id for traced in simulation.rejected}
    found = []
    for traced in simulation.scenario.trace.jobs:
        account = accounts.get(traced.job.id) or Account(traced, has_failures=False)
        if account.status is not None:
            status = Status(account.status.value)
        else:
            status = Status.REJECTED if traced.job.id in rejected else Status.UNFINISHED
        found.append(_job_result(account, status, simulation))
    return found


def _job_result(account: Account, status: Status, simulation: Simulation) -> JobResult:
    traced, record, now, ledger = account.traced, account.record, simulation.now, simulation.ledger
    end = now if account.finish_ms is None else account.finish_ms
    held = account.held
    if account.holding:
        held += account.holding * (now - account.holding_since_ms)
    suspended = 0
    if account.start_ms is not None:
        suspended = max(0, end - account.start_ms - account.trained_ms)
    cost, cost_wasted = _cost(account, ledger, held, now)
    return JobResult(
        job_id=traced.job.id,
        queue=traced.job.queue,
        gpus_milli=traced.job.demand.nominal.total_share,
        service_ms=traced.service_ms,
        submit_ms=traced.job.submit_ms,
        start_ms=account.start_ms,
        finish_ms=account.finish_ms,
        suspended_ms=suspended,
        held=held,
        preemptions=record.preemptions if record is not None else 0,
        migrations=record.migrations if record is not None else 0,
        status=status,
        rho=rho_of(account, ledger, simulation.scenario.topology.training_gpus),
        cost=cost,
        cost_wasted=cost_wasted,
    )


def _cost(
    account: Account, ledger: Ledger, held: int, now: int
) -> tuple[float | None, float | None]:
    """The job's cost up to now, and the wasted part of it."""
    if ledger.cost_meter is None:
        return None, None
    spent = _spent(account, now)
    wasted = wasted_part(spent, account.charged + account.wasted, held)
    return money(spent), money(wasted)


def _spent(account: Account, now: int) -> int:
    return account.spent + account.rate * (now - account.holding_since_ms)


def rho_of(account: Account, ledger: Ledger, gpus: int, least_service_ms: int = 0) -> float | None:
    """JCT / (service x max(1, GPUs x N / cluster GPUs)); None for jobs without service or end.

    A shorter service than the least counts as that.
    """
    service = max(account.traced.service_ms, least_service_ms)
    if account.finish_ms is None or not service or not _is_on_gpus(account.traced):
        return None
    size = account.traced.job.demand.nominal.total_share / WHOLE
    crowd = max(1.0, size * ledger.mean_active(account) / gpus)
    return (account.finish_ms - account.traced.job.submit_ms) / (service * crowd)


def jcts_of(jobs: Iterable[JobResult]) -> list[float]:
    """Completion times in seconds, ascending, of the jobs that ended."""
    return sorted(job.jct_ms / SECOND for job in jobs if job.jct_ms is not None)


def mean_excess_s(jobs: Iterable[JobResult]) -> float | None:
    """Mean of JCT - service."""
    return mean([(j.jct_ms - j.service_ms) / SECOND for j in jobs if j.jct_ms is not None])


def utilisation(simulation: Simulation, span_ms: int) -> float | None:
    """GPU time making progress / (GPUs x span), over all jobs."""
    accounts = simulation.ledger.accounts.values()
    on_gpus = [account for account in accounts if _is_on_gpus(account.traced)]
    trained = sum(account.trained - account.on_slots for account in on_gpus)
    busy = trained - simulation.ledger.overlap.up_to(simulation.now)
    gpus = simulation.scenario.topology.training_gpus
    return busy / (gpus * WHOLE * span_ms) if span_ms else None


def gpu_hours_wasted(ledger: Ledger) -> float:
    """Switching, lost work, failed runs, of all jobs."""
    return sum(a.charged + a.wasted for a in ledger.accounts.values()) / (WHOLE * HOUR)


TIMES = (
    *("avg_jct_s", "avg_excess_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s"),
    *("makespan_s", "gpu_util", "max_rho", "p99_rho"),
)
"""Fields that are None in a summary if any job has not ended."""


def _times(simulation: Simulation, jobs: Sequence[JobResult]) -> dict[str, float | None]:
    ended = [job for job in jobs if job.finish_ms is not None]
    if not ended or any(_is_open(job) for job in jobs):
        return dict.fromkeys(TIMES)
    jcts = jcts_of(ended)
    rhos = sorted(job.rho for job in ended if job.rho is not None)
    makespan = max(job.finish_ms or 0 for job in ended) - min(job.submit_ms for job in ended)
    return {
        "avg_jct_s": mean(jcts),
        "avg_excess_s": mean_excess_s(ended),
        "p50_jct_s": percentile(jcts, 0.5),
        "p95_jct_s": percentile(jcts, 0.95),
        "p99_jct_s": percentile(jcts, 0.99),
        "avg_queue_s": mean([job.queue_ms / SECOND for job in ended if job.queue_ms is not None]),
        "makespan_s": makespan / SECOND,
        "gpu_util": utilisation(simulation, makespan),
        "max_rho": rhos[-1] if rhos else None,
        "p99_rho": percentile(rhos, 0.99),
    }


def _summary(simulation: Simulation, jobs: Sequence[JobResult]) -> Summary:
    ledger, gpus = simulation.ledger, simulation.scenario.topology.training_gpus
    unfinished = sum(_is_open(job) for job in jobs)
    times = _times(simulation, jobs)
    return Summary(
        jobs=len(jobs),
        finished=sum(job.finish_ms is not None for job in jobs),
        rejected=len(simulation.rejected),
        unfinished=unfinished,
        load=load_of(simulation.accepted, gpus),
        avg_jct_lower_bound_s=lower_bound_s(jobs, simulation.now) if unfinished else None,
        gpu_hours_wasted=gpu_hours_wasted(ledger),
        preemptions=sum(job.preemptions for job in jobs),
        migrations=sum(job.migrations for job in jobs),
        jain_index=_jain_index(ledger, jobs),
        events=simulation.events,
        cost=total([job.cost for job in jobs]),
        cost_wasted=total([job.cost_wasted for job in jobs]),
        cost_idle=_cost_idle(ledger, times["makespan_s"], simulation.now),
        **times,
    )


def _cost_idle(ledger: Ledger, makespan_s: float | None, now: int) -> float | None:
    """None without prices, or where the horizon left jobs unfinished."""
    if ledger.cost_meter is None or makespan_s is None:
        return None
    spent = sum(_spent(account, now) for account in ledger.accounts.values())
    return money(ledger.cost_meter.idle(round(makespan_s * SECOND), spent, now))


def load_of(jobs: Sequence[TracedJob], gpus: int) -> float | None:
    """Sum of GPUs x service / (GPUs of the cluster x arrival span); None without a span."""
    span = arrival_span(jobs)
    if not span:
        return None
    counted = [traced for traced in jobs if _is_on_gpus(traced)]
    work = sum(traced.job.demand.nominal.total_share * traced.service_ms for traced in counted)
    return work / (gpus * WHOLE * span)


def lower_bound_s(jobs: Sequence[JobResult], now: int) -> float | None:
    """Mean JCT if every unfinished job ended at the horizon; jobs submitted later are left out."""
    counted = [job for job in jobs if job.status is not Status.REJECTED and job.submit_ms <= now]
    ends = [(now if job.finish_ms is None else job.finish_ms) - job.submit_ms for job in counted]
    return mean([end / SECOND for end in ends])


def _jain_index(ledger: Ledger, jobs: Sequence[JobResult]) -> float | None:
    received: dict[str, int] = {}
    for job in jobs:
        received[job.queue] = received.get(job.queue, 0) + job.held
    entitled = ledger.fairness.entitled
    return jain([received.get(queue, 0) / share for queue, share in entitled.items() if share])


def _bins(jobs: Sequence[JobResult]) -> tuple[Bin, ...]:
    """JCT by size class; classes without an ended job are left out."""
    found = []
    for label, low, high in SIZE_BINS:
        inside = [j for j in jobs if low <= j.gpus_milli <= high and j.finish_ms is not None]
        if not inside:
            continue
        jcts = jcts_of(inside)
        queues = [job.queue_ms / SECOND for job in inside if job.queue_ms is not None]
        found.append(
            Bin(
                label=label,
                jobs=len(inside),
                avg_jct_s=mean(jcts),
                p50_jct_s=percentile(jcts, 0.5),
                p95_jct_s=percentile(jcts, 0.95),
                avg_queue_s=mean(queues),
            )
        )
    return tuple(found)
