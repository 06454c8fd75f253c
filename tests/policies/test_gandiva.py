"""Gandiva (OSDI'18): worked examples, and each mechanism against none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    cluster,
    costly,
    finishes,
    one,
    outcome_of,
    simulated,
    traced,
)
from tests.property.drive import Drive
from trainmaster.model import actions as a
from trainmaster.model.job import Demand, Shape
from trainmaster.model.packing_score import Evidence, PackingScore, Verdict
from trainmaster.model.placement import Sharing
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, NOMINAL, SECOND, WHOLE
from trainmaster.perf.gpu_interference import SharedGpu
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.policies.gandiva.policy import GandivaMemo
from trainmaster.policies.gandiva.trial_packing import is_worth_it
from trainmaster.sim.driver import Scenario, Simulation

QUANTUM = 60


def long_jobs(count: int, size: int = 1) -> list[TracedJob]:
    return [traced(f"j{index}", size, 100_000) for index in range(count)]


def gpu_seconds(
    jobs: Sequence[TracedJob], words: str, quanta: int, **options: object
) -> list[float]:
    """GPU time that each job has had after so many quanta."""
    scenario = a_scenario(jobs, words, until_s=quanta * QUANTUM)
    simulation = simulated(scenario, a_policy("gandiva", **options))
    return [account.trained / WHOLE / SECOND for account in simulation.ledger.accounts.values()]


# -- time-slices -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "words"), [(3, "1x2"), (6, "1x4")])
def test_each_of_three_jobs_for_two_gpus_gets_two_of_any_three_quanta(
    jobs: int, words: str
) -> None:
    had = [gpu_seconds(long_jobs(jobs), words, quanta) for quanta in range(1, 10)]
    for before, after in zip(had, had[3:], strict=False):
        assert [late - early for early, late in zip(before, after, strict=True)] == [120] * jobs


@pytest.mark.parametrize(
    ("jobs", "size", "words"), [(5, 1, "1x2"), (7, 1, "1x3"), (7, 2, "1x4"), (5, 1, "1x3")]
)
def test_of_n_jobs_on_m_places_each_runs_m_of_n_quanta(jobs: int, size: int, words: str) -> None:
    """More than two rounds deep, too: those who yielded together go on in the order they came in."""
    places = int(words.split("x")[1]) // size
    had = gpu_seconds(long_jobs(jobs, size), words, 3 * jobs)
    assert had == [3 * places * size * QUANTUM] * jobs


def test_who_is_slow_to_suspend_does_not_lose_his_turn() -> None:
    """Of five jobs on two GPUs one takes 9 s to save: it is next all the same."""
    world = costly(suspend_ms=1_000, save_bytes_s=2 * GIB)
    jobs = [traced(f"j{n}", 1, 100_000) for n in range(4)]
    jobs.append(traced("large", Demand(Shape(1, memory=16 * GIB), 1, 1), 100_000))
    simulation = simulated(
        a_scenario(jobs, "1x2", world, until_s=100 * QUANTUM), a_policy("gandiva")
    )
    turns = [account.trained for account in simulation.ledger.accounts.values()]
    assert min(turns) > 0.9 * max(turns)


def test_six_jobs_on_four_gpus_keep_all_gpus_busy() -> None:
    assert sum(gpu_seconds(long_jobs(6), "1x4", 30)) == 4 * 30 * QUANTUM


def test_without_turns_the_first_four_keep_the_gpus() -> None:
    assert gpu_seconds(long_jobs(6), "1x4", 3, quantum_s=10**6) == [180] * 4 + [0] * 2
    assert gpu_seconds(long_jobs(6), "1x4", 3) == [120] * 6


def test_a_server_whose_jobs_all_fit_does_not_rotate() -> None:
    jobs = [traced(f"j{n}", 1, 600) for n in range(4)]
    assert outcome_of(a_scenario(jobs, "1x4"), a_policy("gandiva")).summary.preemptions == 0


def test_turns_end_when_the_crowd_has_left() -> None:
    """The third job ends in its first turn: nobody waits any more, nobody yields any more."""
    jobs = [traced("a", 1, 600), traced("b", 1, 600), traced("short", 1, 30, at_s=1)]
    result = outcome_of(a_scenario(jobs, "1x2"), a_policy("gandiva"))
    assert finishes(result) == {"a": 600, "b": 630, "short": 90}
    assert result.summary.preemptions == 1


def test_gangs_take_turns_whole() -> None:
    assert gpu_seconds(long_jobs(2, size=4), "1x4", 1) == [240, 0]
    assert gpu_seconds(long_jobs(2, size=4), "1x4", 4) == [480, 480]


def test_gangs_wider_than_a_server_take_turns_on_all_their_servers_at_once() -> None:
    assert gpu_seconds(long_jobs(2, size=8), "2x4", 1) == [480, 0]
    assert gpu_seconds(long_jobs(2, size=8), "2x4", 4) == [960, 960]
    assert gpu_seconds(long_jobs(3, size=8), "2x4", 6) == [960, 960, 960]


def test_a_job_of_another_size_on_a_crowded_server_takes_turns_too() -> None:
    """Two GPUs for `pair`, four jobs of one GPU: six GPUs asked of four, nobody gets less than half."""
    jobs = [traced("pair", 2, 100_000), *long_jobs(4)]
    pair, *ones = gpu_seconds(jobs, "1x4", 60)
    assert pair / 2 >= 30 * QUANTUM
    assert min(ones) >= 30 * QUANTUM


def test_suspending_costs_what_the_world_says() -> None:
    """Two jobs on one GPU: after its first turn each costs 5 s to suspend and 15 s to resume."""
    world = costly(suspend_ms=5_000, resume_ms=15_000)
    jobs = [traced("a", 1, 100), traced("b", 1, 50)]
    result = outcome_of(a_scenario(jobs, "1x1", world), a_policy("gandiva"))
    # a 0-60, saved by 65; b 65-115; a 115-130 to resume, 130-170.
    assert finishes(result) == {"a": 170, "b": 115}


def test_a_turn_shorter_than_switching_still_makes_progress() -> None:
    world = costly(suspend_ms=5_000, resume_ms=25_000)
    jobs = [traced(f"j{n}", 1, 60) for n in range(4)]
    Drive(a_scenario(jobs, "1x1", world), a_policy("gandiva", quantum_s=3)).run().everything_ended()


# -- who queues ------------------------------------------------------------------------------------


def full_of_small_jobs() -> Scenario:
    """Four jobs of one GPU fill the only server; then one of two GPUs comes: no server has its affinity."""
    small = [traced(f"s{n}", 1, 1_000) for n in range(4)]
    return a_scenario([*small, traced("wide", 2, 100, at_s=1)], "1x4")


def test_without_a_server_of_its_affinity_a_job_queues() -> None:
    result = outcome_of(full_of_small_jobs(), a_policy("gandiva"))
    assert one(result, "wide").start_ms == 1_000 * SECOND
    assert result.summary.preemptions == 0


def test_a_starving_job_over_subscribes_any_server_at_once() -> None:
    result = outcome_of(full_of_small_jobs(), a_policy("gandiva", starve_after_s=200))
    assert one(result, "wide").start_ms == 201 * SECOND
    assert one(result, "wide").finish_ms == 301 * SECOND


def beside_a_stream(
    service_s: float, every_s: float, count: int, topology: str = "1x4"
) -> Scenario:
    """A job for four GPUs, and small ones that come so often that four are never free together."""
    small = [traced(f"s{n}", 1, service_s, at_s=n * every_s) for n in range(count)]
    return a_scenario([*small, traced("wide", 4, 100, at_s=5)], topology)


@pytest.mark.parametrize(
    ("service_s", "every_s", "count"),
    [
        pytest.param(70, 20, 60, id="some have just begun"),
        pytest.param(400, 100, 24, id="some GPUs are free"),
    ],
)
def test_a_starving_job_has_its_turn_whatever_runs_there(
    service_s: float, every_s: float, count: int
) -> None:
    scenario = beside_a_stream(service_s, every_s, count)
    patient = outcome_of(scenario, a_policy("gandiva"))
    starved = outcome_of(scenario, a_policy("gandiva", starve_after_s=120))
    assert one(patient, "wide").start_ms >= 1_000 * SECOND
    assert one(starved, "wide").start_ms == 125 * SECOND


def test_gpus_are_kept_for_a_starving_job_while_young_runs_are_safe() -> None:
    """At 125 s, runs that began at 100 and 120 are safe until 160 and 180; nobody else begins."""
    scenario = beside_a_stream(70, 20, 60)
    result = outcome_of(scenario, a_policy("gandiva", starve_after_s=120, min_run_s=60))
    assert one(result, "wide").start_ms == 180 * SECOND


def test_a_starving_gang_has_its_turn_on_servers_of_others() -> None:
    small = [traced(f"s{n}", 1, 1_000) for n in range(8)]
    scenario = a_scenario([*small, traced("gang", 8, 100, at_s=1)], "2x4")
    result = outcome_of(scenario, a_policy("gandiva", starve_after_s=200))
    assert one(result, "gang").start_ms == 201 * SECOND


def test_no_run_yields_before_min_run() -> None:
    jobs = [traced("a", 1, 600), traced("b", 1, 60, at_s=1)]
    scenario = a_scenario(jobs, "1x1")
    starts = {
        least: one(outcome_of(scenario, a_policy("gandiva", min_run_s=least)), "b").start_ms
        for least in (0, 150)
    }
    assert starts == {0: 60 * SECOND, 150: 180 * SECOND}


# -- affinity --------------------------------------------------------------------------------------


def started_on(jobs: Sequence[TracedJob], words: str, **options: object) -> dict[str, str]:
    """The node on which each job was first launched."""
    topology = cluster(words)
    drive = Drive(a_scenario(jobs, topology), a_policy("gandiva", **options)).run()
    found: dict[str, str] = {}
    for _, orders in drive.orders():
        for order in orders:
            if isinstance(order, a.Launch):
                node = topology.nodes[order.placement.slices[0].node]
                found.setdefault(order.run.job, node.name)
    return found


def x_y_and_newcomers() -> list[TracedJob]:
    """X gets a job of four GPUs, Y four of one; then one of four and one of two come."""
    ones = [traced(f"y{n}", 1, 500, at_s=1) for n in range(4)]
    return [traced("x", 4, 500), *ones, traced("four", 4, 10, at_s=2), traced("two", 2, 10, at_s=3)]


def test_jobs_go_to_servers_of_their_size_then_to_empty_ones_then_to_the_less_loaded() -> None:
    with_z = started_on(x_y_and_newcomers(), "X[8] Y[12] Z[8]")
    assert {with_z[f"y{n}"] for n in range(4)} == {with_z["y0"]} != {with_z["x"]}
    assert with_z["four"] == with_z["x"]
    assert with_z["two"] not in (with_z["x"], with_z["y0"])
    without = started_on(x_y_and_newcomers(), "X[8] Y[12]")
    assert without["two"] == without["y0"]


def test_without_affinity_small_jobs_would_break_up_every_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four jobs of one GPU share a server, and the other stays whole for a job of four."""
    jobs = [*[traced(f"j{n}", 1, 500) for n in range(3)], traced("four", 4, 10, at_s=1)]
    scenario = a_scenario(jobs, "2x4")
    off = {"migration": "off"}
    assert one(outcome_of(scenario, a_policy("gandiva", **off)), "four").start_ms == SECOND
    monkeypatch.setattr(
        "trainmaster.policies.gandiva.affinity.Servers._turn_to", lambda *said: None
    )
    spread = outcome_of(scenario, a_policy("gandiva", **off))
    assert one(spread, "four").start_ms == 500 * SECOND


# -- packing ---------------------------------------------------------------------------------------


def a_pair_world(left: Mapping[tuple[str, str], float]) -> PerfModel:
    """What each model keeps of its speed beside another; nothing else costs anything."""
    pairs = {pair: round(part * NOMINAL) for pair, part in left.items()}
    return replace(IDEAL, name="pairs", interferes=True, shared_gpu=SharedGpu(pairs=pairs))


def packable(
    name: str,
    service_s: float,
    *,
    model: str,
    util: float | None = 0.3,
    memory: int = 6,
    at_s: float = 0,
) -> TracedJob:
    demand = Demand(Shape(1, memory=memory * GIB), 1, 1)
    ppm = None if util is None else round(util * NOMINAL)
    return traced(name, demand, service_s, model=model, gpu_util_ppm=ppm, at_s=at_s)


def packed_launches(scenario: Scenario, **options: object) -> list[tuple[int, str]]:
    """(second, job) for each launch onto a shared GPU, and for each run that gets company."""
    drive = Drive(scenario, a_policy("gandiva", **options)).run()
    return [
        (now // SECOND, order.run.job)
        for now, orders in drive.orders()
        for order in orders
        if isinstance(order, a.Launch | a.Rebind) and order.placement.sharing is Sharing.TIME
    ]


def test_a_run_gets_company_without_being_launched_again() -> None:
    """b runs when a comes to it, at 120 s: only a is launched, b goes on with half of its GPU."""
    drive = Drive(two_on_one(0.6, 0.5), a_policy("gandiva")).run()
    joined = [order for now, orders in drive.orders() for order in orders if now == 120 * SECOND]
    assert [(type(order), order.run.job) for order in joined] == [(a.Rebind, "b"), (a.Launch, "a")]


@pytest.mark.parametrize(
    ("packed", "is_kept"),
    [((6, 5), True), ((4, 5), False), ((5, 5), False), ((9.2, 9.2), True)],
)
def test_a_pair_is_kept_iff_together_it_beats_taking_turns(
    packed: tuple[float, float], is_kept: bool
) -> None:
    first, second = (round(rate * NOMINAL) for rate in packed)
    assert is_worth_it(first, 10 * NOMINAL, second, 10 * NOMINAL) == is_kept


def test_the_controller_undoes_050_and_045_and_keeps_073_and_064() -> None:
    assert not is_worth_it(500_000, NOMINAL, 450_000, NOMINAL)
    assert is_worth_it(730_000, NOMINAL, 640_000, NOMINAL)


def two_on_one(a_beside_b: float, b_beside_a: float, **how: int) -> Scenario:
    jobs = [packable("a", 600, model="ma", **how), packable("b", 600, model="mb", **how)]
    world = a_pair_world({("ma", "mb"): a_beside_b, ("mb", "ma"): b_beside_a})
    return a_scenario(jobs, "1x1", world)


def test_packed_at_6_and_5_of_10_a_pair_stays() -> None:
    """Alone 0-60 and 60-120; then together, 0.6 and 0.5; b is alone again when a has ended."""
    result = outcome_of(two_on_one(0.6, 0.5), a_policy("gandiva"))
    assert finishes(result) == {"a": 1_020, "b": 1_110}
    apart = outcome_of(two_on_one(0.6, 0.5), a_policy("gandiva", packing="off"))
    assert apart.summary.makespan_s == 1_200


def test_packed_at_4_and_5_of_10_a_pair_is_undone_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = two_on_one(0.4, 0.5)
    assert sorted(packed_launches(scenario)) == [(120, "a"), (120, "b")]
    undone = outcome_of(scenario, a_policy("gandiva")).summary.makespan_s
    assert undone == 1_206  # a minute of trial at 0.9 lost six seconds
    monkeypatch.setattr(
        "trainmaster.policies.gandiva.trial_packing.is_worth_it", lambda *rates: True
    )
    kept = outcome_of(scenario, a_policy("gandiva")).summary.makespan_s
    assert kept is not None
    assert kept > undone


def test_a_pair_says_that_it_is_on_trial_and_what_became_of_it() -> None:
    def said(at_s: int, scenario: Scenario) -> dict[str, tuple[PackingScore, ...]]:
        simulation = Simulation(scenario, a_policy("gandiva"))
        controller = simulation.controller
        while simulation.step() and controller.now < at_s * SECOND:
            pass
        return {job: tuple(controller.packing_scores(job)) for job in controller.state.jobs}

    assert said(0, two_on_one(0.6, 0.5)) == {"a": (), "b": ()}
    on_trial = said(120, two_on_one(0.6, 0.5))
    assert on_trial["a"] == (PackingScore(("b",), Verdict.ON_TRIAL),)
    kept = said(180, two_on_one(0.6, 0.5))
    assert kept["b"] == (
        PackingScore(("a",), Verdict.PACKED, (600_000, 500_000), Evidence.MEASURED),
    )
    undone = said(180, two_on_one(0.4, 0.5))
    assert undone["b"] == (PackingScore(("a",), Verdict.UNDONE),)


def test_two_super_resolution_jobs_on_one_gpu_do_184_percent() -> None:
    """1,150 mini-batches each in the time of 1,250 alone: 1.84 times the work of taking turns."""
    jobs = [packable(name, 6_000, model="superresolution") for name in ("a", "b")]
    world = a_pair_world({("superresolution", "superresolution"): 0.92})
    result = outcome_of(a_scenario(jobs, "1x1", world), a_policy("gandiva"))
    assert result.summary.makespan_s is not None
    packed_for = result.summary.makespan_s - 120  # a minute alone each, first
    assert 2 * (6_000 - 60) / packed_for == pytest.approx(1.84, abs=0.001)


def test_9_and_9_gb_on_16_gb_are_never_tried() -> None:
    assert packed_launches(two_on_one(0.9, 0.9, memory=9)) == []
    assert packed_launches(two_on_one(0.9, 0.9, memory=8)) != []


def test_only_profiled_jobs_on_crowded_servers_are_packed() -> None:
    world = a_pair_world({("m", "m"): 0.9})
    unknown = [packable(name, 600, model="m", util=None) for name in ("a", "b")]
    assert packed_launches(a_scenario(unknown, "1x1", world)) == []
    unstated = [traced(name, 1, 600, model="m", gpu_util_ppm=300_000) for name in ("a", "b")]
    assert packed_launches(a_scenario(unstated, "1x1", world)) == []
    known = [packable(name, 600, model="m") for name in ("a", "b")]
    assert packed_launches(a_scenario(known, "1x2", world)) == []  # room for both
    assert min(packed_launches(a_scenario(known, "1x1", world))) == (120, "a")


def test_the_least_busy_job_goes_to_the_least_busy_gpu() -> None:
    jobs = [
        packable("busy", 900, model="m", util=0.9),
        packable("light", 900, model="m", util=0.1),
        packable("middle", 900, model="m", util=0.3),
        packable("late", 900, model="m", util=0.95),
    ]
    launches = packed_launches(a_scenario(jobs, "1x3", a_pair_world({("m", "m"): 0.9})))
    assert {job for _, job in launches[:2]} == {"light", "middle"}


def test_after_a_bad_pair_the_next_lowest_gpu_is_tried_and_the_models_are_remembered() -> None:
    """light+middle does harm, light+busy does not; a second pair of the bad models is never tried."""
    jobs = [
        packable("light", 2_000, model="ml", util=0.1),
        packable("middle", 2_000, model="mm", util=0.3),
        packable("busy", 2_000, model="mb", util=0.9),
        packable("late", 2_000, model="mx", util=0.95),
        packable("middle2", 2_000, model="mm", util=0.2),
    ]
    world = a_pair_world(
        {("ml", "mm"): 0.4, ("mm", "ml"): 0.4}
        | dict.fromkeys((("ml", "mb"), ("mb", "ml")), 0.9)
        | dict.fromkeys((("mm", "mm"), ("mm", "mb"), ("mb", "mm"), ("mm", "mx")), 0.3)
    )
    drive = Drive(a_scenario(jobs, "1x3", world, until_s=1_000), a_policy("gandiva"))
    tried: set[frozenset[str]] = set()
    while drive.simulation.step():
        memo = drive.simulation.controller.memo
        assert isinstance(memo, GandivaMemo)
        tried |= {frozenset(pair) for pair in memo.pairs}
    assert frozenset(("light", "busy")) in tried
    bad = {frozenset(("light", name)) for name in ("middle", "middle2")}
    assert len(bad & tried) == 1
    assert ("model ml", "model mm") in drive.simulation.controller.memo.refuted  # type: ignore[attr-defined]


def test_a_pair_parts_when_a_gpu_becomes_idle() -> None:
    jobs = [packable(name, 600, model="m") for name in ("a", "b", "c")]
    world = a_pair_world({("m", "m"): 0.6})
    scenario = a_scenario([*jobs, packable("short", 100, model="m")], "1x2", world)
    drive = Drive(scenario, a_policy("gandiva")).run()
    last = {}
    for _, orders in drive.orders():
        for order in orders:
            if isinstance(order, a.Launch):
                last[order.run.job] = order.placement.sharing
    assert Sharing.EXCLUSIVE in (last["a"], last["b"], last["c"])
