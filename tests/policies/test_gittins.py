"""Gittins and Tiresias-G: the section's examples, and what becomes of them without the idea."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_policy, a_scenario, finishes, one, outcome_of, traced
from tests.policies.test_worked_examples import figure_7, run_order
from tests.property.drive import Drive
from trainmaster.config.options import ContentError, FromFile, OptionError, read_options
from trainmaster.core.policy import Policy
from trainmaster.core.state import JobRecord
from trainmaster.estimators.service import gittins_by_hazard, gittins_source
from trainmaster.estimators.service.bins import GPU_SECOND, NO_END
from trainmaster.estimators.service.gittins_source import (
    Cost,
    SampledService,
    Samples,
    parse_samples,
)
from trainmaster.estimators.service.predictor import BY_HAZARDS, Observations, ServicePredictor
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND
from trainmaster.perf.model_zoo import MODELS, skew_ppm
from trainmaster.policies.gittins import Gittins, GittinsOptions
from trainmaster.policies.tiresias_g import TiresiasG, TiresiasGOptions


def samples(*gpu_s: float) -> Samples:
    return FromFile("samples.csv", tuple(round(each * GPU_SECOND) for each in gpu_s))


def gittins(*gpu_s: float, quantum_s: float = 1.0) -> Gittins:
    return Gittins(GittinsOptions(quantum_s=quantum_s, service_samples=samples(*gpu_s)))


def tiresias_g(*gpu_s: float, thresholds: Sequence[float]) -> TiresiasG:
    return TiresiasG(
        TiresiasGOptions(thresholds_gpu_s=tuple(thresholds), service_samples=samples(*gpu_s))
    )


# -- section 3, Figure 7 -----------------------------------------------------------------------------


def test_the_printed_formula_on_figure_7() -> None:
    drive = Drive(figure_7(), gittins(4, 8, 12)).run()
    assert run_order(drive, 16) == "1,1,2,2,2,2,2,2,2,2,3,3,3,3,3,3"
    result = outcome_of(figure_7(), gittins(4, 8, 12))
    assert finishes(result) == {"J1": 2, "J2": 10, "J3": 16}
    assert result.summary.avg_jct_s == pytest.approx(28 / 3)


class Unconditional(SampledService):
    """P(a < S <= a + D) over all jobs in the numerator: 1/8, 1/9, 1/12 at 0, 4, 8."""

    def cost(self, seen: Observations, record: JobRecord, attained: int) -> Cost:
        later = [each for each in self.samples.samples if each > attained]
        if not later:
            return NO_END, None
        costs = []
        for end in later:
            ends = sum(each <= end for each in later) / len(self.samples.samples)
            costs.append(sum(min(each, end) - attained for each in later) / len(later) / ends)
        return round(min(costs)), attained + 1


def test_the_unconditional_numerator_is_what_figure_7_shows() -> None:
    policy = gittins(4, 8, 12)
    policy.service = Unconditional(policy.options.service_samples.value)
    result = outcome_of(figure_7(), policy)
    assert finishes(result) == {"J1": 2, "J2": 12, "J3": 16}
    assert result.summary.avg_jct_s == pytest.approx(10.0)


def test_tiresias_g_on_figure_7_is_the_papers_panel() -> None:
    result = outcome_of(figure_7(), tiresias_g(4, 8, 12, thresholds=[4]))
    assert finishes(result) == {"J1": 2, "J2": 12, "J3": 16}
    assert result.summary.avg_jct_s == pytest.approx(10.0)


# -- the index decides -------------------------------------------------------------------------------


def newcomer_at(seconds: float) -> list[TracedJob]:
    return [traced("old", 1, 10), traced("new", 1, 1, at_s=seconds)]


def test_a_job_close_to_where_jobs_end_is_not_interrupted() -> None:
    """Jobs take 1 or 10: one that has run 8 is worth 1/2, a newcomer 1/2 for 1/1.  At 2 it is 1/8."""
    ends = {
        seconds: finishes(outcome_of(a_scenario(newcomer_at(seconds), "1x1"), gittins(1, 10)))
        for seconds in (2, 9)
    }
    assert ends[2] == {"old": 11, "new": 3}
    assert ends[9] == {"old": 10, "new": 11}


def test_las_interrupts_it_at_either_time() -> None:
    for seconds in (2, 9):
        result = outcome_of(a_scenario(newcomer_at(seconds), "1x1"), a_policy("las", quantum_s=1))
        assert finishes(result) == {"old": 11, "new": seconds + 1}


def test_beyond_the_last_sample_a_job_goes_behind_everybody() -> None:
    jobs = [traced("outlier", 1, 30), traced("usual", 1, 5, at_s=12)]
    result = outcome_of(a_scenario(jobs, "1x1"), gittins(5, 10))
    assert finishes(result) == {"outlier": 35, "usual": 17}


def test_what_a_few_long_samples_say_of_a_long_job() -> None:
    """Jobs take 5, 5, 5, 10 or 30. At 12 the long one costs 18 more, a newcomer 25/3; at 28 only 2."""
    long = traced("long", 1, 30)
    for seconds, want in ((12, {"long": 35, "new": 17}), (28, {"long": 30, "new": 35})):
        scenario = a_scenario([long, traced("new", 1, 5, at_s=seconds)], "1x1")
        assert finishes(outcome_of(scenario, gittins(5, 5, 5, 10, 30))) == want


@pytest.mark.parametrize(("quantum_s", "end_s"), [(1, 3), (4, 5)])
def test_running_jobs_are_compared_again_at_the_end_of_a_quantum(
    quantum_s: float, end_s: float
) -> None:
    """Jobs take 2 or 100. The first passes 2 at once, but is seen to only when the quantum ends."""
    jobs = [traced("long", 1, 100), traced("short", 1, 1)]
    result = outcome_of(a_scenario(jobs, "1x1"), gittins(2, 100, quantum_s=quantum_s))
    assert finishes(result)["short"] == end_s


def test_many_samples_are_tabulated_in_steps_and_decide_alike() -> None:
    few = gittins(1, 10)
    many = gittins(*[1 + n / 10_000 for n in range(60)], *[10 + n / 10_000 for n in range(60)])
    for seconds in (2, 9):
        scenario = a_scenario(newcomer_at(seconds), "1x1")
        assert finishes(outcome_of(scenario, many)) == finishes(outcome_of(scenario, few))


def test_inside_a_queue_tiresias_g_looks_at_the_index_and_tiresias_l_at_the_start() -> None:
    """Jobs take 9 or 100 and both are in the last queue: a job that passes 9 has 91 to go."""
    jobs = [traced("first", 1, 50), traced("second", 1, 9, at_s=1)]
    scenario = a_scenario(jobs, "1x1")
    by_index = outcome_of(scenario, tiresias_g(9, 100, thresholds=[2]))
    by_start = outcome_of(scenario, a_policy("tiresias-l", thresholds_gpu_s="2"))
    assert finishes(by_start) == {"first": 52, "second": 59}
    assert finishes(by_index) == {"first": 59, "second": 18}


# -- Tiresias' other rules hold for tiresias-g too ---------------------------------------------------


def test_without_demotion_it_is_first_come_first_served() -> None:
    scenario = a_scenario([traced("long", 1, 100), traced("short", 1, 1, at_s=10)], "1x1")
    demoting = outcome_of(scenario, a_policy("tiresias-g", thresholds_gpu_s=5))
    never = outcome_of(scenario, a_policy("tiresias-g", thresholds_gpu_s=10**9))
    assert finishes(demoting) == {"long": 101, "short": 11}
    assert finishes(never) == {"long": 100, "short": 101}


@pytest.mark.parametrize("name", ["tiresias-l", "tiresias-g"])
def test_promotion_brings_a_starved_job_back(name: str) -> None:
    stream = [traced(f"new{n:02}", 1, 4, at_s=4 * n + 4) for n in range(40)]
    scenario = a_scenario([traced("old", 1, 10), *stream], "1x1")
    ends = {
        knob: finishes(outcome_of(scenario, a_policy(name, thresholds_gpu_s=4, promote_knob=knob)))[
            "old"
        ]
        for knob in (0, 2)
    }
    # Demoted at 4; has waited 2 x 4 at 12; runs 12-16, when it is demoted again; 24-26 after 8 more.
    assert ends == {0: 170, 2: 26}


@pytest.mark.parametrize("name", ["tiresias-l", "tiresias-g"])
@pytest.mark.parametrize(("model", "start_s"), [("vgg16", 100), ("resnet50", 1), ("unheard", 1)])
def test_only_skewed_models_wait_for_a_node(name: str, model: str, start_s: int) -> None:
    jobs = [traced("a", 3, 100), traced("b", 3, 100), traced("new", 2, 10, at_s=1, model=model)]
    scenario = a_scenario(jobs, "n1[4] n2[4]")
    assert one(outcome_of(scenario, a_policy(name)), "new").start_ms == start_s * SECOND
    loose = outcome_of(scenario, a_policy(name, pack_limit=1))
    assert one(loose, "new").start_ms == 1 * SECOND, "the rule is off"


TABLE_6 = {
    "vgg19": (548.1, 392.0, 71.5),
    "vgg16": (527.8, 392.0, 74.3),
    "vgg11": (506.8, 392.0, 77.3),
    "alexnet": (235.9, 144.0, 61.0),
    "resnet152": (230.2, 9.0, 3.9),
    "resnet101": (170.4, 9.0, 5.3),
    "resnet50": (97.7, 9.0, 9.2),
    "inception4": (162.9, 5.9, 3.6),
    "inception3": (91.0, 7.8, 8.6),
    "googlenet": (26.7, 3.9, 14.6),
}
"""Tiresias, Table 6: size in MB, largest tensor in MB, their ratio in per cent."""


@pytest.mark.parametrize("model", TABLE_6)
def test_the_published_models(model: str) -> None:
    size, largest, percent = TABLE_6[model]
    assert (MODELS[model].total_mb, MODELS[model].largest_mb) == (size, largest)
    assert skew_ppm(model) / 10_000 == pytest.approx(percent, abs=0.07)
    assert (skew_ppm(model) > 400_000) == model.startswith(("vgg", "alex"))


# -- learned from jobs that end ----------------------------------------------------------------------


def in_bursts(policy: Policy) -> float:
    """Thirty jobs of 1,000 s at a time for three GPUs: taking turns, all would end late."""
    jobs = [traced(f"j{n:03}", 1, 1_000, at_s=n // 30 * 12_000) for n in range(150)]
    mean = outcome_of(a_scenario(jobs, "1x3"), policy).summary.avg_jct_s
    assert mean is not None
    return mean


def test_it_learns_from_jobs_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    learning = in_bursts(a_policy("gittins"))
    monkeypatch.setattr(gittins_by_hazard, "MIN_JOBS", 10**9)
    never = in_bursts(a_policy("gittins"))
    assert learning < 0.75 * never


def short_and_long(*, of: str) -> list[TracedJob]:
    """Jobs of queue (or user) a take 300 s, those of b 3,000."""
    jobs = [
        traced(f"{q}{n:03}", 1, 300 if q == "a" else 3_000, at_s=600 * n + 17 * (q == "a"))
        for n in range(200)
        for q in "ab"
    ]
    if of == "queue":
        return [replace(each, job=replace(each.job, queue=each.job.id[0])) for each in jobs]
    return [replace(each, job=replace(each.job, user=each.job.id[0])) for each in jobs]


@pytest.mark.parametrize(
    ("of", "too_coarse", "fine_enough"), [("queue", "size", "queue"), ("user", "queue", "user")]
)
def test_it_learns_by_class(of: str, too_coarse: str, fine_enough: str) -> None:
    """A newcomer's queue, or its user, says how long it will be, if one looks that closely."""
    scenario = a_scenario(short_and_long(of=of), "1x5")

    def mean(classes: str) -> float:
        found = outcome_of(scenario, a_policy("gittins", classes=classes)).summary.avg_jct_s
        assert found is not None
        return found

    assert mean(fine_enough) < mean(too_coarse)


def test_tiresias_g_can_learn_by_class_too() -> None:
    """Every job ends in the first queue, where the index alone decides."""
    scenario = a_scenario(short_and_long(of="queue"), "1x5")
    means = {
        classes: outcome_of(
            scenario, a_policy("tiresias-g", classes=classes, thresholds_gpu_s=5_000)
        ).summary.avg_jct_s
        for classes in ("all", "queue")
    }
    assert means["all"] is not None
    assert means["queue"] is not None
    assert means["queue"] < means["all"]


def test_a_user_and_program_are_a_class_of_their_own() -> None:
    record = JobRecord(traced("j", 3, 1, queue="q").job, 0, 0, None, None)
    assert ServicePredictor(BY_HAZARDS).classes_of(record) == ((), (2,), ("q", 2))
    named = JobRecord(replace(record.job, user="ann", app="bert"), 0, 0, None, None)
    assert ServicePredictor(BY_HAZARDS).classes_of(named)[-1] == ("q", 2, "ann", "bert")


@pytest.mark.parametrize(
    ("count", "size"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (64, 4)]
)
def test_size_classes(count: int, size: int) -> None:
    record = JobRecord(traced("j", count, 1).job, 0, 0, None, None)
    assert ServicePredictor(BY_HAZARDS).classes_of(record)[1] == (size,)


@pytest.mark.parametrize("name", ["gittins", "tiresias-g"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1 << 16))
def test_what_is_learned_survives_amnesia(name: str, seed: int) -> None:
    chance = Random(seed)
    jobs = [
        traced(
            f"j{n:02}",
            chance.choice([1, 1, 2]),
            chance.choice([10, 50, 70, 200, 900]),
            at_s=n * chance.choice([0, 10, 40]),
            queue=chance.choice("ab"),
        )
        for n in range(40)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gittins_by_hazard, "MIN_JOBS", 3)
        patch.setattr(gittins_source, "BY_HAZARDS", replace(BY_HAZARDS, renew_ends=3))
        scenario = a_scenario(jobs, "2x2")
        remembering = Drive(scenario, a_policy(name), checked=False).run()
        forgetting = Drive(scenario, a_policy(name), Random(seed), checked=False).run()
    assert forgetting.orders() == remembering.orders()


# -- service_samples ---------------------------------------------------------------------------------


def test_samples_are_one_number_to_a_line_under_a_heading_or_not() -> None:
    wanted = tuple(each * GPU_SECOND for each in (4, 8, 12))
    assert parse_samples("12\n4\n\n8.0\n") == wanted
    assert parse_samples("duration\r\n4\r\n8\r\n12") == wanted


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no sample above 0"),
        ("duration\n", "has no sample above 0"),
        ("0\n0\n", "has no sample above 0"),
        ("4\n-8\n", "line 2 must be GPU-seconds of at least 0, not '-8'"),
        ("gpu_s\n4\nmany\n", "line 3 must be GPU-seconds of at least 0, not 'many'"),
        ("nan\n4\n", "line 1 must be GPU-seconds of at least 0, not 'nan'"),
        ("4\ninf\n", "line 2 must be GPU-seconds of at least 0, not 'inf'"),
        ("4,8\n", "line 1 must be GPU-seconds of at least 0, not '4,8'"),
        ("-many\n4", "line 1 must be GPU-seconds of at least 0, not '-many'"),
    ],
)
def test_bad_samples_are_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(ContentError, match=complaint):
        parse_samples(text)
    said = f"gittins: service_samples s.csv {complaint}"
    with pytest.raises(OptionError, match=said):
        read_options("gittins", GittinsOptions, {"service_samples": "s.csv"}, lambda _: text)


SHARED = Path(__file__).parents[3] / "shared/data"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data")
def test_the_authors_samples_can_be_read() -> None:
    path = SHARED / "tiresias/yarn-gput10000.csv"
    found = parse_samples(path.read_text())
    assert len(found) == 9_999
    assert (found[0], found[-1]) == (121 * GPU_SECOND, 53_294_624 * GPU_SECOND)
    known = SampledService(found)
    record = JobRecord(traced("j", 1, 1).job, 0, 0, None, None)
    worths = [
        known.cost(Observations(), record, round(each * GPU_SECOND))[0] for each in (0, 1e4, 1e6)
    ]
    assert worths == sorted(worths), "a heavy tail: the longer it has run, the longer it will"
