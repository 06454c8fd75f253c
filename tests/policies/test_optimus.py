"""Optimus (EuroSys'18): marginal gain, what it learns, and its placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, finishes, one, outcome_of, simulated, traced
from tests.policies.cases import Case
from tests.property.drive import Drive
from trainmaster.core.view import View
from trainmaster.mechanisms.gpu_claims import Pool
from trainmaster.model import actions as a
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Placement
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel
from trainmaster.perf.scaling import Elasticity
from trainmaster.policies.optimus.convergence_forecast import fitted_speeds
from trainmaster.policies.optimus.marginal_gain import WorkerClaim, grow
from trainmaster.policies.optimus.policy import Optimus, OptimusOptions
from trainmaster.policies.optimus.worker_allocation import WorkerAllocation
from trainmaster.policies.optimus.worker_placement import WorkerPlacement
from trainmaster.sim.driver import Estimates, Scenario

SPEEDUPS = {"j1": (1.0, 1.8, 2.4, 2.8), "j2": (1.0, 1.5, 1.8, 1.9)}


class Machines:
    """Room for so many workers."""

    def __init__(self, workers: int) -> None:
        self.left = workers

    def takes(self, claim: WorkerClaim) -> bool:
        has_room = self.left > 0
        self.left -= has_room
        return has_room


def one_worker(name: str, work: float) -> WorkerClaim:
    return WorkerClaim(name, work, dict(enumerate(SPEEDUPS[name], start=1)), 1)


# -- the greedy ------------------------------------------------------------------------------------


def test_the_worked_example_step_by_step() -> None:
    """6 GPUs, Q = (10, 20); the first worker of each is given."""
    claims, room = [one_worker("j1", 10), one_worker("j2", 20)], Machines(6 - 2)
    steps = grow(claims, room.takes)
    assert [(name, round(gain, 3)) for name, gain in steps] == [
        ("j2", 6.667),
        ("j1", 4.444),
        ("j2", 2.222),
        ("j1", 1.389),
    ]
    assert [claim.count for claim in claims] == [3, 3]


def test_it_stops_where_nothing_is_gained_or_nothing_is_left() -> None:
    flat = WorkerClaim("flat", 10, dict.fromkeys(range(1, 10), 1.0), 1)
    assert grow([flat], Machines(9).takes) == []
    assert grow([one_worker("j1", 10)], Machines(0).takes) == []


# -- the same through simulations ------------------------------------------------------------------


def tables(**models: tuple[float, ...]) -> PerfModel:
    made: Mapping[str, Mapping[int, int]] = {
        name: {n + 1: round(speed * NOMINAL) for n, speed in enumerate(speeds)}
        for name, speeds in models.items()
    }
    return replace(IDEAL, elasticity=Elasticity(868_000, made))


WORLD = tables(**SPEEDUPS)
FOUR = gpus(1, minimum=1, maximum=4)
PAIR = (traced("J1", FOUR, 10, model="j1"), traced("J2", FOUR, 20, model="j2"))


def counts(scenario: Scenario, policy: object) -> dict[str, int]:
    """GPUs of each job at the horizon."""
    jobs = simulated(scenario, policy).controller.state.jobs.values()  # type: ignore[arg-type]
    return {each.id: len(each.placement.slices) for each in jobs if each.placement is not None}


@pytest.mark.parametrize("learn", ["given", "fit"])
def test_the_worked_example_as_a_trace(learn: str) -> None:
    """Three GPUs each at once: 10 / 2.4 and 20 / 1.8 seconds."""
    policy = a_policy("optimus", learn=learn)
    assert counts(a_scenario(PAIR, "1x6", WORLD, until_s=1), policy) == {"J1": 3, "J2": 3}
    result = outcome_of(a_scenario(PAIR, "1x6", WORLD), policy)
    assert finishes(result) == {"J1": 4.167, "J2": 11.112}


def test_what_an_ended_job_leaves_is_divided_at_the_end_of_the_interval() -> None:
    """J2 takes its fourth GPU at 5 s: 11 of its 20 are left then, at 1.9."""
    result = outcome_of(a_scenario(PAIR, "1x6", WORLD), a_policy("optimus", interval_s=5))
    assert finishes(result) == {"J1": 4.167, "J2": pytest.approx(5 + 11 / 1.9, abs=0.002)}


class EqualHeadcount(WorkerAllocation):
    """The mechanism switched off: workers in turn, whatever they gain."""

    def claim(self, record, count):  # type: ignore[no-untyped-def]
        made = super().claim(record, count)
        return replace(made, work=1.0, speeds={n: float(n) for n in made.speeds})


class EqualSplit(Optimus):
    def allocation(self, view: View, pool: Pool, now: int) -> WorkerAllocation:
        made = super().allocation(view, pool, now)
        return EqualHeadcount(view.occupancy, pool, made.forecasts, now)


def test_marginal_gain_beats_an_equal_split() -> None:
    """One job hardly gains from more GPUs, the other does: five to it, not four and four."""
    world = tables(flat=(1.0, 1.05, 1.06, 1.06), steep=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))
    jobs = [
        traced("flat", FOUR, 100, model="flat"),
        traced("steep", gpus(1, minimum=1, maximum=7), 100, model="steep"),
    ]
    gainful = a_policy("optimus")
    equal = EqualSplit(OptimusOptions())
    early = a_scenario(jobs, "1x8", world, until_s=1)
    assert counts(early, gainful) == {"flat": 2, "steep": 6}
    assert counts(early, equal) == {"flat": 4, "steep": 4}
    late = a_scenario(jobs, "1x8", world)
    means = [outcome_of(late, policy).summary.avg_jct_s for policy in (gainful, equal)]
    assert means[0] is not None
    assert means[1] is not None
    assert means[0] < means[1]


# -- learning --------------------------------------------------------------------------------------

EIGHT = gpus(1, minimum=1, maximum=8)
TRIO = (
    traced("long", EIGHT, 12_000),
    traced("short", EIGHT, 2_000),
    traced("mid", EIGHT, 5_000, at_s=100),
)


def divided(learn: str, estimates: Estimates) -> dict[str, int]:
    scenario = replace(a_scenario(TRIO, "2x6", WORLD, until_s=400), estimates=estimates)
    return counts(scenario, a_policy("optimus", interval_s=20, learn=learn))


def test_losses_tell_what_nobody_estimated() -> None:
    """Without estimates, the fit divides as exact estimates would; without the fit, it does not."""
    unknown = Estimates(known=False)
    informed = divided("given", Estimates())
    assert informed == {"long": 6, "short": 2, "mid": 4}
    assert divided("fit", unknown) == informed
    assert divided("given", unknown) != informed


def test_speeds_are_learnt_where_the_declared_ones_are_wrong() -> None:
    """Nobody declares anything; `hard` gains nothing beyond two GPUs, which only measuring shows."""
    world = tables(hard=(1.0, 1.9, 1.9, 1.9, 1.9, 1.9, 1.9, 1.9))
    jobs = [traced("hard", EIGHT, 9_000, model="hard"), traced("soft", EIGHT, 9_000)]
    scenario = a_scenario(jobs, "1x8", world, until_s=1_000)
    scenario = replace(scenario, estimates=Estimates(known=False))
    learnt = counts(scenario, a_policy("optimus", interval_s=20))
    guessed = counts(scenario, a_policy("optimus", interval_s=20, learn="given"))
    assert guessed["hard"] == 4
    assert learnt["hard"] < guessed["hard"]
    assert sum(learnt.values()) == 8


def test_measured_speeds_override_the_fit_and_scale_the_rest() -> None:
    expected = {n: 1e6 * n**0.8 for n in range(1, 9)}
    fitted = fitted_speeds(expected, {2: 1e6})
    assert fitted[2] == 1e6
    assert fitted[4] / fitted[2] == pytest.approx(expected[4] / expected[2], rel=0.15)
    bent = fitted_speeds(expected, {1: 1e6, 2: 1.9e6, 4: 2.0e6, 8: 2.0e6})
    assert [bent[n] for n in (1, 2, 4, 8)] == [1e6, 1.9e6, 2e6, 2e6]
    assert bent[6] < expected[6] * 0.7
    assert fitted_speeds(expected, {99: 1e6}) == expected


# -- who gets GPUs ---------------------------------------------------------------------------------


def test_a_newcomer_gets_its_first_worker_at_the_end_of_the_interval() -> None:
    """A run shrinks for it; and in the order of arrival, not by gain."""
    jobs = [traced("old", FOUR, 100), traced("new", FOUR, 1, at_s=3)]
    result = outcome_of(a_scenario(jobs, "1x4", tables()), a_policy("optimus", interval_s=10))
    assert one(result, "new").start_ms == 10_000
    assert one(result, "old").preemptions == 0


def test_a_large_gang_does_not_starve_behind_small_ones() -> None:
    """Younger jobs may start before it, but at the end of the interval it is its turn."""
    jobs = [
        traced("first", 2, 8),
        traced("large", 4, 10, at_s=1),
        *(traced(f"small{n}", 1, 30, at_s=2 + n) for n in range(4)),
    ]
    result = outcome_of(a_scenario(jobs, "1x4"), a_policy("optimus", interval_s=10))
    assert one(result, "small0").start_ms == 2_000
    assert one(result, "large").start_ms == 10_000
    assert one(result, "small0").preemptions == 1
    assert all(job.finish_ms is not None for job in result.jobs)


FLEXIBLE = Demand(Shape(2), 2, 2, gpu_type="any|cpu")


def test_who_may_use_cpu_slots_leaves_the_gpus_to_an_earlier_job() -> None:
    jobs = [traced("g", 4, 60), traced("flex", FLEXIBLE, 60)]
    result = outcome_of(a_scenario(jobs, "n1[4] n2[4cpu]"), a_policy("optimus"))
    assert [one(result, name).start_ms for name in ("g", "flex")] == [0, 0]


def test_a_run_that_may_use_cpu_slots_makes_way_for_an_earlier_job() -> None:
    """flex takes GPUs that are free meanwhile; at the end of the interval they are g's."""
    jobs = [
        traced("first", 1, 10),
        traced("g", 4, 60, at_s=1),
        traced("flex", FLEXIBLE, 1_000, at_s=2),
    ]
    result = outcome_of(a_scenario(jobs, "n1[4] n2[4cpu]"), a_policy("optimus", interval_s=100))
    assert one(result, "g").start_ms == 100_000
    assert one(result, "flex").finish_ms == 1_002_000, "it goes on on CPU slots at once"


def test_min_run_s_keeps_a_young_run_whole() -> None:
    jobs = [traced("small", 4, 30, at_s=2), traced("first", 1, 5), traced("large", 4, 9, at_s=1)]
    held = outcome_of(a_scenario(jobs, "1x4"), a_policy("optimus", interval_s=10, min_run_s=60))
    assert all(job.preemptions == 0 for job in held.jobs)


def test_starve_after_s_goes_before_arrival() -> None:
    """Of two equal gangs the older waits while the one that starves runs, and then its turn comes."""
    jobs = [traced("a", gpus(2), 40), traced("b", gpus(2), 40, at_s=1)]
    scenario = a_scenario(jobs, "1x2")
    plain = outcome_of(scenario, a_policy("optimus", interval_s=10))
    fair = outcome_of(scenario, a_policy("optimus", interval_s=10, starve_after_s=15))
    assert one(plain, "b").start_ms == 40_000
    assert one(fair, "b").start_ms == 20_000


class Forgiving(WorkerPlacement):
    """The mechanism switched off: growth that has to wait is forgotten."""

    def grow(self, record, count) -> int:  # type: ignore[no-untyped-def]
        missing = super().grow(record, count)
        self.owed.clear()
        return missing


class Careless(Optimus):
    worker_placement = Forgiving


def test_growth_waits_for_gpus_that_another_run_is_leaving() -> None:
    """As `a` nears its end, `b` is to have its GPUs: not before it has left them, and not much later."""
    jobs = [traced("a", EIGHT, 400), traced("b", EIGHT, 900)]
    scenario = a_scenario(jobs, "1x8", replace(DEFAULT, elasticity=Elasticity(868_000)))

    def grown_at(policy: Optimus) -> int:
        drive = Drive(scenario, policy).run()
        drive.everything_ended()
        reshapes = [
            (order.run.job, len(order.placement.slices), step.now)
            for step in drive.steps
            for order in step.decision.orders
            if isinstance(order, a.Reshape)
        ]
        (shrunk_at,) = [now for job, count, now in reshapes if (job, count) == ("a", 2)]
        return next(now for job, _, now in reshapes if job == "b" and now >= shrunk_at) - shrunk_at

    options = OptimusOptions(interval_s=60, learn="given")
    resizing = DEFAULT.preemption_cost.resizing(0)
    assert 0 < resizing <= grown_at(Optimus(options)) < 60_000
    assert grown_at(Careless(options)) == 60_000


# -- placement -------------------------------------------------------------------------------------

CASES = {
    "the emptiest node first": Case(
        cluster="n1[4] n2[4]",
        jobs="old 1gpu running on n1:1 | new 1gpu pending 1s",
        want="start new on n2:1",
    ),
    "half and half on two nodes, not most and a rest": Case(
        cluster="n1[4] n2[4]",
        jobs="x 1gpu running on n1:1 | y 1gpu running on n2:1 | new 4gpu pending 1s",
        want="start new on n1:2 n2:2",
    ),
    "small jobs are placed before large ones": Case(
        cluster="n1[4] n2[3]",
        jobs="large 3gpu pending 9s | small 1gpu pending 1s",
        want="start large on n1:3; start small on n1:1",
    ),
    "anywhere where it cannot be even": Case(
        cluster="n1[3] n2[1]",
        jobs="new 4gpu pending 1s",
        want="start new on n1 n2",
    ),
    "a run shrinks to its minimum for a newcomer": Case(
        cluster="n1[4]",
        jobs="old 4gpu elastic 1..4 needs 1h running on n1 | new 2gpu pending 1s",
        want="resize old on n1:2; start new on n1:2",
    ),
    "a run grows into what is idle": Case(
        cluster="n1[4]",
        jobs="old 2gpu elastic 1..4 needs 1h running on n1:2",
        want="resize old on n1",
    ),
    "the older gang before the younger run": Case(
        cluster="n1[4]",
        jobs="young 1gpu running on n1:1 attained 1min | gang 4gpu pending 2min",
        want="start gang on n1; suspend young",
    ),
    "rigid jobs get all or nothing": Case(
        cluster="n1[4]",
        jobs="old 3gpu running on n1:3 attained 1h | new 2gpu pending 1s",
        want="nothing",
    ),
    "every job gets one before any gets two": Case(
        cluster="n1[3]",
        jobs="a 1gpu elastic 1..8 needs 9h pending 3s | b 1gpu elastic 1..8 needs 1min pending 2s"
        " | c 1gpu elastic 1..8 needs 1min pending 1s",
        want="start a on n1:1; start b on n1:1; start c on n1:1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_pass(name: str) -> None:
    assert CASES[name].done_by("optimus") == CASES[name].want


class Relaxed(WorkerPlacement):
    """The mechanism switched off: the fewest nodes, best fit."""

    def place(self, record, count) -> Placement | None:  # type: ignore[no-untyped-def]
        return None


class Elsewhere(Optimus):
    worker_placement = Relaxed


def test_even_placement_is_the_rule_and_not_chance() -> None:
    jobs = [traced("x", 1, 99), traced("y", 1, 99), traced("new", 4, 9, at_s=1)]

    def spread(policy: object, jobs: list[TracedJob]) -> list[int]:
        run = simulated(a_scenario(jobs, "2x4", until_s=2), policy)  # type: ignore[arg-type]
        placement = run.controller.state.jobs["new"].placement
        assert placement is not None
        return sorted(sum(s.node == node for s in placement.slices) for node in placement.nodes)

    assert spread(a_policy("optimus"), jobs) == [2, 2]
    assert spread(Elsewhere(OptimusOptions()), jobs) != [2, 2]
