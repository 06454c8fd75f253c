"""Single-GPU jobs join others on a GPU where that pays, part where it does not, spread out when they can.

`lm` beside `lm` keeps 0.81 of its speed, `resnet50` beside `resnet50` 0.5: published, and true in
this world. `good` and `bad` are models that nobody has published anything about.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_scenario, cluster, costly, finishes, outcome_of, simulated, traced
from tests.policies.ours import ours, within
from trainmaster.core.controller import Controller
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Estimate, Run, Shape, Source
from trainmaster.model.packing_score import Evidence, PackingScore, Verdict
from trainmaster.model.placement import Sharing
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, NOMINAL, SECOND, WHOLE
from trainmaster.perf.default_parameters import SHARED_GPU
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.policies.trainmaster.colocation_speeds import NOTHING_MEASURED, JobKind
from trainmaster.policies.trainmaster.options import PackingTerms
from trainmaster.policies.trainmaster.policy import Trainmaster, TrainmasterMemo
from trainmaster.sim.driver import Simulation
from trainmaster.sim.metrics import result_of

TERMS = PackingTerms(Sharing.TIME, 700_000, trial_ms=10 * SECOND)
PUBLISHED = replace(IDEAL, interferes=True, shared_gpu=SHARED_GPU)


def where(**pairs: float) -> PerfModel:
    """A world with these speeds too: `good_bad=0.4` is what good keeps beside bad."""
    named = {tuple(names.split("_")): round(rate * NOMINAL) for names, rate in pairs.items()}
    shared = replace(SHARED_GPU, pairs={**SHARED_GPU.pairs, **named})  # type: ignore[dict-item]
    return replace(PUBLISHED, shared_gpu=shared)


def small(
    name: str, service_s: float, model: str = "lm", gib: int = 3, **kind: object
) -> TracedJob:
    """A job of one GPU whose memory is known."""
    return traced(name, Demand(Shape(1, memory=gib * GIB), 1, 1), service_s, model=model, **kind)  # type: ignore[arg-type]


def ended(
    jobs: list[TracedJob],
    topology: str = "1x1",
    world: PerfModel = PUBLISHED,
    terms: PackingTerms = TERMS,
) -> dict[str, float | None]:
    """When each job ended, in seconds."""
    return finishes(run(jobs, topology, world, terms))


def packing(terms: PackingTerms) -> Trainmaster:
    """With hysteresis, so that equal jobs do not take turns."""
    return ours(packing=terms, min_run_s=0, hysteresis=0.65)


def run(
    jobs: list[TracedJob], topology: str, world: PerfModel, terms: PackingTerms = TERMS
) -> Result:
    return outcome_of(a_scenario(jobs, topology, world), packing(terms))


def preempted(result: Result) -> dict[str, int]:
    return {job.job_id: job.preemptions for job in result.jobs if job.preemptions}


def moved(result: Result) -> dict[str, int]:
    return {job.job_id: job.migrations for job in result.jobs if job.migrations}


# -- joining -----------------------------------------------------------------------------------------


def test_a_job_that_finds_no_gpu_joins_one_where_both_do_more() -> None:
    got = ended([small("a", 81), small("b", 81)])
    assert got == {"a": 100.0, "b": 100.0}


def test_without_company_the_second_waits() -> None:
    alone = replace(TERMS, most=1)
    assert ended([small("a", 81), small("b", 81)], terms=alone) == {"a": 81.0, "b": 162.0}


NOBODY_JOINS = {
    "models that are known to lose": [small("a", 50, "resnet50"), small("b", 50, "resnet50")],
    "memory that does not fit with a margin": [small("a", 50, gib=8), small("b", 50, gib=8)],
    "memory that nobody knows": [small("a", 50, gib=0), small("b", 50, gib=0)],
    "jobs of which nothing is known": [small("a", 50, ""), small("b", 50, "")],
    "jobs that fill the GPU": [
        small("a", 50, "", gpu_util_ppm=950_000),
        small("b", 50, "", gpu_util_ppm=950_000),
    ],
}


@pytest.mark.parametrize("jobs", NOBODY_JOINS.values(), ids=NOBODY_JOINS)
def test_nobody_joins(jobs: list[TracedJob]) -> None:
    assert ended(jobs) == {"a": 50.0, "b": 100.0}


def test_jobs_that_leave_the_gpu_idle_join_by_their_utilisation() -> None:
    """Beside a job that uses 0.2 of the GPU it takes 1.04 times as long by turns (H200)."""
    jobs = [small(name, 100, "", gpu_util_ppm=200_000) for name in "ab"]
    assert ended(jobs) == {
        "a": pytest.approx(104, abs=0.01),
        "b": pytest.approx(104, abs=0.01),
    }


def test_a_free_gpu_is_better_than_company() -> None:
    assert ended([small("a", 81), small("b", 81)], "1x2") == {"a": 81.0, "b": 81.0}


def test_of_two_gpus_the_one_where_it_pays_most_is_joined() -> None:
    """LM keeps 0.81 beside LM, but all beside ResNet-50, which keeps 0.99."""
    jobs = [small("lm1", 500), small("net", 500, "resnet50"), small("lm2", 100, at_s=10)]
    got = ended(jobs, "1x2")
    assert got["lm2"] == 110.0
    assert got["lm1"] == 500.0


def test_a_job_with_a_promised_deadline_neither_joins_nor_is_joined() -> None:
    jobs = [within(200, small("a", 81)), small("b", 81), small("c", 81)]
    assert ended(jobs) == {"a": 81.0, "b": 181.0, "c": 181.0}


def test_nobody_is_evicted_for_one_that_can_join() -> None:
    jobs = [small("old", 200), small("new", 81, at_s=19, priority=1)]
    result = run(jobs, "1x1", PUBLISHED)
    assert not preempted(result)
    assert finishes(result)["new"] == 119.0


def test_where_all_are_full_the_worst_ranked_gives_its_place() -> None:
    jobs = [small("a", 300), small("b", 300), small("c", 81, at_s=20, priority=1)]
    result = run(jobs, "1x1", PUBLISHED)
    assert preempted(result) == {"b": 1}
    assert finishes(result)["c"] == 120.0


def test_each_holds_half_while_together_and_all_of_it_alone() -> None:
    simulation = Simulation(
        a_scenario([small("a", 181), small("b", 81)], "1x1", PUBLISHED), packing(TERMS)
    )
    seen = []
    step = simulation.controller.step

    def recorded(now: int, events):  # type: ignore[no-untyped-def]
        decision = step(now, events)
        for order in decision.orders:
            if isinstance(order, a.Launch | a.Rebind):
                seen.append((now // SECOND, order.run.job, order.placement.slices[0].share))
        return decision

    simulation.controller.step = recorded  # type: ignore[method-assign]
    simulation.run()
    assert seen == [(0, "a", WHOLE // 2), (0, "b", WHOLE // 2), (100, "a", WHOLE)]
    assert not moved(result_of(simulation))


@pytest.mark.parametrize("sharing", [Sharing.TIME, Sharing.MPS])
def test_more_than_two_join_where_the_law_says_so(sharing: Sharing) -> None:
    """Four jobs of 0.3 need 1.2 of the GPU by turns; under MPS 0.72, and wait for each other a little."""
    jobs = [small(name, 100, "", gpu_util_ppm=300_000) for name in "abcd"]
    terms = replace(TERMS, sharing=sharing, most=4, gain_ppm=200_000, kept_ppm=500_000)
    longer = 120 if sharing is Sharing.TIME else 110.8
    assert list(ended(jobs, terms=terms).values()) == [pytest.approx(longer, abs=0.02)] * 4


# -- parting -----------------------------------------------------------------------------------------


def test_a_company_that_disappoints_parts_after_the_trial() -> None:
    """Published: 0.81 each. Here 0.5: after ten seconds the worse ranked leaves."""
    got = ended([small("a", 50), small("b", 50)], world=where(lm_lm=0.5))
    assert got == {"a": 55.0, "b": 100.0}


def test_what_was_measured_is_not_tried_again() -> None:
    jobs = [small(name, 50) for name in "abcd"]
    got = ended(jobs, world=where(lm_lm=0.5))
    assert got == {"a": 55.0, "b": 100.0, "c": 150.0, "d": 200.0}


def test_kinds_that_nobody_knows_are_tried_once() -> None:
    """Good ones stay together; bad ones part after the trial, and no two of them meet again."""
    world = where(good_good=0.8, bad_bad=0.5)
    good = [small(name, 80, "good") for name in ("a", "b")]
    bad = [small(name, 80, "bad") for name in ("a", "b", "c")]
    assert ended(good, world=world) == {"a": 100.0, "b": 100.0}
    assert ended(bad, world=world) == {"a": 85.0, "b": 160.0, "c": 240.0}


def test_only_one_pair_of_unknown_kinds_is_tried_at_a_time() -> None:
    jobs = [small(name, 80, "bad") for name in "abcd"]
    got = ended(jobs, "1x2", where(bad_bad=0.5))
    assert got == {"a": 80.0, "b": 85.0, "c": 155.0, "d": 165.0}


def test_a_job_that_is_promised_a_deadline_is_alone_at_the_next_pass() -> None:
    first, other = (small(name, 100).job for name in "ab")
    known = Estimate(100 * SECOND * NOMINAL, Source.TRACE)
    controller = Controller(cluster("1x1"), packing(TERMS))
    controller.step(0, [e.JobSubmitted(first, known), e.JobSubmitted(other, known)])
    controller.step(0, [e.RunStarted(Run(name, 1), 810_000) for name in "ab"])
    asked = replace(first, deadline_ms=400 * SECOND)
    orders = controller.step(5 * SECOND, [e.JobChanged(asked)]).orders
    assert [(type(order), order.run.job) for order in orders] == [(a.Halt, "b")]


# -- spreading out -----------------------------------------------------------------------------------


def test_when_a_gpu_becomes_free_one_of_them_moves_there() -> None:
    jobs = [small("short", 50, "resnet50"), small("a", 300), small("b", 300)]
    moving = costly(where(resnet50_lm=0.5, lm_resnet50=0.5), resume_ms=5 * SECOND)
    result = run(jobs, "1x2", moving, replace(TERMS, move_ms=5 * SECOND))
    assert moved(result) == {"b": 1}
    assert max(finishes(result).values()) < 340  # type: ignore[type-var, operator]


def test_nobody_moves_for_less_than_it_costs() -> None:
    jobs = [small("short", 5, "resnet50"), small("a", 40), small("b", 40)]
    moving = costly(where(resnet50_lm=0.5, lm_resnet50=0.5), resume_ms=60 * SECOND)
    result = run(jobs, "1x2", moving, replace(TERMS, move_ms=60 * SECOND))
    assert not moved(result)


# -- what is known -----------------------------------------------------------------------------------

LM, NET = JobKind("lm", None), JobKind("resnet50", None)
TURNS = Sharing.TIME


def test_what_was_measured_counts_before_what_was_published() -> None:
    rates = NOTHING_MEASURED
    assert rates.predicted((LM, NET), TURNS) == (NOMINAL, 990_000)
    rates = rates.with_measured((LM, NET), (700_000, 800_000), TURNS)
    assert rates.predicted((NET, LM), TURNS) == (800_000, 700_000)


def test_disappointment_makes_careful_with_what_was_not_measured() -> None:
    half, less = JobKind("", 500_000), JobKind("", 200_000)
    before = NOTHING_MEASURED.predicted((less, less), TURNS)
    rates = NOTHING_MEASURED.with_measured((half, half), (400_000, 400_000), TURNS)
    after = rates.predicted((less, less), TURNS)
    assert before is not None
    assert after is not None
    assert sum(after) < sum(before)


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert NOTHING_MEASURED.predicted((JobKind("new", None), LM), TURNS) is None


def test_the_memo_is_a_value() -> None:
    scenario = a_scenario([small("a", 81), small("b", 81)], "1x1", PUBLISHED)
    simulation = simulated(scenario, packing(TERMS))
    memo = simulation.controller.memo
    assert isinstance(memo, TrainmasterMemo)
    assert memo == replace(memo)
    assert hash(memo.colocation.rates.measured) == hash(memo.colocation.rates.measured)
    assert memo.colocation.rates.predicted((LM, LM), TURNS) == (810_000, 810_000)


# -- parts that jobs ask for ---------------------------------------------------------------------------


def test_a_job_that_asks_for_a_part_of_a_gpu_keeps_that_part() -> None:
    """It is not evened out to the whole GPU, which other parts of it are booked on."""
    part = Demand(Shape(1, share=WHOLE // 5, memory=GIB), 1, 1, sharing=Sharing.MPS)
    jobs = [traced("part", part, 50), *(small(f"whole{n}", 50) for n in range(3))]
    terms = replace(TERMS, sharing=Sharing.MPS)
    simulation = Simulation(a_scenario(jobs, "1x1", PUBLISHED), packing(terms))
    held = set[int]()
    while simulation.step():
        record = simulation.controller.state.jobs.get("part")
        if record is not None and record.placement is not None:
            held.add(record.placement.slices[0].share)
    assert held == {WHOLE // 5}


# -- why a job shares its GPU, or joins none -------------------------------------------------------------


def scores(
    jobs: list[TracedJob], until_s: float, world: PerfModel = PUBLISHED, terms: PackingTerms = TERMS
) -> dict[str, tuple[PackingScore, ...]]:
    """Of each live job, after what has happened by then."""
    simulation = Simulation(a_scenario(jobs, "1x1", world), packing(terms))
    controller = simulation.controller
    while simulation.step() and controller.now < until_s * SECOND:
        pass
    return {job: controller.packing_scores(job) for job in controller.state.jobs}


def test_jobs_together_say_whether_that_was_measured() -> None:
    pair = [small("a", 81), small("b", 81)]
    published = PackingScore(("b",), Verdict.ON_TRIAL, (810_000, 810_000), Evidence.PUBLISHED)
    assert scores(pair, 0)["a"] == (published,)
    measured = replace(published, verdict=Verdict.PACKED, evidence=Evidence.MEASURED)
    assert scores(pair, 10)["a"] == (measured,)


@pytest.mark.parametrize(
    ("kept", "left", "verdict"),
    [(0.73, 0.64, Verdict.PACKED), (0.50, 0.45, Verdict.TOO_SLOW)],
)
def test_a_pair_that_does_more_than_one_alone_is_kept_and_another_undone(
    kept: float, left: float, verdict: Verdict
) -> None:
    jobs = [small("a", 200, "good"), small("b", 200, "bad")]
    world, terms = where(good_bad=kept, bad_good=left), replace(TERMS, kept_ppm=600_000)
    said = scores(jobs, 10, world, terms)["b"]
    assert [(each.others, each.verdict, each.evidence) for each in said] == [
        (("a",), verdict, Evidence.MEASURED)
    ]
    assert sum(said[0].rates) == pytest.approx((kept + left) * NOMINAL, abs=10)


FULL = [small(name, 500, "", gpu_util_ppm=950_000) for name in "ab"]
QUIET = [small(name, 500, "", gpu_util_ppm=200_000) for name in "ab"]
HIGH = replace(TERMS, gain_ppm=950_000)
NOT_JOINED = [
    (FULL, TERMS, Verdict.TOO_SLOW, Evidence.UTILISATION, 700_000),
    (QUIET, HIGH, Verdict.TOO_LITTLE, Evidence.UTILISATION, 1_950_000),
    ([small("a", 50, gib=8), small("b", 50, gib=8)], TERMS, Verdict.NO_MEMORY, None, 0),
    ([small("a", 50, ""), small("b", 50, "")], TERMS, Verdict.UNKNOWN, None, 0),
]


@pytest.mark.parametrize(("jobs", "terms", "verdict", "evidence", "least"), NOT_JOINED)
def test_a_job_that_waits_says_why_it_joins_nobody(
    jobs: list[TracedJob],
    terms: PackingTerms,
    verdict: Verdict,
    evidence: Evidence | None,
    least: int,
) -> None:
    said = scores(jobs, 0, terms=terms)
    assert said["a"] == ()
    (score,) = said["b"]
    found = (score.others, score.verdict, score.evidence, score.least_ppm)
    assert found == (("a",), verdict, evidence, least)
