"""AntMan (OSDI'20, section 4): guaranteed jobs as if alone, opportunistic ones on what is idle.

Throttling (the sleep between steps) belongs to the run's supervisor and is tested with it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, cluster, costly, finishes, one, simulated
from trainmaster.core.controller import Controller
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.placement import Role
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Why
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, NOMINAL, WHOLE, to_ms
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel
from trainmaster.sim.metrics import result_of

GPU_MEMORY = 16
"""GiB of the GPUs in these clusters."""


def a_job(
    name: str,
    service_s: float,
    *,
    at_s: float = 0,
    gpus: int = 1,
    gib: int = 4,
    busy: float | None = 0.5,
    queue: str = "default",
    share: float = 1.0,
) -> TracedJob:
    """Guaranteed; `gib` 0 = it does not state its memory, `busy` None = nobody knows."""
    used = None if busy is None else round(busy * NOMINAL)
    shape = Shape(gpus, round(share * WHOLE), gib * GIB)
    job = Job(name, to_ms(at_s), Demand(shape, gpus, gpus), queue=queue, gpu_util_ppm=used)
    return TracedJob(job, to_ms(service_s))


def opportunistic(traced: TracedJob) -> TracedJob:
    return replace(traced, job=replace(traced.job, role=Role.OPPORTUNISTIC))


def antman(
    jobs: list[TracedJob],
    topology: str = "1x1",
    world: PerfModel = IDEAL,
    queues: dict[str, int] | None = None,
    **options: object,
) -> Result:
    """A run; `queues` are quotas in GPUs."""
    known = {name: Queue(name, guaranteed=gpus * WHOLE) for name, gpus in (queues or {}).items()}
    scenario = replace(a_scenario(jobs, topology, world), queues=known, keep_stints=True)
    return result_of(simulated(scenario, a_policy("antman", **options)))


def starts(result: Result) -> dict[str, float]:
    return {j.job_id: j.start_ms / 1000 for j in result.jobs if j.start_ms is not None}


# -- opportunistic jobs join GPUs that are not busy --------------------------------------------------


@pytest.mark.parametrize(
    ("busy", "start"),
    [(0.75, 0), (0.79, 0), (0.80, 100), (0.85, 100), (None, 100)],
    ids=["75 %", "79 %", "80 %", "85 %", "unknown"],
)
def test_a_gpu_is_a_candidate_below_80_percent(busy: float | None, start: float) -> None:
    result = antman([a_job("rg", 100, busy=busy), opportunistic(a_job("ot", 10))])
    assert starts(result) == {"rg": 0, "ot": start}


def test_the_limit_is_an_option() -> None:
    jobs = [a_job("rg", 100, busy=0.85), opportunistic(a_job("ot", 10))]
    assert starts(antman(jobs, util_limit=0.9))["ot"] == 0


def test_what_runs_there_adds_up() -> None:
    """0.3 + 0.3 is below 0.8, with the second opportunist 0.3 + 0.3 + 0.3 is not."""
    guests = [opportunistic(a_job(f"ot{n}", 10, at_s=n, busy=0.3, gib=1)) for n in range(4)]
    result = antman([a_job("rg", 100, busy=0.3), *guests])
    assert starts(result) == {"rg": 0, "ot0": 0, "ot1": 1, "ot2": 10, "ot3": 11}


def test_the_least_busy_gpu_is_chosen() -> None:
    jobs = [
        a_job("half", 100, busy=0.5),
        a_job("calm", 100, busy=0.2),
        a_job("busy", 100, busy=0.7),
        opportunistic(a_job("ot", 10)),
    ]
    scenario = replace(a_scenario(jobs, "1x3", IDEAL), keep_stints=True)
    stints = simulated(scenario, a_policy("antman")).ledger.stints
    assert stints is not None
    where = {stint.job_id: stint.gpus for stint in stints}
    assert where["ot"] == where["calm"]


def test_an_opportunistic_gang_is_all_or_nothing() -> None:
    """One GPU of the two is too busy: the gang waits for both."""
    jobs = [
        a_job("calm", 100, busy=0.2),
        a_job("busy", 50, busy=0.9),
        opportunistic(a_job("ot", 10, gpus=2)),
    ]
    assert starts(antman(jobs, "1x2"))["ot"] == 50


def test_a_gpu_whose_memory_is_taken_is_no_candidate() -> None:
    rg, ot = a_job("rg", 100, gib=14), opportunistic(a_job("ot", 10, gib=4))
    assert starts(antman([rg, ot]))["ot"] == 100
    unstated = a_job("rg", 100, gib=0)
    assert starts(antman([unstated, ot]))["ot"] == 100, "it may use all of it"


def test_with_classes_ignored_the_opportunistic_job_waits_like_everybody() -> None:
    jobs = [a_job("rg", 100), opportunistic(a_job("ot", 10))]
    assert starts(antman(jobs))["ot"] == 0
    assert starts(antman(jobs, classes="off"))["ot"] == 100


def test_fractions_work_too() -> None:
    """Each guaranteed half has what it asked for; with both, no memory is left for an opportunist."""
    jobs = [
        a_job("rg1", 50, share=0.5),
        a_job("rg2", 50, share=0.5),
        opportunistic(a_job("ot", 50, share=0.5, busy=0.2)),
    ]
    assert starts(antman(jobs)) == {"rg1": 0, "rg2": 0, "ot": 50}


# -- guaranteed jobs run as if alone -----------------------------------------------------------------


def test_at_most_one_guaranteed_job_per_gpu() -> None:
    jobs = [a_job("rg1", 100, busy=0.2), a_job("rg2", 100, busy=0.2)]
    assert starts(antman(jobs)) == {"rg1": 0, "rg2": 100}
    assert starts(antman(jobs, guaranteed_per_gpu=2)) == {"rg1": 0, "rg2": 0}


def test_the_guaranteed_job_keeps_its_speed_and_the_guest_gets_what_is_idle() -> None:
    """Default world: a host that uses half of its GPU leaves the guest half of it."""
    jobs = [a_job("rg", 100, busy=0.5), opportunistic(a_job("ot", 40, busy=0.9))]
    result = antman(jobs, world=DEFAULT)
    assert finishes(result)["rg"] == pytest.approx(100, rel=0.04)
    assert finishes(result)["ot"] == pytest.approx(80, rel=0.04)
    equals = antman(jobs, world=DEFAULT, classes="off", guaranteed_per_gpu=2)
    slower = finishes(equals)["rg"]
    assert slower is not None
    assert slower > 110, "side by side without classes it loses"


def test_an_arrival_whose_memory_does_not_fit_evicts_the_guest() -> None:
    jobs = [
        opportunistic(a_job("ot", 100, gib=10)),
        a_job("rg", 30, at_s=20, gib=10),
    ]
    result = antman(jobs)
    assert finishes(result) == {"ot": 130, "rg": 50}
    assert one(result, "ot").preemptions == 1
    assert one(result, "rg").preemptions == 0


def test_an_arrival_whose_memory_fits_comes_beside_the_guest() -> None:
    jobs = [opportunistic(a_job("ot", 100, gib=6)), a_job("rg", 30, at_s=20, gib=10)]
    result = antman(jobs)
    assert finishes(result) == {"ot": 100, "rg": 50}
    assert one(result, "ot").preemptions == 0


def test_a_guaranteed_job_is_never_evicted() -> None:
    jobs = [a_job("rg1", 100, gib=10), a_job("rg2", 30, at_s=20, gib=10)]
    result = antman(jobs, queues={"default": 1, "other": 1})
    assert starts(result)["rg2"] == 100
    assert one(result, "rg1").preemptions == 0


def test_only_as_many_guests_go_as_have_to() -> None:
    """6 + 5 + 4 GiB of guests, and 8 are needed: the latest go."""
    guests = [
        opportunistic(a_job(name, 100, gib=gib, busy=0.1))
        for name, gib in (("ot1", 6), ("ot2", 5), ("ot3", 4))
    ]
    result = antman([*guests, a_job("rg", 30, at_s=20, gib=8, busy=0.1)])
    assert {each.job_id: each.preemptions for each in result.jobs} == {
        "ot1": 0,
        "ot2": 1,
        "ot3": 1,
        "rg": 0,
    }


def test_the_latest_guests_go_whichever_gpus_they_have() -> None:
    """Four guests fill four GPUs; a gang of two takes those of the last two."""
    guests = [
        opportunistic(a_job(f"o{at}", 1_000, at_s=10 * at, gib=0, busy=None)) for at in range(4)
    ]
    result = antman([*guests, a_job("rg", 30, at_s=100, gpus=2, gib=0)], "1x4")
    assert starts(result)["rg"] == 100
    assert [one(result, f"o{at}").preemptions for at in range(4)] == [0, 0, 1, 1]


def test_a_gang_is_not_torn_apart_to_spare_older_guests() -> None:
    """o0 and o3 have n1, o1 and o2 have n2: the last two are on different nodes, a gang on one."""
    ends = {"o0": 1_000, "brief": 25, "o1": 1_000, "o2": 1_000, "o3": 1_000}
    guests = [
        opportunistic(a_job(name, ends[name], at_s=at_s, gib=0, busy=None))
        for name, at_s in (("o0", 0), ("brief", 0), ("o1", 10), ("o2", 20), ("o3", 30))
    ]
    result = antman([*guests, a_job("rg", 30, at_s=100, gpus=2, gib=0)], "2x2")
    assert starts(result)["rg"] == 100
    assert [one(result, f"o{at}").preemptions for at in range(4)] == [0, 1, 1, 0]


def test_an_evicted_guest_moves_where_it_can() -> None:
    """Two GPUs, the second busy at 50 %: the guest goes there at once."""
    jobs = [
        a_job("host", 100, gib=4, busy=0.5),
        opportunistic(a_job("ot", 100, gib=10)),
        a_job("rg", 30, at_s=20, gib=10),
    ]
    result = antman(jobs, "1x2")
    assert finishes(result) == {"host": 100, "ot": 100, "rg": 50}
    assert one(result, "ot").migrations == 1


def test_a_young_guest_is_left_alone_for_min_run_s() -> None:
    jobs = [opportunistic(a_job("ot", 100, gib=10)), a_job("rg", 30, at_s=20, gib=10)]
    assert starts(antman(jobs, min_run_s=60))["rg"] == 60


# -- gangs -------------------------------------------------------------------------------------------

GANG = [
    a_job("first", 50, queue="b", gib=0),
    a_job("gang", 10, at_s=10, gpus=2, queue="a", gib=0),
    a_job("small", 100, at_s=11, queue="b", gib=0),
    opportunistic(a_job("ot", 5, at_s=12, queue="b")),
]


def test_part_of_a_gang_is_held_for_it_closed_to_guaranteed_and_open_to_opportunistic_jobs() -> (
    None
):
    """Two GPUs, one taken: the gang holds the other."""
    held = starts(antman(GANG, "1x2"))
    assert held == {"first": 0, "gang": 50, "small": 60, "ot": 12}


def test_without_reservations_small_jobs_pass_the_gang() -> None:
    """The gang's queue is first in turn; only what it holds keeps the other queue from its GPU."""
    passed = starts(antman(GANG[:3], "1x2", reserve="off"))
    assert passed == {"first": 0, "small": 11, "gang": 111}


def test_two_gangs_do_not_wait_for_each_other() -> None:
    """Each could hold a part of what the other needs: the first in turn gets all of it."""
    jobs = [
        a_job("x", 10, gpus=2, queue="x", gib=0),
        a_job("y", 20, gpus=2, queue="y", gib=0),
        a_job("g1", 10, at_s=1, gpus=3, queue="a", gib=0),
        a_job("g2", 10, at_s=1, gpus=3, queue="b", gib=0),
    ]
    assert finishes(antman(jobs, "2x2")) == {"x": 10, "y": 20, "g1": 30, "g2": 40}


# -- quotas ------------------------------------------------------------------------------------------


def test_queues_take_turns() -> None:
    """Without quotas: the queue that holds less goes first, whichever job came first."""
    jobs = [a_job(f"a{n}", 10, queue="a") for n in range(4)] + [a_job("b", 10, queue="b")]
    assert starts(antman(jobs, "1x2")) == {"a0": 0, "b": 0, "a1": 10, "a2": 10, "a3": 20}


def test_guaranteed_jobs_are_charged_to_their_queue() -> None:
    """Two GPUs, one for each queue: the second job of a waits beside an idle GPU."""
    jobs = [a_job("a1", 10, queue="a"), a_job("a2", 10, queue="a")]
    assert starts(antman(jobs, "1x2", queues={"a": 1, "b": 1})) == {"a1": 0, "a2": 10}
    assert starts(antman(jobs, "1x2")) == {"a1": 0, "a2": 0}, "nobody is bound without quotas"


def test_weights_make_quotas_too() -> None:
    jobs = [a_job(f"a{n}", 10, queue="a") for n in range(4)]
    policy = a_policy("antman", queues="a:1,b:3")
    result = result_of(simulated(a_scenario(jobs, "1x4"), policy))
    assert starts(result) == {"a0": 0, "a1": 10, "a2": 20, "a3": 30}


def test_a_queue_without_quota_runs_on_what_is_idle() -> None:
    jobs = [a_job("stranger", 10, queue="c"), a_job("a", 10, at_s=5, queue="a", gib=14)]
    result = antman(jobs, queues={"a": 1})
    assert starts(result) == {"stranger": 0, "a": 5}
    assert one(result, "stranger").preemptions == 1


def test_a_job_queued_too_long_becomes_opportunistic() -> None:
    jobs = [a_job("a1", 100, queue="a"), a_job("a2", 10, queue="a")]
    quotas = {"a": 1, "b": 1}
    assert starts(antman(jobs, "1x2", queues=quotas, opportunistic_after_s=30))["a2"] == 30
    assert starts(antman(jobs, "1x2", queues=quotas, opportunistic_after_s=0))["a2"] == 100


UPGRADED = [
    a_job("b1", 20, queue="b"),
    a_job("a1", 100, queue="a"),
    a_job("b2", 10, at_s=30, queue="b", gib=GPU_MEMORY),
]
"""a1 starts as b1's guest; when b1 ends its GPU is a1's, and b2 has to wait."""


def test_an_opportunistic_job_is_upgraded_when_its_queue_and_its_gpu_allow() -> None:
    quotas = {"a": 1, "b": 1}
    result = antman(UPGRADED, queues=quotas, opportunistic_after_s=5)
    assert starts(result) == {"b1": 0, "a1": 5, "b2": 105}
    assert one(result, "a1").preemptions == 0
    never = antman(UPGRADED, queues=quotas, opportunistic_after_s=5, upgrade="off")
    assert starts(never) == {"b1": 0, "a1": 5, "b2": 30}
    assert one(never, "a1").preemptions == 1


def test_an_upgrade_in_place_costs_nothing() -> None:
    world = costly(resize_ms=30_000)
    result = antman(UPGRADED, world=world, queues={"a": 1, "b": 1}, opportunistic_after_s=5)
    assert finishes(result)["a1"] == 105
    assert result.summary.gpu_hours_wasted == 0


def test_an_upgrade_moves_to_a_free_gpu_where_its_own_has_a_host() -> None:
    jobs = [
        a_job("b1", 100, queue="b", busy=0.3),
        a_job("a1", 20, queue="a"),
        a_job("a2", 50, queue="a"),
    ]
    result = antman(jobs, "1x2", queues={"a": 1, "b": 1}, opportunistic_after_s=5)
    assert starts(result) == {"b1": 0, "a1": 0, "a2": 5}
    assert one(result, "a2").migrations == 1


def test_a_gang_above_its_queues_quota_is_opportunistic_from_the_start() -> None:
    result = antman([a_job("big", 10, gpus=2, queue="a")], "1x2", queues={"a": 1, "b": 1})
    assert starts(result) == {"big": 0}


def test_nobody_waits_for_a_quota_that_never_comes() -> None:
    """Half a GPU of quota guarantees nothing, whatever the other options say."""
    half = {"queues": "default:1,other:1", "opportunistic_after_s": 0, "util_limit": 0}
    for classes in ("on", "off"):
        for job in (a_job("half", 10, share=0.5), a_job("whole", 10, gib=0)):
            policy = a_policy("antman", classes=classes, **half)
            result = result_of(simulated(a_scenario([job], "1x1"), policy))
            assert [each.start_ms for each in result.jobs] == [0]


def bounded(jobs: list[TracedJob], *queues: Queue, **options: object) -> dict[str, float]:
    """Starts on four GPUs with these queues."""
    known = {queue.name: queue for queue in queues}
    scenario = replace(a_scenario(jobs, "1x4"), queues=known)
    return starts(result_of(simulated(scenario, a_policy("antman", **options))))


TWO_AT_MOST = Queue("a", maximum=2 * WHOLE)


def test_a_queue_never_holds_more_than_its_maximum() -> None:
    jobs = [a_job(f"j{at}", 50, queue="a") for at in range(4)]
    assert list(bounded(jobs, TWO_AT_MOST).values()) == [0, 0, 50, 50]
    assert list(bounded(jobs, Queue("a")).values()) == [0, 0, 0, 0]


def test_the_maximum_is_of_the_queues_inside_too() -> None:
    around = Queue("all", maximum=2 * WHOLE)
    inside = [Queue("a", parent="all"), Queue("b", parent="all")]
    jobs = [a_job(f"j{at}", 50, queue="ab"[at % 2]) for at in range(4)]
    found = bounded(jobs, around, *inside, queues="a:1,b:1")
    assert sorted(found.values()) == [0, 0, 50, 50]


def test_opportunistic_jobs_count_with_the_gpus_they_ask_for() -> None:
    jobs = [opportunistic(a_job(f"j{at}", 50, queue="a", busy=0.1)) for at in range(4)]
    assert list(bounded(jobs, TWO_AT_MOST).values()) == [0, 0, 50, 50]
    late = [a_job(f"j{at}", 50, queue="a") for at in range(4)]
    assert list(bounded(late, TWO_AT_MOST, opportunistic_after_s=10).values()) == [0, 0, 50, 50]


def test_a_guaranteed_job_takes_the_place_of_its_queues_latest_guest() -> None:
    guests = [opportunistic(a_job(f"o{at}", 50, queue="a", busy=0.1)) for at in range(2)]
    known = {"a": TWO_AT_MOST}
    scenario = a_scenario([*guests, a_job("rg", 30, at_s=20, queue="a")], "1x4")
    result = result_of(simulated(replace(scenario, queues=known), a_policy("antman")))
    assert finishes(result) == {"o0": 50, "rg": 50, "o1": 80}


def test_a_job_above_the_maximum_waits_and_holds_nobody_up() -> None:
    jobs = [a_job("large", 10, gpus=3, queue="a", busy=0.1), a_job("small", 10, queue="a")]
    assert bounded(jobs, TWO_AT_MOST, opportunistic_after_s=5) == {"small": 0}
    controller = Controller(cluster("1x4"), a_policy("antman"))
    facts: list[e.Event] = [e.QueueDefined(TWO_AT_MOST)]
    controller.step(0, [*facts, *(e.JobSubmitted(each.job) for each in jobs)])
    assert controller.explain("large").why is Why.NEVER_FITS


def test_a_waiting_job_can_say_that_the_quota_is_used_up() -> None:
    controller = Controller(cluster("1x2"), a_policy("antman"))
    jobs = [a_job("a1", 10, queue="a").job, a_job("a2", 10, queue="a").job]
    facts: list[e.Event] = [e.QueueDefined(Queue("a", guaranteed=WHOLE))]
    controller.step(0, [*facts, *(e.JobSubmitted(job) for job in jobs)])
    reason = controller.explain("a2")
    assert (reason.why, reason.need, reason.free) == (Why.SHARE_USED_UP, WHOLE, 0)
    assert reason.held_by == ("a1",)


def test_a_gpu_in_use_by_two_counts_once() -> None:
    """A guaranteed and an opportunistic job on one GPU for 10 s: busy all the time, not twice."""
    guest = a_job("guest", 10, busy=0.3)
    guest = replace(guest, job=replace(guest.job, role=Role.OPPORTUNISTIC))
    scenario = a_scenario([a_job("owner", 10, busy=0.3), guest], "1x1")
    result = result_of(simulated(scenario, a_policy("antman")))
    assert result.summary.gpu_util == pytest.approx(1.0)
    assert sum(job.held for job in result.jobs) > 10 * WHOLE * 1000
