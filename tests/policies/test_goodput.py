"""Goodput in Pollux' manner: the division that it seeks, its penalty and its doubling, each switched off."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from benchmarks.elastic_sharing import ALONE, curves, run, workload
from tests.builders import a_policy, a_scenario, finishes, one, outcome_of, traced
from tests.policies.test_max_min import sizes
from tests.property.drive import Drive
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.gpu_claims import GpuClaim, Pool
from trainmaster.mechanisms.speedup_curves import curve_of
from trainmaster.model.job import gpus
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, SECOND, WHOLE
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.policies.goodput.optimizer import GoodputOptimizer, JobTerms, worth
from trainmaster.sim.driver import Scenario

LINEAR = tuple(range(1, 9))
AMDAHL = tuple(1 / (0.3 + 0.7 / n) for n in range(1, 9))
"""Three tenths cannot be divided."""
FLAT = (1.0,) * 8


def divided(
    *jobs: tuple[tuple[float, ...], JobTerms], gpus: int, fair: int, power: float = -1.0
) -> list[int]:
    """How many of so many GPUs jobs with these curves get."""
    claims, standings = [], {}
    for seq, (speeds, standing) in enumerate(jobs):
        record = JobRecord(traced(f"j{seq}", 1, 1).job, seq, 0, None, None)
        claim = GpuClaim(record, 1, WHOLE, (0,))
        claim.high = len(speeds)
        ppm = tuple(round(speed * NOMINAL) for speed in speeds)
        claim.curve = curve_of(ppm, 1, len(speeds), NOMINAL)
        claims.append(claim)
        standings[seq] = standing
    pool = Pool([gpus * WHOLE], None)
    division = GoodputOptimizer(pool, lambda record: standings[record.seq], fair, power)
    assert all(division.admit(claim) for claim in claims)
    division.finish()
    assert pool.left[0] >= 0
    return [claim.count for claim in claims]


NEW = JobTerms(held=0, most=8)


# -- the division ----------------------------------------------------------------------------------


def test_equals_share_evenly() -> None:
    assert divided((LINEAR, NEW), (LINEAR, NEW), gpus=8, fair=4) == [4, 4]
    assert divided((LINEAR, NEW), (LINEAR, NEW), (LINEAR, NEW), gpus=8, fair=3) == [3, 3, 2]


def test_a_job_that_cannot_use_more_gets_no_more() -> None:
    assert divided((FLAT, NEW), (LINEAR, NEW), gpus=8, fair=4) == [1, 7]


def test_the_harmonic_mean_looks_after_the_slowest() -> None:
    """On 8 GPUs, 1/s = (0.3 + 0.7/n) / 0.475 and 4/n: the sum is least at 4 and 4, or 3 and 5.

    n = 3: 1.123 + 0.8 = 1.923; n = 2: 1.368 + 0.667 = 2.035; n = 4: 1 + 1 = 2.
    """
    assert divided((AMDAHL, NEW), (LINEAR, NEW), gpus=8, fair=4) == [3, 5]


def test_the_plain_sum_of_speedups_does_not() -> None:
    """The first step of the worse one, 1/0.65 - 1 = 0.54 of 2.1, still beats 1 of 4; the next does not."""
    assert divided((AMDAHL, NEW), (LINEAR, NEW), gpus=8, fair=4, power=1.0) == [2, 6]
    assert divided((AMDAHL, NEW), (LINEAR, NEW), gpus=8, fair=4, power=0.0) == [3, 5]


def test_nobody_gets_more_than_may_be() -> None:
    assert divided((LINEAR, JobTerms(0, 2)), (LINEAR, JobTerms(0, 3)), gpus=8, fair=4) == [2, 3]


def test_moving_must_be_worth_its_penalty() -> None:
    """From 4 of 8 to 8 is twice the speed, to 5 a quarter more: worth it at 0.6, not at 0.4."""
    for penalty, want in ((0.6, 8), (0.4, 4)):
        assert divided((LINEAR, JobTerms(4, 8, penalty)), gpus=8, fair=8) == [want]
    for penalty, want in ((0.9, 5), (0.7, 4)):
        assert divided((LINEAR, JobTerms(4, 8, penalty)), gpus=5, fair=8) == [want]


def test_what_is_fixed_stays() -> None:
    kept = JobTerms(held=2, most=2, fixed=2)
    assert divided((LINEAR, kept), (LINEAR, NEW), gpus=8, fair=4) == [2, 6]
    owed = JobTerms(held=2, most=2, fixed=5)
    assert divided((LINEAR, owed), (LINEAR, NEW), gpus=8, fair=4) == [5, 3]
    assert divided((LINEAR, JobTerms(1, 1, fixed=1)), (LINEAR, owed), gpus=4, fair=4) == [1, 2]


def random_case(chance: Random) -> tuple[list[tuple[tuple[float, ...], JobTerms]], int]:
    jobs = []
    for _ in range(chance.randint(2, 4)):
        serial, high = chance.choice([0.01, 0.1, 0.3, 0.6]), chance.randint(1, 6)
        speeds = tuple(1 / (serial + (1 - serial) / n) for n in range(1, high + 1))
        held = chance.randint(1, min(3, high))
        penalty = chance.choice([1.0, 0.9, 0.6, 0.3])
        jobs.append((speeds, JobTerms(held, 2 * held, penalty)))
    return jobs, sum(standing.held for _, standing in jobs) + chance.randint(0, 3)


def test_steps_find_the_best_of_all_divisions_or_nearly() -> None:
    """Against trying every one: equal in all but a few of a thousand, never worse than staying."""
    missed = 0
    for seed in range(1_000):
        jobs, gpus = random_case(Random(seed))
        fair = -(-gpus // len(jobs))

        def total(counts: tuple[int, ...]) -> float:
            found = 0.0
            for (speeds, standing), count in zip(jobs, counts, strict=True):  # noqa: B023
                unit = speeds[min(fair, len(speeds)) - 1]  # noqa: B023
                factor = 1.0 if count == standing.held else standing.penalty
                found += worth(speeds[count - 1] / unit * factor, -1.0)
            return found

        choices = [range(1, min(len(speeds), each.most) + 1) for speeds, each in jobs]
        fitting = [counts for counts in product(*choices) if sum(counts) <= gpus]
        got = total(tuple(divided(*jobs, gpus=gpus, fair=fair)))
        assert got >= total(tuple(each.held for _, each in jobs)) - 1e-6
        missed += got < max(map(total, fitting)) - 1e-3
    assert missed <= 5


# -- the policy ------------------------------------------------------------------------------------


def elastic(name: str, low: int, high: int, service_s: float, *, at_s: float = 0.0) -> TracedJob:
    """It takes that long on `high` GPUs, and as much longer on fewer as these are fewer."""
    return traced(name, gpus(high, minimum=low), service_s, at_s=at_s)


def resizings(
    jobs: list[TracedJob], cluster: str, **options: object
) -> list[tuple[float, str, int]]:
    return sizes(Drive(a_scenario(jobs, cluster), a_policy("goodput", **options)).run())


def test_shares_at_most_double_at_each_interval() -> None:
    """Alone on eight GPUs."""
    got = resizings([elastic("a", 1, 8, 250, at_s=1)], "1x8", resize_cost_s=0)
    assert got == [(1, "a", 1), (60, "a", 2), (120, "a", 4), (180, "a", 8)]


def test_the_penalty_keeps_young_jobs_where_they_are() -> None:
    """At 60 s, a is 59 old: 59/89 of twice the speed is worth it. With 90 s a move, 59/149 is not.

    At 120 s it is: 119/209 of twice the speed.
    """
    job = elastic("a", 1, 8, 250, at_s=1)
    assert resizings([job], "1x8", resize_cost_s=30)[1] == (60, "a", 2)
    assert resizings([job], "1x8", resize_cost_s=90)[1] == (120, "a", 2)


def test_a_newcomer_starts_on_what_is_free_and_shares_at_the_next_interval() -> None:
    old, new = elastic("a", 1, 4, 900), elastic("b", 1, 4, 900, at_s=400)
    got = resizings([old, new], "1x4", resize_cost_s=0)
    assert got[:3] == [(0, "a", 1), (60, "a", 2), (120, "a", 4)]
    assert got[3:5] == [(420, "a", 3), (420, "b", 1)], "minima first: a keeps the rest"
    assert got[5:7] == [(480, "a", 2), (480, "b", 2)]


def test_rigid_jobs_keep_their_size_and_are_never_suspended() -> None:
    jobs = [traced("rigid", 4, 600), elastic("a", 1, 4, 100, at_s=1)]
    result = outcome_of(a_scenario(jobs, "1x4"), a_policy("goodput"))
    assert finishes(result)["rigid"] == 600
    assert result.summary.preemptions == 0
    assert one(result, "a").start_ms == 600 * SECOND


def test_the_job_that_needs_least_starts_first() -> None:
    jobs = [traced("now", 4, 10), traced("wide", 3, 10, at_s=1), traced("slim", 2, 10, at_s=2)]
    ends = finishes(outcome_of(a_scenario(jobs, "1x4"), a_policy("goodput")))
    assert ends == {"now": 10, "slim": 20, "wide": 30}


def test_an_elastic_job_shrinks_to_let_a_rigid_one_in() -> None:
    jobs = [elastic("a", 1, 4, 1_000), traced("r", 2, 50, at_s=500)]
    result = outcome_of(a_scenario(jobs, "1x4"), a_policy("goodput"))
    assert one(result, "r").start_ms == 540 * SECOND, "at the next whole minute"
    assert result.summary.preemptions == 0


def test_between_jobs_it_sleeps() -> None:
    """Nothing changes for an hour: it looks again when ages have grown by a quarter, not each minute."""
    drive = Drive(a_scenario([elastic("a", 1, 2, 3_600)], "1x2"), a_policy("goodput")).run()
    assert len([step for step in drive.steps if step.decision.planned]) < 40


@pytest.mark.parametrize("seed", [0, 1])
def test_the_penalty_spares_moves_that_cost(seed: int) -> None:
    """64 jobs of eight models on 64 GPUs, 30 s for a resizing: it wastes less than without."""
    scenario = Scenario(
        workload(64, 64, seed, largest=16), parse_shorthand("16x4"), "16x4", curves(ALONE)
    )
    wasted = {
        cost: outcome_of(scenario, a_policy("goodput", resize_cost_s=cost)).summary.gpu_hours_wasted
        for cost in (0, 30, 300)
    }
    assert wasted[0] > wasted[30] > wasted[300]


@pytest.mark.parametrize("world", [IDEAL, ALONE], ids=["ideal", "switching and spans cost"])
def test_dynamic_shares_beat_static_ones(world: PerfModel) -> None:
    trace = workload(64, 64, 0, largest=16)
    static, dynamic = (
        run(trace, "16x4", curves(world), name, {})[0] for name in ("fifo", "goodput")
    )
    for measure in ("avg_jct_s", "makespan_s"):
        assert 0 < getattr(dynamic, measure) < getattr(static, measure)
