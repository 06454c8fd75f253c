"""Jobs of a trace that wait for others, and arrays with a limit."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import a_policy, a_scenario, finishes, one, outcome_of, traced
from trainmaster.model.result import Status
from trainmaster.model.submission import Dependency, When
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.perf.perf_model import IDEAL

FAILING = replace(IDEAL, name="failing", has_failures=True)


def after(job: TracedJob, *wanted: Dependency) -> TracedJob:
    return replace(job, depends_on=wanted)


def test_a_job_starts_when_those_that_it_depends_on_have_ended() -> None:
    jobs = [traced("a", 1, 10), traced("b", 1, 5), after(traced("c", 1, 1), Dependency("a"))]
    jobs.append(after(traced("d", 1, 1), Dependency("b"), Dependency("c", When.ANY)))
    result = outcome_of(a_scenario(jobs, "1x8"), a_policy("fifo"))
    assert finishes(result) == {"a": 10, "b": 5, "c": 11, "d": 12}
    assert one(result, "c").queue_ms == 10_000


def test_what_can_never_be_met_cancels_a_job_and_those_after_it() -> None:
    failed = traced("a", 1, 10, outcome=Outcome.FAILED)
    jobs = [
        failed,
        after(traced("ok", 1, 1), Dependency("a")),
        after(traced("then", 1, 1), Dependency("ok")),
        after(traced("fail", 1, 1), Dependency("a", When.FAIL)),
        after(traced("any", 1, 1), Dependency("a", When.ANY)),
        after(traced("late", 1, 1, at_s=20), Dependency("a")),
    ]
    result = outcome_of(a_scenario(jobs, "1x8", FAILING), a_policy("fifo"))
    assert finishes(result) == {"a": 10, "ok": 10, "then": 10, "fail": 11, "any": 11, "late": 20}
    for job in ("ok", "then", "late"):
        assert (one(result, job).status, one(result, job).start_ms) == (Status.CANCELLED, None)


def test_a_job_that_can_never_run_is_not_waited_for() -> None:
    jobs = [traced("big", 9, 1), after(traced("a", 1, 1), Dependency("big"))]
    jobs.append(after(traced("b", 1, 1), Dependency("big", When.ANY)))
    result = outcome_of(a_scenario(jobs, "1x8"), a_policy("fifo"))
    assert one(result, "a").status is Status.CANCELLED
    assert one(result, "b").status is Status.SUCCEEDED


def test_so_many_elements_of_an_array_run_at_once() -> None:
    jobs = [
        replace(traced(f"s{n}", 1, seconds), array="s", array_limit=2)
        for n, seconds in enumerate((10, 4, 3, 5))
    ]
    result = outcome_of(a_scenario(jobs, "1x8"), a_policy("fifo"))
    assert finishes(result) == {"s0": 10, "s1": 4, "s2": 7, "s3": 12}


def test_an_element_that_is_withdrawn_gives_its_place_to_the_next() -> None:
    first = traced("a", 1, 10, outcome=Outcome.FAILED)
    s0 = replace(after(traced("s0", 1, 5), Dependency("a")), array="s", array_limit=1)
    s1 = replace(traced("s1", 1, 5), array="s", array_limit=1)
    result = outcome_of(a_scenario([first, s0, s1], "1x8", FAILING), a_policy("fifo"))
    assert finishes(result) == {"a": 10, "s0": 10, "s1": 15}
