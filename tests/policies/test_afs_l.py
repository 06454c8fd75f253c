"""AFS-L: the tournament as printed, its reason, odd curves, and what each rule is worth."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from tests.builders import a_job, a_policy, a_scenario, finishes, outcome_of, traced
from tests.policies.cases import Case
from tests.policies.test_max_min import SCATTERED, sizes
from tests.property.drive import Drive
from trainmaster.core.state import JobRecord
from trainmaster.evaluation.suite import Generated, Workload, WorkloadChanges
from trainmaster.evaluation.workloads import stream_of
from trainmaster.mechanisms.gpu_claims import Allocator, GpuClaim, Pool
from trainmaster.mechanisms.reallocating_policy import ReallocatingOptions
from trainmaster.mechanisms.speedup_curves import curve_of
from trainmaster.model.job import gpus
from trainmaster.model.units import NOMINAL, SECOND, WHOLE
from trainmaster.perf.perf_model import IDEAL
from trainmaster.perf.scaling import Elasticity
from trainmaster.policies.afs_l import AfsAllocator, AfsL, IdenticalJobs, beats
from trainmaster.sim.driver import Estimates, Scenario

SUB = (1.0, 1.9, 2.7, 3.4, 4.0, 4.5)
POOR = (1.0, 1.3, 1.5, 1.6, 1.65, 1.68)
LINEAR = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
Speeds = tuple[float, ...]

WORLD = replace(
    IDEAL,
    name="curves",
    elasticity=Elasticity(
        models={
            name: {n: round(speed * NOMINAL) for n, speed in enumerate(speeds, 1)}
            for name, speeds in {"sub": SUB, "poor": POOR, "lin": LINEAR}.items()
        }
    ),
)


def claim(number: int, units: float, speeds: Speeds, low: int = 1) -> GpuClaim:
    """A job of so many seconds on one GPU."""
    high = len(speeds)
    job = a_job(f"j{number}", gpus(low, maximum=high))
    made = GpuClaim(JobRecord(job, number, 0, None, None), low, low * WHOLE, (0,))
    exact = tuple(round(speed * NOMINAL) for speed in speeds)
    made.curve = curve_of(exact, low, high, NOMINAL)
    made.high, made.work = high, round(units * SECOND) * NOMINAL
    return made


def divided(count: int, jobs: list[tuple[float, Speeds]], low: int = 1) -> list[int]:
    """Shares of so many GPUs; jobs come to the tournament shortest first."""
    claims = [claim(n, units, speeds, low) for n, (units, speeds) in enumerate(jobs)]
    allocator = AfsAllocator(Pool([count * WHOLE], None))
    for each in sorted(claims, key=lambda made: made.work):
        allocator.admit(each)
    allocator.finish()
    return [each.count for each in claims]


def order_of_gpus(count: int, short: Speeds, long: Speeds) -> str:
    """Who gets the first GPU, the second …: S has 10 units, L 100."""
    order, before = "", [0, 0]
    for gpu in range(1, count + 1):
        shares = divided(gpu, [(10, short), (100, long)])
        order += "S" if shares[0] > before[0] else "L"
        before = shares
    return order


# -- as printed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "long", "order", "shares"),
    [
        (SUB, SUB, "SLSLSL", [3, 3]),
        (POOR, SUB, "SLLSLL", [2, 4]),
        (LINEAR, LINEAR, "SSLSLS", [4, 2]),
    ],
)
def test_the_order_in_which_gpus_are_given(
    short: Speeds, long: Speeds, order: str, shares: list[int]
) -> None:
    assert order_of_gpus(6, short, long) == order
    assert divided(6, [(10, short), (100, long)]) == shares


def two_jobs(short: str, long: str) -> Scenario:
    any_size = gpus(1, maximum=6)
    jobs = [traced("L", any_size, 100, model=long), traced("S", any_size, 10, model=short)]
    return a_scenario(jobs, "1x6", WORLD)


def test_both_sublinear_in_simulation() -> None:
    """3/3 until S ends at 10/2.7 s; L has 90 units left then, and six GPUs."""
    drive = Drive(two_jobs("sub", "sub"), a_policy("afs-l")).run()
    assert sorted(sizes(drive)[:2]) == [(0, "L", 3), (0, "S", 3)]
    ends = finishes(outcome_of(two_jobs("sub", "sub"), a_policy("afs-l")))
    assert ends == {"S": 3.704, "L": 23.704}


def test_a_short_job_that_scales_badly_gets_less_in_simulation() -> None:
    drive = Drive(two_jobs("poor", "sub"), a_policy("afs-l")).run()
    assert sorted(sizes(drive)[:2]) == [(0, "L", 4), (0, "S", 2)]


def test_more_jobs_than_gpus_the_shortest_run_and_a_newcomer_takes_the_longest_ones_place() -> None:
    any_size = gpus(1, maximum=2)
    jobs = [
        traced("long", any_size, 100, model="sub"),
        traced("short", any_size, 30, model="sub"),
        traced("late", any_size, 5, at_s=10, model="sub"),
    ]
    ends = finishes(outcome_of(a_scenario(jobs, "1x2", WORLD), a_policy("afs-l")))
    assert ends["late"] == 15
    assert ends["short"] == 30


# -- why ---------------------------------------------------------------------------------------------


def test_the_comparison_is_the_one_that_lets_two_jobs_end_sooner() -> None:
    """Section 7, 'Why', on random curves: sums of both ends, by who gets the GPU first."""
    chance = Random(7)
    rises = 0
    for _ in range(20_000):
        p_a, p_b = (chance.randint(1, 1_000) for _ in "ab")
        more_a, more_b = p_a + chance.randint(0, p_a), p_b + chance.randint(0, p_b)
        w_a = Fraction(chance.randint(1, 1_000))
        w_b = w_a * Fraction(more_b, p_a) * chance.randint(2, 9)
        first_a = w_a / more_a
        a_then_b = first_a * (2 - Fraction(p_b, more_b)) + w_b / more_b
        b_at_once = w_a / p_a + w_b / more_b
        wins = beats((more_b - p_b, more_b), (more_a - p_a, p_a))
        assert wins == (b_at_once < a_then_b)
        rises += wins
    assert 2_000 < rises < 18_000


def top(jobs: list[tuple[Fraction, int, int, int]], shares: list[int]) -> int:
    """TOP as printed, one comparison after another: (length, p, p', on one GPU) by index.

    In the order that we state: those with GPUs by falling gain, then those without.
    """

    def gain(index: int) -> tuple[bool, Fraction]:
        _, now, more, _ = jobs[index]
        return (not shares[index], -Fraction(more - now, now) if now else Fraction(0))

    star, *others = sorted((n for n in range(len(jobs))), key=lambda n: (gain(n), jobs[n][0], n))
    for j in others:
        if not shares[star] and not shares[j]:
            star = min(star, j, key=lambda n: (jobs[n][0], n))
            continue
        first, second = sorted((star, j), key=lambda n: _ends(jobs[n], shares[n], n))
        _, p_a, more_a, _ = jobs[first]
        _, p_b, more_b, _ = jobs[second]
        star = second if beats((more_b - p_b, more_b), (more_a - p_a, p_a)) else first
    return star


def _ends(
    job: tuple[Fraction, int, int, int], share: int, index: int
) -> tuple[bool, Fraction, int]:
    return (not share, job[0] / job[1] if share else job[0], index)


@pytest.mark.parametrize("seed", range(150))
def test_the_heap_gives_what_the_printed_tournament_gives(seed: int) -> None:
    """Random concave curves, many of them equal or linear, one GPU after another."""
    chance = Random(seed)
    menu: list[Speeds] = [LINEAR, SUB, POOR]
    for _ in range(3):
        rises = sorted((chance.random() for _ in range(5)), reverse=True)
        menu.append(tuple(1 + sum(rises[:n]) for n in range(6)))
    jobs = [(float(chance.choice([5, 10, 20, 40, 97])), chance.choice(menu)) for _ in range(6)]
    count = chance.randint(1, 20)
    claims = [claim(n, units, speeds) for n, (units, speeds) in enumerate(jobs)]
    shares = [0] * len(jobs)
    for _ in range(count):
        open_to = [n for n, made in enumerate(claims) if shares[n] < made.high]
        if not open_to:
            break
        state = []
        for n in open_to:
            curve = claims[n].curve
            assert curve is not None
            now, more, _ = curve.gain(shares[n])
            state.append((Fraction(claims[n].work), now, more, curve.alone))
        shares[open_to[top(state, [shares[n] for n in open_to])]] += 1
    assert divided(count, jobs) == shares


def test_the_comparison_is_not_transitive() -> None:
    """Why the order of the tournament must be stated: 1 beats 2, 2 beats 3, 3 beats 1."""
    u_1, u_2, v_2, v_3 = (20, 100), (60, 100), (60, 160), (25, 100)
    assert beats(v_3, u_1)
    assert not beats(v_3, u_2)
    assert beats(v_2, u_1)
    u_1 = (38, 100)
    v_3 = (39, 100)
    assert not beats(v_2, u_1)
    assert not beats(v_3, u_2)
    assert beats(v_3, u_1)


# -- odd curves and sizes ----------------------------------------------------------------------------

STEP: Speeds = (1.0, 1.0, 1.0, 3.8)
"""Only four GPUs together help."""


def test_a_plateau_does_not_stop_growth_that_pays_further_on() -> None:
    """One by one, two GPUs bring nothing: on the hull the job is drawn on to four."""
    assert divided(4, [(50, STEP)]) == [4]
    hull = claim(0, 50, STEP).curve
    assert hull is not None
    assert [round(speed / hull.unit, 3) for speed in hull.speeds] == [0, 1, 1.933, 2.867, 3.8]
    assert hull.useful == (0, 1, 1, 1, 4)


def test_gpus_that_bring_nothing_are_given_on() -> None:
    """Of five GPUs the job with the step could have three: it takes one, the other four."""
    world = replace(
        WORLD, elasticity=Elasticity(models={"step": {1: 1_000_000, 3: 1_000_000, 4: 1_200_000}})
    )
    jobs = [
        traced("step", gpus(1, maximum=4), 50, model="step"),
        traced("other", gpus(1, maximum=4), 50),
    ]
    for name in ("afs-l", "max-min"):
        drive = Drive(a_scenario(jobs, "1x5", world), a_policy(name)).run()
        assert sorted(sizes(drive)[:2]) == [(0, "other", 4), (0, "step", 1)], name


def test_a_minimum_is_given_at_once_or_not_at_all() -> None:
    assert divided(5, [(10, SUB), (100, SUB)], low=3) == [5, 0]
    assert divided(6, [(10, SUB), (100, SUB)], low=3) == [3, 3]


def test_without_estimates_the_less_served_job_counts_as_shorter() -> None:
    any_size = gpus(1, maximum=2)
    jobs = [traced("old", any_size, 50), traced("new", any_size, 50, at_s=20)]
    scenario = replace(a_scenario(jobs, "1x1"), estimates=Estimates(known=False))
    ends = finishes(outcome_of(scenario, a_policy("afs-l")))
    assert ends == {"new": 70, "old": 100}


def test_two_gpus_in_a_node_beat_three_over_two() -> None:
    """As in max-min; the jobs' lengths are unknown here, so the one submitted first is asked first."""
    assert SCATTERED.done_by("afs-l") == SCATTERED.want


# -- what the comparison is worth ----------------------------------------------------------------------


class ShortestTakesAll(AfsAllocator):
    """The comparison switched off: the job that ends soonest gets the next GPU."""

    def _top(self) -> IdenticalJobs | None:
        winner: IdenticalJobs | None = None
        for _, _, tie in self._by_gain:
            if winner is None or tie.ends_before(winner):
                winner = tie
        return winner


class ShorterFirst(AfsL):
    def allocator(self, pool: Pool) -> Allocator:
        return ShortestTakesAll(pool)


def test_shorter_first_alone_gives_a_worse_mean() -> None:
    def mean(policy: AfsL) -> float:
        result = outcome_of(two_jobs("poor", "sub"), policy)
        assert result.summary.avg_jct_s is not None
        return result.summary.avg_jct_s

    with_it, without = mean(AfsL(ReallocatingOptions())), mean(ShorterFirst(ReallocatingOptions()))
    # 2/4: S ends at 10/1.3, L at 7.692 + (100 - 26.154)/4.5; 5/1: S at 10/1.65, L at 6.061 + 93.939/4.5
    assert with_it == pytest.approx((7.692 + 24.103) / 2, abs=1e-3)
    assert without == pytest.approx((6.061 + 26.937) / 2, abs=1e-3)
    assert with_it < without


def test_equal_shares_give_a_worse_mean_than_afs() -> None:
    """Max-min knows neither lengths nor curves: 3/3, where AFS-L gives the short one 4 of 6."""
    fair = outcome_of(two_jobs("lin", "lin"), a_policy("max-min")).summary.avg_jct_s
    afs = outcome_of(two_jobs("lin", "lin"), a_policy("afs-l")).summary.avg_jct_s
    assert fair is not None
    assert afs is not None
    assert afs < fair


# -- preemption ----------------------------------------------------------------------------------------

PREEMPTING = Case(
    cluster="rack r: n1[2]",
    jobs="long 2gpu needs 9h running on n1 attained 2min | short 2gpu needs 1min pending 0s"
    " | mid 1gpu elastic 1..2 needs 1h pending 0s",
    want="start short on n1; suspend long",
)


def test_a_shorter_gang_takes_the_place_of_a_longer_one_unless_that_has_just_begun() -> None:
    assert PREEMPTING.done_by("afs-l") == PREEMPTING.want
    guarded = replace(PREEMPTING, options={"min_run_s": 61})
    assert guarded.done_by("afs-l") == "nothing"


def test_a_run_is_not_evicted_over_and_over_so_that_another_may_grow() -> None:
    """Generated jobs, half of them elastic, where one run was halted and launched every millisecond."""
    source = Generated(500, 1.2, changes=WorkloadChanges(elastic=0.5, shrink=2, grow=4))
    jobs = stream_of(Workload("elastic", source, "16x4", (21,)), 64, 21, None).trace.jobs
    scenario = a_scenario(jobs, "16x4", until_s=1_320_630)
    blind = replace(scenario, estimates=Estimates(known=False))
    assert outcome_of(blind, a_policy("afs-l")).summary.preemptions < 100
