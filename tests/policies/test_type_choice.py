"""A job that may have CPU slots or GPUs gets that on which it ends first, by what is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_policy
from tests.policies.cases import NOW, Case, Stage, in_words
from trainmaster.core.next_attempt import change_demand
from trainmaster.model.reasons import Why
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.text.reasons import reason_sentence

MIXED = "gpus[1] cpus[1slowcpu]"
"""A CPU slot has a tenth of the speed of the GPU."""
BUSY = "busy 1gpu needs 20min running on gpus attained 10min"
"""The GPU is free in ten minutes."""
POLICIES = ("two-level", "trainmaster")

CASES = {
    "a short job goes to the CPU: five minutes there, where it would wait ten for the GPU": Case(
        cluster=MIXED,
        jobs=f"{BUSY} | short 1gpu types cpu gpu needs 30s pending 1s",
        want="start short on cpus",
    ),
    "a longer job waits for the GPU: it would take fifty minutes on the CPU": Case(
        cluster=MIXED,
        jobs=f"{BUSY} | longer 1gpu types cpu gpu needs 5min pending 1s",
        want="nothing",
    ),
    "a GPU that is free is taken": Case(
        cluster=MIXED,
        jobs="any 1gpu types cpu gpu needs 5min pending 1s",
        want="start any on gpus",
    ),
    "one that waits does not keep another of its kind from the CPU": Case(
        cluster=MIXED,
        jobs=f"{BUSY} | longer 1gpu types cpu gpu needs 5min pending 1min"
        " | short 1gpu types cpu gpu needs 30s pending 1s",
        want="start short on cpus",
    ),
    "of several that wait those that are too far behind go to the CPU": Case(
        cluster="gpus[1] cpus[2slowcpu]",
        jobs=" | ".join(
            [BUSY, *(f"j{n} 1gpu types cpu gpu needs 5min pending {20 - n}s" for n in range(1, 11))]
        ),
        want="start j10 on cpus:1; start j9 on cpus:1",
        options={"inner": "fifo"},
    ),
}


def of_policy(case: Case, policy: str) -> Case:
    return case if policy == "two-level" else replace(case, options={})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", CASES)
def test_where_a_job_goes(name: str, policy: str) -> None:
    case = of_policy(CASES[name], policy)
    assert case.done_by(policy) == case.want


@pytest.mark.parametrize("policy", POLICIES)
def test_without_the_choice_a_job_takes_what_is_free(policy: str) -> None:
    case = CASES["a longer job waits for the GPU: it would take fifty minutes on the CPU"]
    off = replace(case, options={"type_choice": "first-free"})
    assert off.done_by(policy) == "start longer on cpus"


TAKEN = {
    "it does not wait for a GPU that another job gets first": Case(
        cluster=MIXED,
        jobs=f"{BUSY} | first 1gpu needs 2h pending 5min | longer 1gpu types cpu gpu needs 5min pending 1s",
        want="start longer on cpus",
        options={"inner": "fifo", "inner_options": "backfill=skip"},
    ),
    "nobody knows how long the job takes": Case(
        cluster=MIXED,
        jobs=f"{BUSY} | any 1gpu types cpu gpu pending 1s",
        want="start any on cpus",
    ),
    "nobody knows when the GPU is free": Case(
        cluster=MIXED,
        jobs="busy 1gpu running on gpus attained 10min | longer 1gpu types cpu gpu needs 5min pending 1s",
        want="start longer on cpus",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_free_is_taken_where_waiting_promises_nothing(name: str) -> None:
    assert TAKEN[name].done_by("two-level") == TAKEN[name].want


@pytest.mark.parametrize("policy", POLICIES)
def test_it_says_why_it_waits_and_looks_again_when_the_gpu_should_be_free(policy: str) -> None:
    case = CASES["a longer job waits for the GPU: it would take fifty minutes on the CPU"]
    stage, planned = Stage(case), a_policy(policy)
    view, memo = stage.controller.view, planned.first_memo()
    plan = planned.plan(view, memo, NOW)
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW + 10 * MINUTE
    reason = planned.explain(view, memo, view.jobs["longer"], NOW)
    assert (reason.why, reason.detail) == (Why.FASTER_TYPE, "gpu")
    assert reason.until_ms == NOW + 10 * MINUTE
    said = reason_sentence(reason, NOW)
    assert said.startswith("It waits for gpu, expected to be free at")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_outlasts_its_estimate_is_not_waited_for_as_if_it_ended_now(policy: str) -> None:
    """It is expected to take a tenth of its time more: then the CPU is slower still."""
    late = "busy 1gpu needs 10min running on gpus attained 10h"
    short = Case(
        MIXED, f"{late} | any 1gpu types cpu gpu needs 5min pending 1s", "start any on cpus"
    )
    assert short.done_by(policy) == short.want


@pytest.mark.parametrize("policy", POLICIES)
def test_its_own_speed_counts_where_it_has_run(policy: str) -> None:
    case = CASES["a longer job waits for the GPU: it would take fifty minutes on the CPU"]
    stage, planned = Stage(case), a_policy(policy)
    record = stage.controller.state.jobs["longer"]
    record.own_speeds = (("cpu", 900_000),)
    plan = planned.plan(stage.controller.view, planned.first_memo(), NOW)
    assert [action.job for action in plan.actions] == ["longer"]


@pytest.mark.parametrize(
    "forbids", [{"barred": (0,)}, {"avoid": (0,), "must_avoid": True}], ids=["barred", "avoided"]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_it_does_not_wait_for_a_free_device_that_it_cannot_have(
    policy: str, forbids: dict[str, Any]
) -> None:
    stage = Stage(Case(MIXED, "any 1gpu types cpu gpu needs 5min pending 1s", ""))
    planned, state = a_policy(policy), stage.controller.state
    change_demand(state, state.jobs["any"], lambda demand: replace(demand, **forbids))
    plan = planned.plan(stage.controller.view, planned.first_memo(), NOW)
    assert in_words(plan, stage.topology) == "start any on cpus"


def test_it_looks_again_after_a_second_at_the_earliest() -> None:
    busy = "busy 1gpu needs 10min running on gpus attained 599900ms"
    stage = Stage(Case(MIXED, f"{busy} | any 1gpu types cpu gpu needs 5min pending 1s", ""))
    planned = a_policy("two-level")
    plan = planned.plan(stage.controller.view, planned.first_memo(), NOW)
    assert not plan.actions
    assert plan.wake_at == NOW + SECOND
