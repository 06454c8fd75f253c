"""Deadlines: what is accepted, what is declined and with which answer, and that promises are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.builders import a_scenario, at, cluster, costly, finishes, one, outcome_of, traced
from tests.policies.ours import after, asked, punctual, seen, within
from trainmaster.core.controller import Controller
from trainmaster.model import events as e
from trainmaster.model.deadline_notices import DeadlineOutcome, Decline
from trainmaster.model.job import Estimate, Source, gpus
from trainmaster.model.reasons import Why
from trainmaster.model.result import DeadlineResult, Result, Verdict
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.driver import Estimates, Scenario


def deadline(result: Result, name: str) -> DeadlineResult:
    found = one(result, name).deadline
    assert found is not None
    return found


def verdicts(result: Result) -> dict[str, str]:
    return {
        job.job_id: job.deadline.verdict.value for job in result.jobs if job.deadline is not None
    }


def told(result: Result, name: str) -> list[tuple[float, DeadlineOutcome]]:
    return [(when / SECOND, each.what) for when, each in deadline(result, name).notices]


def ran(jobs: Iterable[TracedJob], cluster: str = "1x1", **how: object) -> Result:
    return outcome_of(a_scenario(jobs, cluster), punctual(**how))  # type: ignore[arg-type]


# -- what is accepted ------------------------------------------------------------------------------


def test_clockworks_example_one_executor_forty_seconds_taken() -> None:
    """40 s are promised to another; 30 s by 100 can be done, by 69 they cannot."""
    first = asked("first", 1, 40, within_s=40)
    result = ran([first, asked("yes", 1, 30, within_s=100), asked("no", 1, 30, within_s=69)])
    assert verdicts(result) == {"first": "accepted", "yes": "accepted", "no": "declined"}
    assert deadline(result, "yes").feasible_ms == 70 * SECOND
    assert finishes(result)["first"] == 40


def test_whatever_earliest_deadline_first_can_keep_is_accepted_in_any_order() -> None:
    """90 s of work by 90: each alone leaves room where the others need it."""
    jobs = [
        asked("late", 1, 30, within_s=90),
        asked("soon", 1, 20, within_s=25),
        asked("middle", 1, 40, within_s=60),
    ]
    for order in (jobs, jobs[::-1], [jobs[1], jobs[2], jobs[0]]):
        renamed = [replace(job, job=replace(job.job, submit_ms=0)) for job in order]
        result = ran(renamed)
        assert set(verdicts(result).values()) == {"accepted"}
        assert all(deadline(result, job.job.id).is_met for job in jobs)


def test_one_second_too_much_is_declined_and_harms_nobody() -> None:
    jobs = [asked("a", 1, 20, within_s=25), asked("b", 1, 40, within_s=60)]
    result = ran([*jobs, asked("c", 1, 31, within_s=90)])
    assert verdicts(result) == {"a": "accepted", "b": "accepted", "c": "declined"}
    assert deadline(result, "a").is_met
    assert deadline(result, "b").is_met


def test_the_feasible_deadline_is_feasible_and_a_second_less_is_not() -> None:
    crowd = [
        asked("wide", 4, 50, within_s=100),
        asked("half", 2, 100, within_s=110),
        asked("one", 1, 30, within_s=40),
    ]
    declined = asked("new", 3, 60, within_s=60, at_s=1)
    found = deadline(ran([*crowd, declined], "2x2"), "new")
    assert found.verdict is Verdict.DECLINED
    assert found.feasible_ms is not None
    within_s = found.feasible_ms / SECOND - 1
    again = ran([*crowd, within(within_s, declined)], "2x2")
    assert deadline(again, "new").verdict is Verdict.ACCEPTED
    assert not any(job.deadline.is_late for job in again.jobs if job.deadline)
    assert finishes(again)["new"] is not None
    sooner = ran([*crowd, within(within_s - 1, declined)], "2x2")
    assert deadline(sooner, "new").verdict is Verdict.DECLINED


def test_a_job_for_which_there_are_too_few_gpus_now_has_no_feasible_deadline() -> None:
    changes = (at(0, e.NodeDraining(1)), at(50, e.NodeUndrained(1)))
    jobs = [traced("first", 1, 1), asked("wide", 4, 10, within_s=500, at_s=5)]
    result = outcome_of(a_scenario(jobs, "2x2", node_changes=changes), punctual())
    found = deadline(result, "wide")
    assert (found.verdict, found.feasible_ms) == (Verdict.DECLINED, None)
    assert found.notices[0][1].why is Decline.TOO_LARGE


# -- what is predicted -----------------------------------------------------------------------------


def test_a_margin_is_added_to_what_is_predicted() -> None:
    jobs = [asked("a", 1, 100, within_s=119)]
    assert verdicts(ran(jobs, margin=0.19)) == {"a": "accepted"}
    assert verdicts(ran(jobs, margin=0.2)) == {"a": "declined"}


def test_the_margin_grows_by_how_wrong_predictions_were() -> None:
    """Jobs across servers run at less than nominal speed: that is measured, and then counted."""
    slow = replace(IDEAL, gpu_speeds={"vgg16": {"gpu": NOMINAL // 2}})
    past = [traced(f"past{n}", 1, 10, at_s=20 * n, model="vgg16") for n in range(3)]
    new = traced("new", 1, 100, at_s=100, model="vgg16")
    scenario = a_scenario([*past, within(150, new)], "1x1", slow)
    assert deadline(outcome_of(scenario, punctual()), "new").verdict is Verdict.DECLINED
    scenario = a_scenario([within(150, new)], "1x1", slow)
    assert deadline(outcome_of(scenario, punctual()), "new").verdict is Verdict.ACCEPTED


def without_estimates(scenario: Scenario) -> Scenario:
    return replace(scenario, estimates=Estimates(known=False))


def test_where_nothing_is_known_the_deadline_is_declined() -> None:
    scenario = without_estimates(a_scenario([asked("a", 1, 10, within_s=1000)], "1x1"))
    found = deadline(outcome_of(scenario, punctual()), "a")
    assert found.verdict is Verdict.DECLINED
    assert found.notices[0][1].why is Decline.NO_ESTIMATE


def limited(limit_s: int, job: TracedJob) -> TracedJob:
    return replace(job, job=replace(job.job, max_runtime_ms=limit_s * SECOND))


def test_a_time_limit_bounds_what_is_not_known_and_what_is_guessed_too_high() -> None:
    """60 s by 60 can be promised, whatever the job turns out to need; by 59 it cannot."""
    jobs = {
        "kept": limited(60, asked("kept", 1, 10, within_s=60)),
        "short": limited(60, asked("short", 1, 10, within_s=59)),
    }
    for name, verdict in {"kept": Verdict.ACCEPTED, "short": Verdict.DECLINED}.items():
        scenario = without_estimates(a_scenario([jobs[name]], "1x1"))
        found = deadline(outcome_of(scenario, punctual()), name)
        assert (found.verdict, found.feasible_ms) == (verdict, 60 * SECOND)
    padded = a_scenario([limited(60, asked("a", 1, 50, within_s=60))], "1x1")
    assert deadline(outcome_of(padded, punctual(margin=1.0)), "a").verdict is Verdict.ACCEPTED


def test_a_deadline_is_judged_again_when_its_job_gets_a_time_limit() -> None:
    controller = Controller(cluster("1x1"), punctual())
    job = replace(asked("a", 1, 10, within_s=100).job, submit_ms=0)
    (first,) = controller.step(0, [e.JobSubmitted(job)]).notices
    assert first.why is Decline.NO_ESTIMATE
    changed = replace(job, max_runtime_ms=50 * SECOND)
    (second,) = controller.step(SECOND, [e.JobChanged(changed)]).notices
    assert second.what is DeadlineOutcome.ACCEPTED


def test_without_an_estimate_what_the_policy_has_learned_will_do() -> None:
    past = seen("known", 30, times=60)
    start_s = after(past)
    known = within(70, traced("known", 1, 30, at_s=start_s, queue="known"))
    scenario = without_estimates(a_scenario([*past, known], "1x1"))
    result = outcome_of(scenario, punctual(learn="on"))
    assert verdicts(result) == {"known": "accepted"}


def test_switching_is_counted() -> None:
    """As the jobs before have shown, starting takes 5 s here."""
    past = seen("past", 30, times=60)
    start_s = after(past)
    world = costly(suspend_ms=3_000, start_ms=5_000, resume_ms=5_000)

    def answer(within_s: float) -> DeadlineResult:
        new = asked("a", 1, 50, within_s=within_s, at_s=start_s)
        return deadline(outcome_of(a_scenario([*past, new], "1x1", world), punctual()), "a")

    assert answer(55).verdict is Verdict.ACCEPTED
    assert answer(54).verdict is Verdict.DECLINED
    assert answer(54).feasible_ms == (start_s + 55) * SECOND


# -- what is kept ----------------------------------------------------------------------------------


def test_others_are_preempted_for_an_accepted_job_and_no_sooner_than_needed() -> None:
    """Jobs of a higher priority would go first for ever; it starts when it must."""
    stream = [traced(f"s{n}", 1, 10, at_s=10 * n, priority=1) for n in range(20)]
    result = ran([asked("a", 1, 50, within_s=150, at_s=0.5), *stream])
    assert finishes(result)["a"] == 150.5
    assert deadline(result, "a").is_met


def test_without_its_deadline_the_same_job_ends_later() -> None:
    stream = [traced(f"s{n}", 1, 10, at_s=10 * n, priority=1) for n in range(20)]
    ended = finishes(ran([traced("a", 1, 50, at_s=0.5), *stream]))["a"]
    assert ended is not None
    assert ended > 150.5


def test_an_accepted_job_goes_first_even_where_runs_are_protected() -> None:
    jobs = [traced("long", 1, 1000, at_s=9), asked("a", 1, 10, within_s=11, at_s=10)]
    for guards in ({"min_run_s": 100.0}, {"starve_after_s": 1.0}):
        assert finishes(ran(jobs, **guards))["a"] <= 21  # type: ignore[operator]


def test_an_accepted_job_is_never_preempted_for_another_s_deadline() -> None:
    jobs = [asked("a", 1, 50, within_s=50), asked("b", 1, 10, within_s=20, at_s=5)]
    result = ran(jobs)
    assert verdicts(result) == {"a": "accepted", "b": "declined"}
    assert deadline(result, "b").feasible_ms == 60 * SECOND
    assert one(result, "a").preemptions == 0


def test_one_that_has_time_yields_to_one_that_has_none() -> None:
    jobs = [asked("a", 1, 50, within_s=100), asked("b", 1, 10, within_s=10, at_s=5)]
    result = ran(jobs)
    assert finishes(result)["b"] == 15
    assert deadline(result, "a").is_met


def test_types_of_gpu_are_counted_apart() -> None:
    """Only one of the two GPUs is fast; a job that takes any of them might take that one."""
    any_type = asked("any", 1, 100, within_s=400)
    demand = replace(gpus(1), gpu_type="fast")
    fast = within(100, traced("fast", demand, 100, at_s=1))
    result = outcome_of(a_scenario([any_type, fast], "n1[1fast] n2[1slow]"), punctual())
    assert verdicts(result) == {"any": "accepted", "fast": "accepted"}
    assert deadline(result, "any").feasible_ms == 200 * SECOND, "at the pace of the slow one"
    assert deadline(result, "fast").is_met
    assert deadline(result, "any").is_met


# -- what cannot be kept is said -------------------------------------------------------------------


def test_a_lost_server_is_told_at_once_and_once() -> None:
    changes = (at(30, e.NodeLeft(0)), at(100, e.NodeJoined(0)))
    jobs = [asked("a", 2, 50, within_s=60)]
    result = outcome_of(a_scenario(jobs, "1x2", node_changes=changes), punctual())
    assert told(result, "a")[:2] == [(0, DeadlineOutcome.ACCEPTED), (30, DeadlineOutcome.SLIPPED)]
    assert len([what for _, what in told(result, "a") if what is DeadlineOutcome.SLIPPED]) <= 2
    found = deadline(result, "a")
    assert (found.is_met, found.warned_ms, found.is_silently_late) == (False, 30 * SECOND, False)


def test_a_slip_names_the_old_and_the_new_prediction() -> None:
    """A drained server halves the room: one of two promises cannot be kept."""
    changes = (at(10, e.NodeLeft(0)),)
    jobs = [asked("a", 1, 50, within_s=60), asked("b", 1, 50, within_s=70)]
    world = replace(IDEAL, node_failures=replace(IDEAL.node_failures, checkpoint_ms=1_000))
    result = outcome_of(a_scenario(jobs, "2x1", world, node_changes=changes), punctual())
    slips = [
        (job.job_id, notice.earlier_ms, notice.finish_ms)
        for job in result.jobs
        if job.deadline is not None
        for when, notice in job.deadline.notices
        if notice.what is DeadlineOutcome.SLIPPED and when == 10 * SECOND
    ]
    assert len(slips) == 1, "the other can still be kept"
    name, old, new = slips[0]
    assert old is not None
    assert new is not None
    assert old < new
    finish = finishes(result)[name]
    assert finish is not None
    assert finish * SECOND <= new


def test_who_is_in_time_again_is_told_too() -> None:
    changes = (at(10, e.NodeDraining(0)), at(20, e.NodeUndrained(0)))
    jobs = [
        asked("a", 1, 50, within_s=100),
        asked("b", 1, 50, within_s=100),
        asked("c", 1, 50, within_s=100),
    ]
    result = outcome_of(a_scenario(jobs, "2x1", node_changes=changes), punctual())
    said = [what for job in "abc" for _, what in told(result, job)]
    assert said.count(DeadlineOutcome.SLIPPED) == said.count(DeadlineOutcome.RECOVERED) == 1
    assert all(deadline(result, job).is_met for job in "abc")


def test_a_job_that_outlives_its_estimate_is_told_before_its_deadline() -> None:
    jobs = [asked(f"j{n}", 1, 100, within_s=104, at_s=200 * n) for n in range(8)]
    scenario = replace(a_scenario(jobs, "1x1"), estimates=Estimates(error=0.5), seed=3)
    result = outcome_of(scenario, punctual())
    accepted = [job for job in result.jobs if job.deadline and job.deadline.predicted_finish_ms]
    assert len(accepted) >= 2
    assert not any(job.deadline.is_silently_late for job in accepted if job.deadline)
    assert any(job.deadline.warned_ms for job in accepted if job.deadline)


# -- why it waits ----------------------------------------------------------------------------------


def test_explain_says_what_was_promised_and_until_when_others_go_first() -> None:
    controller = Controller(cluster("1x1"), punctual())
    jobs = [asked("a", 1, 50, within_s=50), asked("b", 1, 50, within_s=60)]
    jobs += [asked("c", 1, 50, within_s=200)]
    controller.step(
        0,
        [
            e.JobSubmitted(each.job, Estimate(each.service_ms * NOMINAL, Source.TRACE))
            for each in jobs
        ],
    )
    declined, accepted = controller.explain("b"), controller.explain("c")
    assert declined.why is Why.NOT_ENOUGH_FREE
    assert declined.notice is not None
    assert declined.notice.feasible_ms == 100 * SECOND
    assert accepted.why is Why.DEADLINE_LEAVES_TIME
    assert accepted.until_ms == 150 * SECOND
    assert accepted.notice is not None
    assert accepted.notice.what is DeadlineOutcome.ACCEPTED
