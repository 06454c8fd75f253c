"""Two-level scheduling (section 17): fairness between organisations, Tiresias inside each.

Eight GPUs, two organisations of equal weight. Orders are looked at as they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import (
    a_policy,
    a_scenario,
    costly,
    finishes,
    one,
    outcome_of,
    simulated,
    traced,
)
from tests.property.drive import Drive
from tests.property.worlds import scenarios
from trainmaster.config.options import OptionError
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Why
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import WHOLE, to_ms
from trainmaster.sim.driver import Scenario, Simulation


def stopped(
    scenario: Scenario, second: float, policy: str = "two-level", **options: object
) -> Simulation:
    """A run up to that time, with all that happens then."""
    return simulated(replace(scenario, until_ms=to_ms(second)), a_policy(policy, **options))


def holders(
    scenario: Scenario, second: float, policy: str = "two-level", **options: object
) -> set[str]:
    """Who holds GPUs then."""
    jobs = stopped(scenario, second, policy, **options).controller.state.jobs.values()
    return {record.id for record in jobs if record.placement is not None}


def with_queues(scenario: Scenario, *queues: Queue) -> Scenario:
    return replace(scenario, queues={queue.name: queue for queue in queues})


def section_17() -> list[TracedJob]:
    """a has run for long; x of org2 wants 3 GPUs; b and c are new; org2 then wants 8."""
    return [
        traced("a", 4, 9_000, queue="org1"),
        traced("x", 3, 900, at_s=1_900, queue="org2"),
        traced("b", 4, 700, at_s=2_000, queue="org1"),
        traced("c", 1, 700, at_s=2_001, queue="org1"),
        *[traced(f"y{n}", 1, 500, at_s=2_100, queue="org2") for n in range(5)],
    ]


def test_the_example_of_section_17() -> None:
    """Shares 5/3: b runs, one GPU is left for backfill; then 4/4: only the backfill job goes."""
    scenario = a_scenario(section_17(), "1x8")
    assert holders(scenario, 1_999) == {"a", "x"}
    assert holders(scenario, 2_000) == {"b", "x"}, "b is younger; five GPUs hold one of the two"
    assert holders(scenario, 2_001) == {"b", "x", "c"}, "one GPU of the five is left for c"
    assert holders(scenario, 2_100) == {"b", "x", "y0"}, "org2 is owed four: c goes, b stays"
    done = outcome_of(scenario, a_policy("two-level"))
    assert (one(done, "b").preemptions, one(done, "y0").start_ms) == (0, 2_100_000)


def test_without_the_upper_level_organisations_are_not_equal() -> None:
    """Tiresias alone knows no organisations: org2 is left with three GPUs."""
    found = holders(a_scenario(section_17(), "1x8"), 2_100, "tiresias-l")
    assert found == {"x", "b", "c"}


def test_without_the_lower_level_age_does_not_count() -> None:
    found = holders(a_scenario(section_17(), "1x8"), 2_000, inner="fifo")
    assert found == {"a", "x"}, "first in, first out: a stays"


def test_what_nobody_wants_is_lent_and_taken_back_at_once() -> None:
    jobs = [traced(f"a{n}", 2, 100, queue="A") for n in range(4)]
    jobs += [traced("b", 2, 10, at_s=50, queue="B"), traced("late", 4, 10, at_s=60, queue="B")]
    scenario = a_scenario(jobs, "1x8")
    assert holders(scenario, 49) == {"a0", "a1", "a2", "a3"}
    assert holders(scenario, 50) == {"a0", "a1", "a2", "b"}, "the last in line gives way"
    Drive(scenario, a_policy("two-level")).run().everything_ended()


def test_a_gang_goes_whole_and_nobody_is_left_with_less_than_its_part() -> None:
    """A holds one gang of six; B is owed four, but A would be left with nothing."""
    jobs = [traced("gang", 6, 100, queue="A"), traced("b", 4, 10, at_s=50, queue="B")]
    done = outcome_of(a_scenario(jobs, "1x8"), a_policy("two-level"))
    assert finishes(done) == {"gang": 100, "b": 110}
    assert one(done, "gang").preemptions == 0


def test_a_guarantee_is_given_back_even_so() -> None:
    jobs = [traced("gang", 6, 100, queue="A"), traced("b", 4, 10, at_s=50, queue="B")]
    scenario = with_queues(a_scenario(jobs, "1x8"), Queue("B", guaranteed=4 * WHOLE))
    done = outcome_of(scenario, a_policy("two-level"))
    assert finishes(done) == {"gang": 110, "b": 60}


def test_a_maximum_holds_though_gpus_are_idle() -> None:
    jobs = [traced(f"a{n}", 2, 10, queue="A") for n in range(3)]
    scenario = with_queues(a_scenario(jobs, "1x8"), Queue("A", maximum=4 * WHOLE))
    done = outcome_of(scenario, a_policy("two-level"))
    assert finishes(done) == {"a0": 10, "a1": 10, "a2": 20}


TREE = (
    Queue("research"),
    Queue("product"),
    Queue("vision", parent="research", weight=3),
    Queue("speech", parent="research"),
)


@pytest.mark.parametrize(
    ("active", "want"),
    {
        "level by level": (
            {"vision": 16, "speech": 16, "product": 16},
            {"vision": 6, "speech": 2, "product": 8},
        ),
        "a sibling's part first": ({"speech": 16, "product": 16}, {"speech": 8, "product": 8}),
        "what research does not want": (
            {"speech": 3, "product": 16},
            {"speech": 3, "product": 13},
        ),
    }.values(),
)
def test_queues_inside_queues(active: Mapping[str, int], want: Mapping[str, int]) -> None:
    jobs = [
        traced(f"{q}{n}", 1, 100, queue=q) for q, wanted in active.items() for n in range(wanted)
    ]
    names = holders(with_queues(a_scenario(jobs, "2x8"), *TREE), 0)
    assert {queue: sum(name.startswith(queue) for name in names) for queue in active} == want


def test_siblings_take_from_each_other_before_others_are_asked() -> None:
    """Product keeps its eight: speech's part comes from vision, which had borrowed it."""
    jobs = [traced(f"vision{n}", 1, 100, queue="vision") for n in range(8)]
    jobs += [traced(f"product{n}", 1, 100, queue="product") for n in range(8)]
    jobs += [traced(f"speech{n}", 1, 100, at_s=10, queue="speech") for n in range(8)]
    names = holders(with_queues(a_scenario(jobs, "2x8"), *TREE), 10)
    counts = {q: sum(n.startswith(q) for n in names) for q in ("vision", "speech", "product")}
    assert counts == {"vision": 6, "speech": 2, "product": 8}


def test_the_option_goes_before_the_weights_of_the_file() -> None:
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in "ab" for n in range(8)]
    scenario = with_queues(a_scenario(jobs, "1x8"), Queue("a", weight=1), Queue("b", weight=1))
    names = holders(scenario, 0, queues="a:3")
    assert sum(name.startswith("a") for name in names) == 6


def test_a_young_run_is_not_taken_back() -> None:
    jobs = [traced(f"a{n}", 2, 100, queue="A") for n in range(4)]
    jobs.append(traced("b", 2, 10, at_s=20, queue="B"))
    starts = [
        one(outcome_of(a_scenario(jobs, "1x8"), a_policy("two-level", min_run_s=s)), "b").start_ms
        for s in (0, 30)
    ]
    assert starts == [20_000, 30_000]


def test_a_job_that_has_waited_too_long_goes_first_inside_its_queue() -> None:
    """Strict order within A: the second waits for the first, unless it has waited for long."""
    jobs = [
        traced("busy", 4, 10, queue="A"),
        traced("urgent", 4, 10, at_s=2, queue="A", priority=1),
    ]
    jobs += [traced("old", 4, 10, at_s=1, queue="A"), traced("other", 4, 500, queue="B")]
    starts = [
        one(
            outcome_of(
                a_scenario(jobs, "1x8"), a_policy("two-level", inner="fifo", starve_after_s=s)
            ),
            "old",
        ).start_ms
        for s in (0, 5)
    ]
    assert starts == [20_000, 10_000]


def test_it_says_that_the_share_is_used_up() -> None:
    jobs = [traced(f"{q}{n}", 2, 100, queue=q) for q in "AB" for n in range(3)]
    controller = stopped(a_scenario(jobs, "1x8"), 0).controller
    assert controller.explain("A2").why is Why.SHARE_USED_UP
    assert set(controller.explain("A2").held_by) == {"A0", "A1"}


def test_it_says_when_a_queue_can_never_hold_a_job() -> None:
    scenario = with_queues(
        a_scenario([traced("a", 4, 10, queue="A")], "1x8"), Queue("A", maximum=2 * WHOLE)
    )
    assert holders(scenario, 0) == set()
    assert stopped(scenario, 0).controller.explain("a").why is Why.NEVER_FITS


def test_the_inner_policy_has_its_options_and_its_own_memory_in_each_queue() -> None:
    policy = a_policy("two-level", inner_options="promote_knob=1;thresholds_gpu_s=5")
    jobs = [traced(f"{q}{n}", 2, 20, queue=q) for q in "AB" for n in range(3)]
    drive = Drive(a_scenario(jobs, "1x4"), policy)
    drive.run().everything_ended()
    assert set(drive.simulation.controller.memo.inner) == {"A", "B"}


def test_what_cannot_be_inside() -> None:
    with pytest.raises(OptionError, match="tiresias-l has no option 'colour'"):
        a_policy("two-level", inner_options="colour=blue")
    with pytest.raises(OptionError, match="inner must be a policy that does not divide between"):
        a_policy("two-level", inner="fair")
    assert a_policy("two-level", inner="srtf").needs_oracle
    assert not a_policy("two-level").needs_oracle


def test_with_costs_too_everything_ends() -> None:
    world = costly(suspend_ms=3_000, resume_ms=4_000)
    Drive(a_scenario(section_17(), "1x8", world), a_policy("two-level")).run().everything_ended()


# -- whatever the queues ---------------------------------------------------------------------------


@st.composite
def queue_trees(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Queues around and beside the two of the workloads, with bounds that let every job run."""
    parents = ["top", None, None]
    bounds = st.sampled_from([0, 0, 1_000, 2_500, 4_000])
    return (
        Queue("top", guaranteed=draw(bounds), maximum=draw(st.sampled_from([None, 6_000, 9_000]))),
        Queue("default", draw(st.sampled_from(parents)), draw(st.integers(1, 3)), draw(bounds)),
        Queue(
            "other",
            draw(st.sampled_from([*parents, "default"])),
            draw(st.integers(1, 3)),
            draw(bounds),
            draw(st.sampled_from([None, None, 6_000])),
        ),
    )


CONTENDERS = {
    "two-level": ("two-level", {"inner_options": "thresholds_gpu_s=5,40"}),
    "two-level las": ("two-level", {"inner": "las", "inner_options": "quantum_s=7"}),
    "fair": ("fair", {"preempt_timeout_s": 2, "utilisation_threshold": 0}),
    "fair remembering": ("fair", {"preempt_timeout_s": 2, "half_life_s": 20, "inner": "srsf"}),
}


@pytest.mark.parametrize("contender", CONTENDERS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenario=scenarios(), queues=queue_trees(), seed=st.integers(0, 1 << 16))
def test_bounds_hold_everything_ends_and_caches_do_not_matter(
    contender: str, scenario: Scenario, queues: tuple[Queue, ...], seed: int
) -> None:
    name, options = CONTENDERS[contender]
    tree = {queue.name: queue for queue in queues}
    drives = [
        Drive(with_queues(scenario, *queues), a_policy(name, **options), forgetful=forgetful)
        for forgetful in (None, Random(seed))
    ]
    for drive in drives:
        simulation = drive.simulation
        simulation.define_queues()
        while simulation.step():
            drive.look()
            assert_maxima(drive, tree)
        drive.everything_ended()
    assert drives[0].orders() == drives[1].orders()


def assert_maxima(drive: Drive, tree: Mapping[str, Queue]) -> None:
    """No queue, nor one around it, holds more than its maximum, in GPUs."""
    held = dict.fromkeys(tree, 0)
    kinds = drive.scenario.topology.type_of_gpu
    for record in drive.simulation.controller.state.jobs.values():
        pieces = record.placement.slices if record.placement is not None else ()
        size = sum(piece.share for piece in pieces if kinds[piece.gpu].name != "cpu")
        queue: str | None = record.job.queue
        while queue is not None:
            held[queue] += size
            queue = tree[queue].parent
    for name, queue_ in tree.items():
        assert queue_.maximum is None or held[name] <= queue_.maximum, f"{name} holds {held[name]}"


def test_small_starving_jobs_behind_gangs_do_not_keep_the_gangs_waiting() -> None:
    """Each queue's first job is larger than its part, and what starves behind it may not overtake it."""
    jobs = [
        traced("long", 6, 11, queue="org1"),
        traced("gang1", 6, 1, queue="org1"),
        traced("gang2", 6, 1, queue="org2"),
        traced("small2", 1, 1, at_s=1, queue="org2"),
        traced("small1", 1, 1, at_s=1, queue="org1"),
    ]
    policy = a_policy("two-level", inner="fifo", starve_after_s=9)
    assert finishes(outcome_of(a_scenario(jobs, "1x6"), policy))["gang1"] == 12
