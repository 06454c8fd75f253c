"""QSSF: jobs in order of GPU time predicted from history, and what becomes of it without the history."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_policy, a_scenario, finishes, outcome_of, traced
from tests.property.drive import Drive
from trainmaster.core.state import JobRecord
from trainmaster.model.program_name import program_of
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.policies.qssf import history_predictor as past
from trainmaster.policies.qssf.history_predictor import BLANK_MS, RunHistory
from trainmaster.sim.driver import Estimates


def by(user: str, app: str, name: str, size: int, service_s: float, at_s: float = 0.0) -> TracedJob:
    job = traced(name, size, service_s, at_s=at_s)
    return replace(job, job=replace(job.job, user=user, app=app))


def ended(user: str, app: str, run_s: float, size: int = 1, *, queue: str = "q") -> JobRecord:
    """A job that took so long."""
    job = traced(f"{user}{app}{run_s}{size}", size, run_s, queue=queue).job
    record = JobRecord(replace(job, user=user, app=app), 0, 0, None, None)
    record.attained = round(run_s * SECOND) * size * WHOLE
    return record


# -- the order -------------------------------------------------------------------------------------

LEARNT = [by("ann", "train-1", "t1", 1, 100), by("bob", "eval-7", "e1", 1, 10, at_s=1)]
"""One GPU: t1 0-100, e1 100-110."""
WAITING = [by("ann", "train-2", "t2", 1, 100, 200), by("bob", "eval-8", "e2", 1, 10, 201)]
"""They wait behind a stranger (another queue) that has the GPU until 400."""
BLOCKER = replace(
    traced("x", 1, 210, at_s=190), job=replace(traced("x", 1, 210, at_s=190).job, queue="other")
)


def test_what_ran_before_under_like_names_says_who_is_short() -> None:
    """e2 has run as eval-7 in ten seconds, t2 as train-1 in a hundred: the later goes first."""
    result = outcome_of(a_scenario([*LEARNT, BLOCKER, *WAITING], "1x1"), a_policy("qssf"))
    assert finishes(result) == {"t1": 100, "e1": 110, "x": 400, "e2": 410, "t2": 510}


def test_without_the_history_they_go_in_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHistory, "with_ended", lambda self, records: self)
    result = outcome_of(a_scenario([*LEARNT, BLOCKER, *WAITING], "1x1"), a_policy("qssf"))
    assert finishes(result) == {"t1": 100, "e1": 110, "x": 400, "t2": 500, "e2": 510}


def test_where_nothing_is_known_fewer_gpus_go_first() -> None:
    jobs = [traced("run", 4, 10), traced("wide", 4, 10, at_s=1), traced("slim", 1, 10, at_s=2)]
    assert finishes(outcome_of(a_scenario(jobs, "1x4"), a_policy("qssf")))["slim"] == 20


def test_the_predicted_service_is_run_time_times_gpus() -> None:
    """Both programs take 100 s; four GPUs of it are four times as much."""
    seen = [by("ann", "a", "a1", 1, 100), by("bob", "b", "b1", 4, 100)]
    waiting = [by("bob", "b", "b2", 4, 100, 1_001), by("ann", "a", "a2", 1, 100, 1_002)]
    blocker = by("cyd", "c", "c1", 4, 500, 1_000)
    jobs = [*seen, blocker, *waiting]
    result = outcome_of(a_scenario(jobs, "1x5"), a_policy("qssf"))
    assert finishes(result)["a2"] == 1_102, "there is room beside c1, and b2 is behind it in line"
    assert finishes(result)["b2"] == 1_600


def test_nobody_is_preempted() -> None:
    jobs = [traced("long", 1, 1_000), *(traced(f"s{n}", 1, 1, at_s=n) for n in range(1, 9))]
    result = outcome_of(a_scenario(jobs, "1x1"), a_policy("qssf"))
    assert result.summary.preemptions == 0
    assert finishes(result)["long"] == 1_000


def test_a_job_is_judged_once_when_it_arrives() -> None:
    """w1 and w2 arrive before anything has ended, and stay equals when it has."""
    running = [by("ann", "slow", "s1", 1, 50), by("bob", "fast", "f1", 1, 5)]
    waiting = [by("ann", "slow", "w1", 2, 50, 1), by("bob", "fast", "w2", 2, 5, 2)]
    result = outcome_of(a_scenario([*running, *waiting], "1x2"), a_policy("qssf"))
    assert finishes(result) == {"s1": 50, "f1": 5, "w1": 100, "w2": 105}


# -- backfill --------------------------------------------------------------------------------------

TAUGHT = [
    by("ann", "long", "l1", 1, 80),
    by("ann", "short", "s1", 1, 30),
    by("ann", "pair", "p1", 2, 1, 85),
]
QUEUED = [
    by("ann", "long", "l2", 1, 80, 100),
    by("ann", "pair", "head", 2, 1, 101),
    by("ann", "long", "l3", 1, 80, 102),
    by("ann", "short", "s2", 1, 30, 103),
]
"""Two GPUs: l2 has one until 180; the head of the line wants both, l3 and s2 one each."""


@pytest.mark.parametrize(
    ("backfill", "ends"),
    [
        ("none", {"head": 181, "s2": 211, "l3": 261}),
        ("skip", {"l3": 182, "s2": 210, "head": 211}),
        ("easy", {"s2": 133, "head": 181, "l3": 261}),
    ],
)
def test_backfill(backfill: str, ends: dict[str, float]) -> None:
    """`easy`: s2 is predicted to end before l2 does, l3 two seconds after; nobody has estimates."""
    policy = a_policy("qssf", backfill=backfill, rolling=1)
    scenario = replace(a_scenario([*TAUGHT, *QUEUED], "1x2"), estimates=Estimates(known=False))
    result = finishes(outcome_of(scenario, policy))
    assert {name: result[name] for name in ends} == ends


# -- what is remembered ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "program"),
    [
        ("train-17", "train-#"),
        ("train-18", "train-#"),
        ("bert_2021-05-03_7f3a9c1e", "bert_#-#-#_#"),
        ("ResNet50", "resnet#"),
        ("a1", "a#"),
        ("b2", "b#"),
        ("node0123456", "node#"),
        ("facade", "facade"),
    ],
)
def test_names_are_alike_without_their_numbers(app: str, program: str) -> None:
    assert program_of(app) == program


CHAIN = {
    "the user's runs of the program on as many GPUs": ended("ann", "a1", 1),
    "the user's runs of the program": ended("ann", "a1", 2, 4),
    "anybody's runs of the program on as many GPUs": ended("bob", "a1", 3),
    "anybody's runs of the program": ended("bob", "a1", 4, 4),
    "the user's jobs on as many GPUs": ended("ann", "b", 5),
    "the user's jobs": ended("ann", "b", 6, 4),
    "jobs of the queue on as many GPUs": ended("bob", "b", 7),
    "jobs on as many GPUs": ended("bob", "b", 8, queue="r"),
    "all jobs": ended("bob", "b", 9, 4, queue="r"),
}


@pytest.mark.parametrize("first", range(len(CHAIN)), ids=list(CHAIN))
def test_the_narrowest_class_that_was_seen_speaks(first: int) -> None:
    known = RunHistory().with_ended(list(CHAIN.values())[first : first + 1])
    assert known.rolling_ms(ended("ann", "a2", 99)) == (first + 1) * SECOND


def test_a_wider_class_is_not_heard_beside_a_narrower_one() -> None:
    own, program, others = ended("ann", "a1", 1), ended("bob", "a1", 30), ended("bob", "b", 700)
    known = RunHistory().with_ended([own, *[program] * 9, *[others] * 90])
    assert known.rolling_ms(ended("ann", "a2", 99)) == SECOND
    assert known.rolling_ms(ended("cyd", "b", 99)) == 700 * SECOND


def test_nothing_known() -> None:
    assert RunHistory().rolling_ms(ended("ann", "a", 1)) == BLANK_MS == HOUR
    assert RunHistory().learned_ms(ended("ann", "a", 1)) == BLANK_MS


def test_recent_runs_of_a_program_weigh_more() -> None:
    """Four times 100 s, then 200: a quarter of the way; among a user's other jobs, a fifth."""
    runs = [*[ended("ann", "a", 100)] * 4, ended("ann", "a", 200)]
    assert RunHistory().with_ended(runs).rolling_ms(ended("ann", "a", 1)) == 125 * SECOND
    assert RunHistory().with_ended(runs).rolling_ms(ended("ann", "b", 1)) == 120 * SECOND


def test_the_learned_part_is_drawn_to_wider_classes() -> None:
    """All jobs take 64 s, those of queue r 4: with eight of its own it is half way, in logarithms."""
    wide = [ended("", "", 64)] * 1_000
    own = [ended("", "", 4, 2, queue="r")]

    def predicted(count: int) -> float:
        return RunHistory().with_ended([*wide, *own * count]).learned_ms(own[0]) / SECOND

    assert predicted(0) == pytest.approx(64)
    assert predicted(1) > predicted(8) > predicted(100)
    assert predicted(10_000) == pytest.approx(4, rel=0.05)


def test_jobs_that_never_ran_teach_nothing() -> None:
    assert RunHistory().with_ended([ended("ann", "a", 0)]) == RunHistory()


def test_killed_and_failed_jobs_teach_too() -> None:
    jobs = [
        replace(by("ann", "a", "a1", 1, 10), outcome=Outcome.CANCELLED),
        by("bob", "b", "b1", 1, 40, at_s=1),
        by("cyd", "c", "c1", 1, 40, at_s=100),
        by("bob", "b", "b2", 1, 40, at_s=101),
        by("ann", "a", "a2", 1, 10, at_s=102),
    ]
    assert finishes(outcome_of(a_scenario(jobs, "1x1"), a_policy("qssf")))["a2"] == 150


def test_what_has_not_been_seen_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MOST", 20)
    known = RunHistory()
    for n in range(200):
        known = known.with_ended([ended("ann", "x" * (n + 1), 7)])
    assert all(len(page) <= 20 for page in known.chapters.values())
    assert known.rolling_ms(ended("ann", "x" * 200, 1)) == 7 * SECOND


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [False, True])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1 << 16))
def test_what_is_learned_survives_amnesia(inner: bool, seed: int) -> None:
    chance = Random(seed)
    jobs = [
        replace(
            each := by(
                chance.choice(["", "ann", "bob"]),
                chance.choice(["", "a1", "a2", "b"]),
                f"j{n:02}",
                chance.choice([1, 1, 2]),
                chance.choice([10, 50, 70, 200]),
                at_s=n * chance.choice([0, 10, 40]),
            ),
            job=replace(each.job, queue=chance.choice("ab")),
        )
        for n in range(40)
    ]
    scenario = a_scenario(jobs, "2x2")
    named = ("two-level", {"inner": "qssf"}) if inner else ("qssf", {"backfill": "easy"})
    remembering = Drive(scenario, a_policy(named[0], **named[1]), checked=False).run()
    forgetting = Drive(scenario, a_policy(named[0], **named[1]), Random(seed), checked=False).run()
    assert forgetting.orders() == remembering.orders()
