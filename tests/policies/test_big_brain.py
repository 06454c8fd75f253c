"""Big Brain: slots, memory, halves, and a factor that is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, cluster, finishes, one, simulated
from trainmaster.config.performance import perf_model_from
from trainmaster.core.controller import Controller
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Job, Part, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, NOMINAL, WHOLE, to_ms
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.policies.big_brain.packing_factor_tuner import (
    PackingFactorTuner,
    TunerMemo,
    best_factor,
    total_jct,
)
from trainmaster.policies.big_brain.policy import BigBrain, label_of
from trainmaster.sim.driver import Simulation
from trainmaster.sim.metrics import result_of

LINEAR = perf_model_from({"base": "ideal", "sharing": {"law": "linear"}}, "linear")
"""Seed 004, Figure 5: the process time grows in proportion to the jobs on a GPU."""
H200 = perf_model_from({"base": "ideal", "sharing": {"law": "h200"}}, "h200")
"""gpu-facts.md: measured on an H200."""


def a_job(
    name: str,
    service_s: float = 100,
    *,
    at_s: float = 0,
    gib: float = 2,
    busy: float | None = 0.25,
    gpus: int = 1,
    share: float = 1.0,
    halves: bool = False,
    sharing: Sharing | None = None,
) -> TracedJob:
    """`gib` 0 = it does not state its memory; `halves`: it is known how to split it in two."""
    memory = round(gib * GIB)
    half = Part(WHOLE // 2, memory // 2)
    splits = (Shape(2, parts=(half, half), speed_ppm=NOMINAL // 2),) if halves else ()
    shape = Shape(gpus, round(share * WHOLE), memory)
    demand = Demand(shape, gpus, gpus, splits=splits, sharing=sharing)
    used = None if busy is None else round(busy * NOMINAL)
    return TracedJob(Job(name, to_ms(at_s), demand, gpu_util_ppm=used), to_ms(service_s))


def big_brain(
    jobs: Sequence[TracedJob], topology: str = "1x1", world: PerfModel = IDEAL, **options: object
) -> Result:
    return result_of(simulated(a_scenario(jobs, topology, world), a_policy("big-brain", **options)))


def starts(result: Result) -> dict[str, float]:
    return {j.job_id: j.start_ms / 1000 for j in result.jobs if j.start_ms is not None}


def started_at_once(jobs: Sequence[TracedJob], topology: str, **options: object) -> list[a.Launch]:
    controller = Controller(cluster(topology), a_policy("big-brain", **options))
    decision = controller.step(0, [e.JobSubmitted(each.job) for each in jobs])
    assert not decision.refusals
    return [order for order in decision.orders if isinstance(order, a.Launch)]


# -- slots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "slots"), [(1, 2), (2, 4), (3, 6), (4, 8)])
def test_two_gpus_take_twice_the_factor_and_one_that_is_split(factor: int, slots: int) -> None:
    jobs = [a_job(f"j{n}", gib=1, halves=True) for n in range(slots + 5)]
    launched = started_at_once(jobs, "1x2", concurrency=factor)
    sizes = [len(launch.placement.slices) for launch in launched]
    assert sizes == [1] * slots + [2]
    on_each = [[p.gpu for x in launched for p in x.placement.slices].count(g) for g in (0, 1)]
    assert on_each == [factor + 1, factor + 1]
    whole_only = started_at_once(jobs, "1x2", concurrency=factor, split="off")
    assert len(whole_only) == slots


def test_a_free_slot_goes_before_a_split() -> None:
    """The split is for when no GPU has a slot: a third job beside two on two GPUs of two slots."""
    jobs = [a_job(f"j{n}", halves=True) for n in range(3)]
    launched = started_at_once(jobs, "1x2", concurrency=2)
    assert [len(launch.placement.slices) for launch in launched] == [1, 1, 1]


def test_the_least_crowded_gpu_is_taken() -> None:
    launched = started_at_once([a_job(f"j{n}") for n in range(4)], "1x2", concurrency=2)
    assert [launch.placement.slices[0].gpu for launch in launched] == [0, 1, 0, 1]


def test_halves_of_a_job_lie_on_one_node_where_they_can() -> None:
    jobs = [a_job(f"j{n}", gib=1, halves=True) for n in range(5)]
    *_, split = started_at_once(jobs, "2x2", concurrency=1)
    assert len(split.placement.nodes) == 1


def test_a_split_job_runs_at_the_speed_of_its_split() -> None:
    """100 s at half its speed beside two jobs of 300 s."""
    jobs = [a_job("a", 300), a_job("b", 300), a_job("c", 100, halves=True)]
    assert finishes(big_brain(jobs, "1x2", concurrency=1))["c"] == 200
    assert starts(big_brain(jobs, "1x2", concurrency=1, split="off"))["c"] == 300


def test_else_it_waits_and_so_do_those_behind_it() -> None:
    jobs = [a_job("a", 50), a_job("gang", 10, gpus=2), a_job("c", 10)]
    assert starts(big_brain(jobs, "1x2", concurrency=2)) == {"a": 0, "gang": 50, "c": 60}


# -- memory ------------------------------------------------------------------------------------------


def test_a_slot_without_the_memory_is_no_slot() -> None:
    """16 GiB: 10 + 5 fit together, 10 + 7 do not."""
    fit = big_brain([a_job("a", gib=10), a_job("b", gib=5)], concurrency=2)
    assert starts(fit) == {"a": 0, "b": 0}
    burst = big_brain([a_job("a", gib=10), a_job("b", gib=7)], concurrency=2)
    assert starts(burst) == {"a": 0, "b": 100}


def test_half_of_it_may_fit_where_the_whole_does_not() -> None:
    """Two GPUs with 6 GiB left each: 10 GiB fit as two halves of 5."""
    jobs = [a_job("a", gib=10), a_job("b", gib=10), a_job("c", gib=10, halves=True)]
    *_, last = started_at_once(jobs, "1x2", concurrency=4)
    assert [piece.memory for piece in last.placement.slices] == [5 * GIB, 5 * GIB]
    assert len(started_at_once(jobs, "1x2", concurrency=4, split="off")) == 2


def test_a_job_whose_memory_is_unknown_is_alone() -> None:
    jobs = [a_job("a", gib=0), a_job("b", gib=1), a_job("c", gib=0)]
    assert starts(big_brain(jobs, concurrency=4)) == {"a": 0, "b": 100, "c": 200}


def test_one_that_wants_its_gpu_for_itself_gets_it() -> None:
    jobs = [a_job("a"), a_job("b", sharing=Sharing.EXCLUSIVE), a_job("c")]
    assert starts(big_brain(jobs, concurrency=4)) == {"a": 0, "b": 100, "c": 200}


def test_gangs_and_fractions_work_too() -> None:
    jobs = [
        a_job("gang", 10, gpus=2),
        a_job("half", 10, share=0.5, gib=4),
        a_job("other half", 10, share=0.5, gib=4),
        a_job("whole", 10),
    ]
    assert finishes(big_brain(jobs, "1x2", concurrency=2)) == {
        "gang": 10,
        "half": 20,
        "other half": 20,
        "whole": 20,
    }


def test_mps_is_an_option() -> None:
    launched = started_at_once([a_job("a"), a_job("b")], "1x1", concurrency=2, sharing="mps")
    assert [launch.placement.sharing for launch in launched] == [Sharing.MPS] * 2


# -- four unit jobs at once on one GPU ---------------------------------------------------------------


def times(*longer: float) -> dict[int, int]:
    """How long each takes with 1, 2 and 4 together."""
    return {k: round(s * NOMINAL) for k, s in zip((1, 2, 4), longer, strict=False)}


@pytest.mark.parametrize(
    ("slowdowns", "means", "best"),
    [
        (times(1, 2, 4), (2.5, 3.0, 4.0), 1),
        (times(1, 1.3, 2.4), (2.5, 1.95, 2.4), 2),
        (times(1, 1.20, 1.77), (2.5, 1.80, 1.77), 4),
        (times(1, 17.1 / 7.97, 28.5 / 7.97), (2.5, 3.218, 3.576), 1),
    ],
    ids=["linear law", "sweet spot at 2", "H200, small", "H200, filling"],
)
def test_the_best_factor_has_the_least_mean_jct_of_four_unit_jobs(
    slowdowns: dict[int, int], means: tuple[float, ...], best: int
) -> None:
    totals = [total_jct(factor, slowdowns) for factor in (1, 2, 4)]
    assert [round(each / 4 / NOMINAL, 3) for each in totals if each] == [*means]
    assert best_factor(slowdowns) == best


def test_without_measurements_the_factor_is_one() -> None:
    assert best_factor({}) == 1
    assert total_jct(2, {1: NOMINAL}) is None
    assert total_jct(3, times(1, 2) | {3: 3 * NOMINAL}) == (3 * 3 + 4) * NOMINAL, "three, then one"


UNIT_S = 1000


@pytest.mark.parametrize(
    ("world", "busy", "means"),
    [
        (LINEAR, 0.25, (2.5, 3.0, 4.0)),
        (H200, 0.25, (2.5, 1.575, 1.15)),
        (H200, 1.0, (2.5, 3.3, 4.4)),
    ],
    ids=["linear law", "H200, small", "H200, filling"],
)
def test_four_unit_jobs_at_once(world: PerfModel, busy: float, means: tuple[float, ...]) -> None:
    jobs = [a_job(f"j{n}", UNIT_S, busy=busy) for n in range(4)]
    for factor, mean in zip((1, 2, 4), means, strict=True):
        result = big_brain(jobs, world=world, concurrency=factor)
        assert result.summary.avg_jct_s is not None
        assert result.summary.avg_jct_s / UNIT_S == pytest.approx(mean, abs=0.01)


# -- the tuner, from measured speeds -----------------------------------------------------------------


def tuned(
    jobs: Sequence[TracedJob], world: PerfModel, **options: object
) -> tuple[Simulation, PackingFactorTuner]:
    simulation = simulated(a_scenario(jobs, "1x1", world), a_policy("big-brain", **options))
    assert isinstance(simulation.policy, BigBrain)
    return simulation, PackingFactorTuner(30_000)


def factor_found(jobs: Sequence[TracedJob], world: PerfModel) -> int:
    simulation, tuner = tuned(jobs, world)
    lessons = simulation.controller.memo
    assert isinstance(lessons, TunerMemo)
    (label,) = {label for label, _ in lessons.times}
    assert tuner.next_trial(lessons, label) is None, "it should know by now"
    return tuner.factor(lessons, label)


@pytest.mark.parametrize(
    ("world", "busy", "factor"),
    [(LINEAR, 0.25, 1), (H200, 0.25, 4), (H200, 1.0, 1)],
    ids=["linear law", "H200, small", "H200, filling"],
)
def test_the_tuner_finds_the_best_factor(world: PerfModel, busy: float, factor: int) -> None:
    jobs = [a_job(f"j{n}", 200, busy=busy) for n in range(16)]
    assert factor_found(jobs, world) == factor


@pytest.mark.parametrize(
    ("longer", "then"),
    [((1,), 2), ((1, 1.7), 4), ((1, 1.7, 2.0), None), ((1, 2), None)],
)
def test_the_tuner_goes_on_while_more_jobs_together_get_more_done(
    longer: tuple[float, ...], then: int | None
) -> None:
    """Two that take 1.7 times as long are worse for the mean than one by one; four at 2.0 are best."""
    measured = times(*longer)
    lessons = TunerMemo(
        times=FrozenMap({("/1", k): 60_000 for k in measured}),
        works=FrozenMap({("/1", k): 60_000 * NOMINAL * NOMINAL // s for k, s in measured.items()}),
    )
    assert PackingFactorTuner(30_000).next_trial(lessons, "/1") == then


def test_the_tuned_factor_comes_close_to_the_best_fixed_one() -> None:
    """After two short trials; a fixed 1 takes 3.2 times as long for small jobs on an H200."""
    jobs = [a_job(f"j{n}", 200) for n in range(40)]
    mean = {
        factor: big_brain(jobs, world=H200, concurrency=factor).summary.avg_jct_s or 0
        for factor in ("auto", 1, 2, 4)
    }
    assert mean[4] < mean[2] < mean[1]
    assert mean["auto"] < 1.1 * mean[4]


def test_each_class_has_its_own_factor() -> None:
    """Small jobs are packed, jobs that fill the GPU are not, in one run."""
    small = [a_job(f"s{n}", 200, at_s=n) for n in range(16)]
    filling = [a_job(f"f{n}", 200, at_s=n, busy=1.0) for n in range(8)]
    simulation = simulated(a_scenario([*small, *filling], "1x2", H200), a_policy("big-brain"))
    lessons, tuner = simulation.controller.memo, PackingFactorTuner(30_000)
    assert isinstance(lessons, TunerMemo)
    assert tuner.factor(lessons, "/1") > 1
    assert tuner.factor(lessons, "/3") == 1


def test_a_class_is_a_model_and_a_quarter_of_utilisation() -> None:
    controller = Controller(cluster("1x4"), a_policy("big-brain"))
    jobs = {
        "/?": a_job("a", busy=None).job,
        "/1": a_job("b", busy=0.25).job,
        "resnet50/3": replace(a_job("c", busy=1.0).job, model="resnet50"),
    }
    controller.step(0, [e.JobSubmitted(job) for job in jobs.values()])
    assert [label_of(record) for record in controller.state.jobs.values()] == [*jobs]


def test_a_trial_takes_one_gpu_only() -> None:
    """Linear law, four GPUs: by the time two are known to be too many, one pair has run."""
    jobs = [a_job(f"j{n}", 100, at_s=0 if n < 4 else 1) for n in range(12)]
    result = big_brain(jobs, "1x4", LINEAR)
    slowed = [j.job_id for j in result.jobs if (j.finish_ms or 0) - (j.start_ms or 0) > 100_000]
    assert len(slowed) == 2


def test_nobody_is_packed_before_the_speed_alone_is_known() -> None:
    result = big_brain([a_job("a", 100), a_job("b", 100)], world=LINEAR, trial_s=40)
    assert one(result, "b").start_ms == 40_000
