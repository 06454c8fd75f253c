"""Max-min shares of elastic jobs: water-filling, re-division, minima, and where GPUs are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, cluster, finishes, outcome_of, traced
from tests.policies.cases import Case
from tests.property.drive import Drive
from trainmaster.core.policy import Policy
from trainmaster.core.state import JobRecord
from trainmaster.estimators.throughput_calibration import Corrections
from trainmaster.mechanisms.reallocating_policy import ReallocatingOptions
from trainmaster.mechanisms.speedup_curves import Curves, SpeedupCurve
from trainmaster.model import actions as a
from trainmaster.model.job import gpus
from trainmaster.model.placement import Placement
from trainmaster.model.units import SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.policies.max_min import MaxMin
from trainmaster.sim.driver import Estimates, Scenario


def sizes(drive: Drive) -> list[tuple[float, str, int]]:
    """(when, who, GPUs) of every launch and reshaping."""
    return [
        (now / SECOND, order.run.job, len(order.placement.slices))
        for now, orders in drive.orders()
        for order in orders
        if isinstance(order, a.Launch | a.Reshape)
    ]


def driven(scenario: Scenario, policy: Policy) -> Drive:
    return Drive(scenario, policy).run()


# -- water-filling -----------------------------------------------------------------------------------


def test_seven_gpus_and_demands_of_1_3_and_8_make_1_3_and_3() -> None:
    jobs = [
        traced("one", gpus(1), 100),
        traced("three", gpus(3, minimum=1), 100),
        traced("eight", gpus(8, minimum=1), 100),
    ]
    drive = driven(a_scenario(jobs, "1x7"), a_policy("max-min"))
    assert sizes(drive)[:3] == [(0, "one", 1), (0, "three", 3), (0, "eight", 3)]


CASES = {
    "equal shares, the odd GPU to the first": Case(
        cluster="rack r: n1[8]",
        jobs="a 1gpu elastic 1..8 pending 3min | b 1gpu elastic 1..8 pending 2min"
        " | c 1gpu elastic 1..8 pending 1min",
        want="start a on n1:3; start b on n1:3; start c on n1:2",
    ),
    "a minimum above the fair share is kept, the others share the rest": Case(
        cluster="rack r: n1[8]",
        jobs="a 5gpu elastic 5..8 pending 3min | b 1gpu elastic 1..8 pending 2min"
        " | c 1gpu elastic 1..8 pending 1min",
        want="start a on n1:5; start b on n1:2; start c on n1:1",
    ),
    "a job whose minimum is not left waits, and gets nothing": Case(
        cluster="rack r: n1[4]",
        jobs="a 2gpu elastic 2..4 pending 3min | b 3gpu elastic 3..4 pending 2min"
        " | c 1gpu elastic 1..4 pending 1min",
        want="start a on n1:2; start c on n1:2",
    ),
    "a rigid job gets all or nothing": Case(
        cluster="rack r: n1[4]",
        jobs="a 1gpu elastic 1..4 pending 3min | b 4gpu pending 2min | c 2gpu pending 1min",
        want="start a on n1:2; start c on n1:2",
    ),
    "a grown run shrinks for a newcomer": Case(
        cluster="rack r: n1[4]",
        jobs="a 4gpu elastic 1..4 running on n1 | b 2gpu pending 1min",
        want="resize a on n1:2; start b on n1:2",
    ),
    "who slipped in goes when an earlier job fits": Case(
        cluster="rack r: n1[4]",
        jobs="a 1gpu elastic 1..1 running on n1:1 attained 5h | b 3gpu elastic 2..3 pending 4h"
        " | c 3gpu running on n1:3 attained 3h",
        want="start b on n1:3; suspend c",
    ),
    "a job that shrinks keeps the node where it has most": Case(
        cluster="rack r: n1[4] n2[4]",
        jobs="a 5gpu elastic 1..5 running on n1:1 n2 | b 4gpu pending 1min",
        want="resize a on n2; start b on n1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_pass_does(case: str) -> None:
    assert CASES[case].done_by("max-min") == CASES[case].want


# -- dividing again ----------------------------------------------------------------------------------


def arriving() -> Scenario:
    """Two jobs that could use all four GPUs, the second arriving at 10 s."""
    any_size = gpus(4, minimum=1)
    return a_scenario([traced("a", any_size, 100), traced("b", any_size, 50, at_s=10)], "1x4")


def test_shares_are_divided_again_on_arrival_and_completion() -> None:
    """b: 2 of 4 GPUs, 100 s; a: 10 s + 100 s at half speed, 40 of 100 s left, alone again."""
    drive = driven(arriving(), a_policy("max-min"))
    assert sizes(drive) == [(0, "a", 4), (10, "a", 2), (10, "b", 2), (110, "a", 4)]
    assert finishes(outcome_of(arriving(), a_policy("max-min"))) == {"a": 150, "b": 110}


class OnlyOnArrival(MaxMin):
    """Never gives a run more than it has: no re-division when a job ends."""

    def is_worth_growing(
        self, record: JobRecord, count: int, curve: SpeedupCurve, now: int
    ) -> bool:
        return False


def test_without_dividing_again_on_completion_jobs_end_later() -> None:
    static = outcome_of(arriving(), OnlyOnArrival(ReallocatingOptions()))
    assert finishes(static) == {"a": 190, "b": 110}


def test_without_dividing_again_on_arrival_the_newcomer_waits() -> None:
    """FIFO, the static baseline, with the same demands."""
    assert finishes(outcome_of(arriving(), a_policy("fifo"))) == {"a": 100, "b": 150}


def test_a_gain_below_the_cost_of_resizing_is_left_alone() -> None:
    """From 110 s on, four GPUs instead of two would bring a's end 40 s forward."""
    assert finishes(outcome_of(arriving(), a_policy("max-min", resize_cost_s=39)))["a"] == 150
    assert finishes(outcome_of(arriving(), a_policy("max-min", resize_cost_s=40)))["a"] == 190


# -- where the GPUs are ------------------------------------------------------------------------------

SCATTERED = Case(
    cluster="rack r: n1[4] n2[4] n3[4]",
    jobs="x 2gpu running on n1:2 | y 2gpu running on n2:2 | z 3gpu running on n3:3"
    " | heavy 1gpu model vgg16 elastic 1..8 pending 2min"
    " | light 1gpu model resnet50 elastic 1..8 pending 1min",
    want="start heavy on n1:2; start light on n2:2 n3:1",
)


def test_two_gpus_in_a_node_beat_three_over_two_and_the_third_goes_to_another_job() -> None:
    """VGG-16 has 528 MB to exchange in each step; ResNet-50, with 98 MB, can use the third GPU."""
    assert SCATTERED.done_by("max-min") == SCATTERED.want


def test_counting_alone_would_spread_the_heavy_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_count(
        self: Curves, record: JobRecord, placement: Placement, corrections: Corrections
    ) -> int:
        return len(placement.slices)

    monkeypatch.setattr(Curves, "speed", by_count)
    assert SCATTERED.done_by("max-min") == "start heavy on n1:2 n3:1; start light on n2:2"


def test_a_run_does_not_grow_onto_another_node_where_that_is_slower() -> None:
    case = Case(
        cluster="rack r: n1[4] n2[4]",
        jobs="heavy 2gpu model vgg19 elastic 1..8 running on n1:2 | x 2gpu running on n1:2"
        " | y 3gpu running on n2:3",
        want="nothing",
    )
    assert case.done_by("max-min") == case.want
    light = replace(case, jobs=case.jobs.replace("vgg19", "resnet50"))
    assert light.done_by("max-min") == "resize heavy on n1:2 n2:1"


# -- what is measured --------------------------------------------------------------------------------


def test_speeds_that_nobody_declared_are_learned_from_runs() -> None:
    """Nothing is known, but training scales linearly: after the first run the policy knows."""
    any_size = gpus(1, maximum=4)
    jobs = [traced("a", any_size, 100, model="mine"), traced("b", any_size, 90, model="mine")]
    scenario = replace(a_scenario(jobs, "1x4"), estimates=Estimates(known=False))
    policy = a_policy("max-min")
    drive = driven(scenario, policy)
    memo = drive.simulation.controller.memo
    ((key, measured),) = memo.measured.corrections.entries  # type: ignore[attr-defined]
    assert key == "mine/1"
    assert {known.allocation.count for known in measured} >= {1, 2}
    curves = Curves(cluster("1x4"))
    record = drive.simulation.ledger.accounts["a"].record
    assert record is not None
    curve = curves.of(record, memo.measured.corrections)  # type: ignore[attr-defined]
    assert curve.speeds[2] / curve.speeds[1] == pytest.approx(2, rel=0.02)
    unknown = curves.of(record, Corrections())
    assert unknown.speeds[2] / unknown.speeds[1] == pytest.approx(1.736, rel=0.01)


def test_it_starts_elastic_jobs_below_their_nominal_size() -> None:
    assert a_policy("max-min").is_moldable
    result = outcome_of(
        a_scenario([traced("a", gpus(8, minimum=2), 10)], "1x4", IDEAL), a_policy("max-min")
    )
    assert finishes(result) == {"a": 20}
