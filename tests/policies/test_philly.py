"""Philly (ATC'19): rack choice, the search and its release, shares, causes of delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, cluster, one, outcome_of, simulated, traced
from tests.policies.cases import NOW, Case, Stage, in_words, where
from trainmaster.core.controller import Controller
from trainmaster.model import events as e
from trainmaster.model.job import Job, Run, gpus
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Why
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.policies.philly.locality_search import LocalitySearch
from trainmaster.policies.philly.policy import Philly, PhillyOptions
from trainmaster.sim.driver import Scenario, Simulation

# -- T1: which rack, and one more server after a retry -----------------------------------------------

RACKS = "rack r0: a0[4] a1[4] a2[4] a3[4]  rack r1: b0[4] b1[4] b2[4] b3[4]  " + (
    "rack r2: c0[4] c1[4] c2[4] c3[4]"
)
FILLED = (
    "x0 3gpu running on a2:3 | x1 4gpu running on a3 | "
    "y1 2gpu running on b1:2 | y2 2gpu running on b2:2 | y3 2gpu running on b3:2 | "
    "z0 1gpu running on c0:1 | z1 1gpu running on c1:1 | "
    "z2 1gpu running on c2:1 | z3 1gpu running on c3:1"
)
"""Free: r0 = [4, 4, 1, 0], r1 = [4, 2, 2, 2], r2 = [3, 3, 3, 3]."""


class Play:
    """A situation under Philly, pass by pass."""

    def __init__(self, jobs: str, **options: object) -> None:
        self._stage = Stage(Case(RACKS, jobs, ""))
        self.controller = self._stage.controller
        self.controller.policy = a_policy("philly", **options)
        self.controller.memo = self.controller.policy.first_memo()
        self.controller.state.log.needs_pass = True

    def at(self, seconds: float, *facts: e.Event) -> str:
        """What the pass at that time does; time goes on as the controller asks to be woken."""
        controller, done = self.controller, []
        plan = controller.policy.plan

        def noted(view: object, memo: object, now: int) -> object:
            made = plan(view, memo, now)  # type: ignore[arg-type]
            done.append(in_words(made, self._stage.topology))
            return made

        controller.policy.plan = noted  # type: ignore[method-assign, assignment]
        decision = controller.step(NOW + round(seconds * SECOND), facts)
        controller.policy.plan = plan  # type: ignore[method-assign]
        assert not decision.refusals
        self.next_s = None if decision.wake_at is None else (decision.wake_at - NOW) / SECOND
        return done[-1] if done else "no pass"

    def held_by(self, job: str) -> str:
        held = self.controller.state.reservations.get(job)
        return where(held.slices, self._stage.topology) if held is not None else "nothing"


def test_eight_gpus_on_two_servers_are_only_in_r0() -> None:
    play = Play(f"{FILLED} | big 8gpu pending 0s")
    assert play.at(0) == "start big on a0 a1"


def test_twelve_gpus_on_three_servers_are_nowhere_and_on_four_in_r2() -> None:
    play = Play(f"{FILLED} | big 12gpu pending 0s")
    assert play.at(0).startswith("reserve ")
    assert play.next_s == 150, "T_acquire"
    assert play.held_by("big") == "c0:3 c1:3 c2:3"
    play.at(150)
    assert play.held_by("big") == "nothing", "released in time"
    assert play.next_s == 270, "T_backoff"
    assert play.at(270) == "start big on c0:3 c1:3 c2:3 c3:3"


def test_without_relaxation_it_never_starts_before_others_leave() -> None:
    play = Play(f"{FILLED} | big 12gpu pending 0s", relax_after=10**9, preemption="off")
    seconds: float | None = 0.0
    for _ in range(100):
        assert seconds is not None
        assert "start" not in play.at(seconds)
        seconds = play.next_s
    assert seconds == 50 * 270


def test_relaxing_waits_for_as_many_retries_as_it_is_told() -> None:
    play = Play(f"{FILLED} | big 12gpu pending 0s", relax_after=2)
    for seconds in (0, 150, 270, 420):
        assert "start" not in play.at(seconds)
    assert play.at(540).startswith("start big on c0:3")


def test_at_last_any_gpus_of_the_cluster_will_do() -> None:
    """13 GPUs need 4 servers, all that a rack has: the next step are other racks."""
    play = Play(f"{FILLED} | big 13gpu pending 0s")
    play.at(0)
    play.at(150)
    assert play.at(270) == "start big on a0 a1 a2:1 b0"


def test_an_acquisition_ends_as_soon_as_its_servers_have_all() -> None:
    """The GPUs that come free are its own, although an earlier job wants one of them."""
    play = Play(f"{FILLED} | big 12gpu pending 1min | small 4gpu pending 0s", relax_after=9)
    assert play.at(0) == "reserve c0:3 c1:3 c2:3 for big; start small on a0"
    gone = [e.RunSucceeded(Run(name, 1)) for name in ("z0", "z1")]
    assert play.at(10, *gone) == "release big; reserve c0 c1 c2:3 for big"
    assert play.at(20, e.RunSucceeded(Run("z2", 1))) == "release big; start big on c0 c1 c2"


def test_the_clock_stands_still_while_too_few_gpus_are_idle() -> None:
    """Others take 20 of the 31 idle GPUs after 100 s: relaxing could not help, so nothing is held."""
    play = Play(f"{FILLED} | big 12gpu pending 1min", preemption="off")
    play.at(0)
    sizes = [4, 4, 4, 2, 2, 2, 1, 1]
    others = [Job(f"o{n}", NOW, gpus(size)) for n, size in enumerate(sizes)]
    assert "start o7 on c3:1" in play.at(100, *(e.JobSubmitted(each) for each in others))
    assert (play.held_by("big"), play.next_s) == ("nothing", None)
    play.at(500, e.RunStarted(Run("o6", 1), 1_000_000), e.RunSucceeded(Run("o6", 1)))
    assert play.next_s == 550, "50 s of the acquisition were left"


def test_racks_are_ranked_by_servers_that_can_contribute() -> None:
    """4 GPUs on one server: r0 has two such, r1 one. With a0 gone they tie, and r1 is fuller."""
    assert Play(f"{FILLED} | small 4gpu pending 0s").at(0) == "start small on a0"
    # One GPU: r2 and r1 have four servers each with some free, r0 three; r1 has fewer free in all.
    assert Play(f"{FILLED} | tiny 1gpu pending 0s").at(0) == "start tiny on b1:1"


# -- T2: no hold-and-wait ----------------------------------------------------------------------------


def one_rack(*jobs: TracedJob, **options: object) -> Controller:
    controller = Controller(cluster("3x4"), a_policy("philly", **options))
    controller.step(0, [e.JobSubmitted(each.job) for each in jobs])
    return controller


def holdings(controller: Controller, job: str) -> int:
    placement = controller.state.jobs[job].placement
    held = controller.state.reservations.get(job)
    return len(placement.slices if placement else held.slices if held else ())


def test_of_two_gangs_one_holds_everything_and_the_other_nothing() -> None:
    controller = one_rack(traced("a", 8, 1), traced("b", 8, 1))
    for now in (0, 149_999, 150_000, 150_001, 400_000):
        controller.step(now, [])
        assert (holdings(controller, "a"), holdings(controller, "b")) == (8, 0)


APART = "n0[4] n1[4] n2[4] n3[4]"


def apart(**options: object) -> Mapping[str, float | None]:
    """Three servers keep one GPU busy for long, so that the gang of 8 finds no two whole ones."""
    jobs = [
        *(traced(f"long{n}", 3, 40) for n in range(4)),
        *(traced(f"one{n}", 1, 100_000 if n else 40) for n in range(4)),
        traced("gang", 8, 1_000, at_s=50),
        traced("late", 4, 1_000, at_s=60),
    ]
    result = outcome_of(a_scenario(jobs, APART), a_policy("philly", **options))
    return {j.job_id: None if j.start_ms is None else j.start_ms / SECOND for j in result.jobs}


def test_what_a_gang_acquires_it_releases_in_time() -> None:
    """The gang holds 7 GPUs from 50 s to 200 s; then the later, smaller one gets its server."""
    starts = apart(relax_after=10**9)
    assert starts["late"] == 200


def test_without_timeout_and_release_it_blocks_others_for_good() -> None:
    starts = apart(relax_after=10**9, acquire_timeout_s=90_000)
    assert starts["late"] == 90_050


def test_relaxed_it_takes_three_servers() -> None:
    assert apart()["gang"] == 50 + 150 + 120


# -- out of order ------------------------------------------------------------------------------------


class Strict(LocalitySearch):
    """Nobody overtakes."""

    allows_overtaking = False


class StrictPhilly(Philly):
    def chosen_inner(self, options: PhillyOptions) -> tuple[type, object]:
        return Strict, super().chosen_inner(options)[1]


def test_a_later_job_that_fits_starts_while_an_earlier_one_waits_for_locality() -> None:
    jobs = [traced("a", 3, 1_000), traced("b", 3, 1_000), traced("pair", 2, 10, at_s=5)]
    jobs.append(traced("single", 1, 10, at_s=200))
    scenario = a_scenario(jobs, "n1[4] n2[4]")
    options = PhillyOptions(relax_after=10**9)
    free = outcome_of(scenario, Philly(options))
    assert one(free, "single").start_ms == 200_000
    strict = outcome_of(scenario, StrictPhilly(options))
    assert one(strict, "single").start_ms == one(strict, "pair").start_ms
    assert one(strict, "pair").start_ms == 1_085_000, (
        "it slept from 965 s on, although another job left at 1,000"
    )


# -- the fair layer ----------------------------------------------------------------------------------


def queued(scenario: Scenario, **queues: Queue) -> Scenario:
    return replace(scenario, queues=queues)


def test_a_queue_gets_its_share_back_only_when_the_cluster_is_nearly_full() -> None:
    """Queue a borrows all; b starves. 8 of 8 GPUs are in use: more than 90 %."""
    jobs = [traced(f"a{n}", 1, 10_000, queue="a") for n in range(8)]
    jobs += [traced("b", 4, 100, at_s=10, queue="b")]
    full = outcome_of(a_scenario(jobs, "1x8"), a_policy("philly"))
    assert one(full, "b").start_ms == 310_000, "after preempt_timeout_s"
    never = outcome_of(a_scenario(jobs, "1x8"), a_policy("philly", preemption="off"))
    assert one(never, "b").start_ms == 10_000_000
    # 14 of 16 are held (88 %): b waits for two to end.
    jobs = [traced(f"a{n}", 2, 10_000 - n, queue="a") for n in range(7)]
    jobs += [traced("b", 4, 100, at_s=10, queue="b")]
    nearly = outcome_of(a_scenario(jobs, "2x8"), a_policy("philly"))
    assert one(nearly, "b").start_ms == 9_994_000
    below = outcome_of(a_scenario(jobs, "2x8"), a_policy("philly", utilisation_threshold=0.8))
    assert one(below, "b").start_ms == 310_000


def test_weights_divide_what_all_want() -> None:
    jobs = [traced(f"{q}{n}", 1, 1_000, queue=q) for n in range(8) for q in "ab"]
    scenario = a_scenario(jobs, "1x8")

    def at_once(**options: object) -> dict[str, int]:
        result = outcome_of(scenario, a_policy("philly", **options))
        first = [job.queue for job in result.jobs if job.start_ms == 0]
        return {queue: first.count(queue) for queue in "ab"}

    assert at_once() == {"a": 4, "b": 4}
    assert at_once(queues="a:3,b:1") == {"a": 6, "b": 2}


# -- T3: causes --------------------------------------------------------------------------------------


def asked(topology: str, jobs: list[TracedJob], queues: list[Queue], job: str) -> Controller:
    controller = Controller(cluster(topology), a_policy("philly"))
    controller.step(0, [e.QueueDefined(queue) for queue in queues])
    for each in jobs:
        controller.step(0, [e.JobSubmitted(each.job)])
    assert controller.state.jobs[job].placement is None, f"{job} runs"
    return controller


def test_a_used_up_quota_is_fair_share_delay() -> None:
    """Quota 8, 8 in use, 8 more GPUs idle but not lent."""
    quota = Queue("vc", maximum=8 * WHOLE)
    jobs = [traced("runs", 8, 100, queue="vc"), traced("pair", 2, 100, queue="vc")]
    reason = asked("2x8", jobs, [quota], "pair").explain("pair")
    assert (reason.why, reason.free, reason.held_by) == (Why.SHARE_USED_UP, 8_000, ("runs",))


def test_a_free_gpu_on_every_server_is_fragmentation_delay() -> None:
    """Quota 16, 8 in use by the queue, one GPU idle on each server, 4 asked for on one."""
    quota = Queue("vc", maximum=16 * WHOLE)
    topology = " ".join(f"n{n}[3]" for n in range(4)) + " " + " ".join(f"m{n}[4]" for n in range(4))
    jobs = [traced(f"v{n}", 2, 100, queue="vc") for n in range(4)]
    jobs += [traced(f"o{n}", 3, 100, queue="other") for n in range(4)]
    jobs += [traced("four", 4, 100, queue="vc")]
    controller = asked(topology, jobs, [quota], "four")
    assert [mask.bit_count() for mask in controller.state.occupancy.whole] == [1] * 8
    reason = controller.explain("four")
    assert (reason.why, reason.need, reason.free) == (Why.FRAGMENTED, 4_000, 8_000)
    assert reason.largest_block == 1_000


CAUSES = {
    Why.SHARE_USED_UP: "fair_share_s",
    Why.FRAGMENTED: "fragmentation_s",
    Why.RESERVED: "fragmentation_s",
}
"""Idle GPUs that a search holds are out of reach for others because that search lacks locality."""


def test_delays_in_the_results_are_the_policys_own_reasons() -> None:
    """What each waiting job answers after every step adds up to the report's numbers."""
    jobs = [traced(f"v{n}", 2, 100 + n, queue="vc", at_s=n) for n in range(6)]
    jobs += [traced(f"w{n}", 3, 90, queue="other", at_s=1) for n in range(4)]
    jobs += [
        traced("wide", 12, 50, queue="other", at_s=2),
        traced("four", 4, 50, queue="vc", at_s=9),
    ]
    scenario = queued(a_scenario(jobs, "n0[4] n1[4] n2[4] n3[4]"), vc=Queue("vc", maximum=6_000))
    hasty = {"acquire_timeout_s": 20, "backoff_s": 10}
    delays = simulated(scenario, a_policy("philly", **hasty)).sampler.delays()
    told = dict.fromkeys(["fair_share_s", "fragmentation_s", "contention_s"], 0.0)
    watched = Simulation(scenario, a_policy("philly", **hasty))
    watched.controller.step(0, [e.QueueDefined(queue) for queue in scenario.queues.values()])
    last, before = 0, dict.fromkeys(told, 0)
    while watched.step():
        for cause, count in before.items():
            told[cause] += count * (watched.now - last) / SECOND
        last, before = watched.now, dict.fromkeys(told, 0)
        for record in watched.controller.view.waiting():
            why = watched.controller.explain(record.id).why
            before[CAUSES.get(why, "contention_s")] += 1
    assert told == {cause: getattr(delays, cause) for cause in told}
    assert min(told["fair_share_s"], told["fragmentation_s"]) > 0
    sizes = {each.label: each for each in delays.by_size}
    assert set(sizes) <= {"2-4 GPUs", "5-8 GPUs", "over 8 GPUs"}
    assert sum(each.fragmentation_s for each in delays.by_size) == delays.fragmentation_s


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("acquire_timeout_s", "0"),
        ("backoff_s", "-1"),
        ("relax_after", "0"),
        ("relax_after", "1.5"),
        ("utilisation_threshold", "1.2"),
        ("queues", "a:0"),
    ],
)
def test_bad_options_are_one_sentence(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"philly: {key} must be "):
        a_policy("philly", **{key: text})
