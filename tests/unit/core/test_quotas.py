"""Maxima of queues, limits of users and budgets of GPU-hours, under a policy that knows nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.builders import a_job, a_policy, cluster, gpus
from trainmaster.core.controller import Controller, Decision
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run
from trainmaster.model.queue import Queue
from trainmaster.model.quota import EVERYBODY, Budget, Period, UserLimits, WhenUsedUp
from trainmaster.model.reasons import Reason, Refused, Why
from trainmaster.model.units import DAY, HOUR, MINUTE, NOMINAL, SECOND, WHOLE
from trainmaster.text.reasons import reason_sentence

GPU_HOUR = WHOLE * HOUR


class Desk:
    """A controller that decides by a real policy; runs start as soon as they are launched."""

    def __init__(self, topology: str = "1x4", policy: str = "fifo", **options: object) -> None:
        self.controller = Controller(
            cluster(topology), a_policy(policy, **options), can_freeze=True
        )
        self.now = 0
        self.last: Decision | None = None

    def at(self, now: int) -> Desk:
        self.now = now
        return self

    def tell(self, *facts: e.Event) -> Desk:
        waiting: Sequence[e.Event] = facts
        while True:
            self.last = self.controller.step(self.now, waiting)
            check(self.controller.state)
            waiting = [
                fact for order in self.last.orders if (fact := self._done(order)) is not None
            ]
            if not waiting:
                return self

    def _done(self, order: a.Order) -> e.Event | None:
        match order:
            case a.Launch():
                return e.RunStarted(order.run, NOMINAL)
            case a.Thaw():
                return e.RunResumed(order.run, NOMINAL)
            case a.Freeze() | a.Halt():
                is_frozen = isinstance(order, a.Freeze)
                work = self.controller.state.jobs[order.run.job].work
                return e.RunSuspended(order.run, work, frozen=is_frozen)
            case a.Kill():
                return e.RunStopped(order.run)
        return None

    def submit(
        self, name: str, size: int | Demand = 1, user: str = "ada", queue: str = "default"
    ) -> Desk:
        job = a_job(name, size, at_s=self.now / SECOND, queue=queue)
        return self.tell(e.JobSubmitted(replace(job, user=user)))

    def end(self, name: str) -> Desk:
        return self.tell(e.RunSucceeded(self.controller.state.jobs[name].run))

    def limit(self, user: str, **limits: object) -> Desk:
        return self.tell(e.UserLimited(UserLimits(user, **limits)))  # type: ignore[arg-type]

    def queue(self, name: str, **settings: object) -> Desk:
        return self.tell(e.QueueDefined(Queue(name, **settings)))  # type: ignore[arg-type]

    @property
    def running(self) -> str:
        jobs = self.controller.state.jobs.values()
        return " ".join(each.id for each in jobs if each.placement is not None)

    def why(self, name: str) -> Reason:
        return self.controller.explain(name)

    def sentence(self, name: str) -> str:
        return reason_sentence(self.why(name), self.now)

    def used(self, queue: str = "", user: str = "") -> float:
        quotas = self.controller.state.quotas
        assert quotas is not None
        scope = quotas.scope(queue, user)
        assert scope is not None
        return scope.used(self.now) / GPU_HOUR


def test_nobody_waits_behind_a_job_that_is_over_its_users_limit() -> None:
    desk = Desk().limit("ada", max_gpus=2 * WHOLE)
    desk.submit("a1").submit("a2").submit("a3").submit("a4").submit("b1", 2, user="bob")
    assert desk.running == "a1 a2 b1"
    assert desk.why("a3").why is Why.USER_GPU_LIMIT
    assert desk.sentence("a3") == (
        "ada uses 2 of 2 GPUs that one user may have (jobs a1 and a2); the job needs 1 GPU more."
    )
    assert desk.end("a1").running == "a2 a3 b1"


def test_a_job_that_alone_is_over_a_limit_does_not_block_others() -> None:
    desk = Desk().limit(EVERYBODY, max_gpus=2 * WHOLE)
    desk.submit("large", 3).submit("b", 4, user="bob").submit("c", user="eve")
    assert desk.running == "c"
    assert desk.sentence("large") == (
        "It needs 3 GPUs, and ada may use 2 GPUs at most, so it can never run: ask for fewer, or have the"
        " limit raised."
    )


def test_jobs_that_exceed_a_limit_only_together_start_in_the_policys_order() -> None:
    desk = Desk("1x8").limit("ada", max_gpus=4 * WHOLE)
    facts = [
        e.JobSubmitted(replace(a_job(f"a{n}", 3 if n == 1 else 2), user="ada")) for n in range(3)
    ]
    desk.tell(*facts, e.JobSubmitted(replace(a_job("b", 4), user="bob")))
    assert desk.running == "a0 a2 b"


def test_running_jobs_of_a_user_are_counted_in_a_queue_and_those_inside_it() -> None:
    desk = Desk().queue("lab", max_running_per_user=2).queue("vision", parent="lab")
    desk.submit("a", queue="vision").submit("b", queue="lab").submit("c", queue="vision").submit(
        "d"
    )
    assert desk.running == "a b d"
    assert desk.sentence("c") == (
        "ada runs 2 of 2 jobs that one user may run in queue lab (jobs a and b)."
    )


def test_a_maximum_holds_under_a_policy_that_does_not_look_at_queues() -> None:
    desk = Desk().queue("vision", maximum=2 * WHOLE)
    desk.submit("a", 2, queue="vision").submit("b", queue="vision").submit("c", 2)
    assert desk.running == "a c"
    assert desk.sentence("b") == (
        "Its queue vision may hold 2 GPUs at most and holds 2 GPUs (job a); the job needs 1 GPU more."
    )
    assert desk.tell(e.QueueRemoved("vision")).why("b").why is Why.NOT_ENOUGH_FREE


def test_a_raised_limit_holds_at_once_and_a_lowered_one_ends_nothing() -> None:
    desk = Desk().limit("ada", max_gpus=WHOLE).submit("a").submit("b").submit("c")
    assert desk.running == "a"
    assert desk.limit("ada", max_gpus=3 * WHOLE).running == "a b c"
    desk.limit("ada", max_gpus=WHOLE).submit("d")
    assert desk.running == "a b c"
    assert desk.end("a").end("b").running == "c"
    assert desk.limit("ada").running == "c d"
    assert desk.controller.state.quotas is None


def test_an_elastic_job_starts_and_grows_as_far_as_its_user_may() -> None:
    desk = Desk("1x8", "max-min").limit("ada", max_gpus=3 * WHOLE)
    desk.submit("a", gpus(2, minimum=1, maximum=8))
    placement = desk.controller.state.jobs["a"].placement
    assert placement is not None
    assert placement.total_share == 3 * WHOLE
    assert desk.submit("b", 4, user="bob").running == "a b"


def test_what_a_user_asks_for_is_refused_over_a_limit() -> None:
    desk = Desk("1x8").limit("ada", max_gpus=2 * WHOLE).submit("a", gpus(2, minimum=1, maximum=8))
    held = desk.controller.state.jobs["a"].placement
    assert held is not None
    free = [gpu for gpu in range(8) if gpu not in held.gpus()]
    more = replace(held, slices=(*held.slices, held.slices[0]._replace(gpu=free[0])))
    desk.tell(e.ActionRequested(a.Resize("a", more)))
    assert desk.last is not None
    assert [each.why for each in desk.last.refusals] == [Refused.OVER_QUOTA]


# -- budgets -----------------------------------------------------------------------------------------------


def weekly(hours: float, rule: WhenUsedUp = WhenUsedUp.FINISH) -> Budget:
    return Budget(round(hours * GPU_HOUR), Period.WEEK, 0, rule)


def test_a_budget_that_is_used_up_holds_new_jobs_until_it_is_renewed() -> None:
    desk = Desk().queue("vision", budget=weekly(4)).submit("a", 2, queue="vision")
    desk.at(2 * HOUR).submit("b", queue="vision").submit("c")
    assert desk.running == "a c"
    assert desk.why("b").why is Why.BUDGET_USED_UP
    assert desk.sentence("b") == (
        "The budget of queue vision, 4 GPU-hours per week, is used up; it is renewed on 1970-01-08"
        " 00:00:00 UTC."
    )
    assert desk.last is not None
    assert desk.last.wake_at == 7 * DAY
    assert desk.at(3 * HOUR).tell().used("vision") == 6
    assert "(6 GPU-hours were used)" in desk.sentence("b")
    assert desk.at(7 * DAY).tell().running == "a b c"
    assert desk.used("vision") == 0
    assert desk.at(7 * DAY + HOUR).tell().used("vision") == 3


def test_where_its_rule_says_so_runs_are_suspended_when_a_budget_is_used_up() -> None:
    desk = Desk().queue("lab", budget=weekly(4, WhenUsedUp.SUSPEND)).queue("vision", parent="lab")
    desk.submit("a", 2, queue="vision").submit("c", 2)
    assert desk.last is not None
    assert desk.last.wake_at == 2 * HOUR
    assert desk.at(2 * HOUR).tell().running == "c"
    assert desk.controller.state.jobs["a"].phase is Phase.HELD
    assert desk.why("a").why is Why.BUDGET_USED_UP
    assert desk.at(7 * DAY).tell().running == "a c"


def test_runs_that_must_not_be_suspended_finish_over_a_budget() -> None:
    desk = Desk().queue("lab", budget=weekly(1, WhenUsedUp.SUSPEND))
    job = replace(a_job("a", queue="lab"), user="ada", preemptible=False)
    assert desk.tell(e.JobSubmitted(job)).at(3 * HOUR).tell().running == "a"


def test_a_users_budget_counts_from_when_it_is_set_and_is_kept_when_it_is_changed() -> None:
    desk = Desk().submit("a").at(HOUR).limit("ada", budget=weekly(10))
    assert desk.used(user="ada") == 0
    assert desk.at(3 * HOUR).end("a").used(user="ada") == 2
    assert desk.limit("ada", budget=weekly(20), max_gpus=WHOLE).used(user="ada") == 2
    assert desk.limit("ada", budget=Budget(GPU_HOUR, Period.TOTAL)).used(user="ada") == 2
    assert desk.submit("b").running == ""
    assert desk.sentence("b") == (
        "The budget of ada, 1 GPU-hour, is used up (2 GPU-hours were used); it is not renewed."
    )


def test_what_a_job_used_stays_with_the_queue_that_it_was_in() -> None:
    desk = Desk().queue("one", budget=weekly(9)).queue("two", budget=weekly(9))
    desk.submit("a", queue="one").at(HOUR)
    desk.tell(e.JobChanged(replace(desk.controller.state.jobs["a"].job, queue="two")))
    desk.at(3 * HOUR).end("a")
    assert (desk.used("one"), desk.used("two")) == (1, 2)


def test_an_end_that_is_learned_late_takes_back_what_was_counted_in_vain() -> None:
    desk = Desk().queue("vision", budget=weekly(40)).submit("a", 2, queue="vision")
    desk.submit("b", queue="vision").at(10 * HOUR).tell()
    assert desk.used("vision") == 30
    desk.tell(e.RunSucceeded(Run("a", 1), at_ms=4 * HOUR))
    assert desk.used("vision") == 2 * 4 + 10
    assert desk.at(11 * HOUR).used("vision") == 2 * 4 + 11


def test_a_run_counts_until_it_left_its_gpus_whenever_it_was_ordered_to() -> None:
    """A manager that stood still suspends a run that has ended; one without a disk sends its order late."""
    for left, used in ((4, 2 * 4), (10, 2 * 10)):
        desk = Desk().queue("vision", budget=weekly(40)).submit("a", 2, queue="vision")
        desk.controller.step(6 * HOUR, [e.JobHeld("a")])
        desk.at(12 * HOUR).tell(e.RunSuspended(Run("a", 1), 0, frozen=True, at_ms=left * HOUR))
        assert desk.used("vision") == used
        assert desk.controller.state.jobs["a"].attained == used * GPU_HOUR
        assert desk.at(13 * HOUR).tell().used("vision") == used


def test_of_an_end_before_the_period_began_nothing_counts_in_it() -> None:
    desk = Desk().queue("vision", budget=weekly(40)).submit("a", 2, queue="vision")
    desk.at(7 * DAY + 3 * HOUR).tell()
    assert desk.used("vision") == 2 * 3
    assert desk.tell(e.RunLost(Run("a", 1), retryable=False, at_ms=HOUR)).used("vision") == 0
    assert desk.at(8 * DAY).submit("b", queue="vision").at(8 * DAY + HOUR).used("vision") == 1


def test_a_start_that_is_learned_late_counts_from_then() -> None:
    desk = Desk().queue("vision", budget=weekly(40))
    job = replace(a_job("a", 2, queue="vision"), user="ada")
    desk.controller.step(0, [e.JobSubmitted(job)])
    desk.at(3 * HOUR).tell(e.RunStarted(Run("a", 1), NOMINAL, at_ms=HOUR))
    assert desk.used("vision") == 4
    record = desk.controller.state.jobs["a"]
    assert record.attained_at(3 * HOUR) == 4 * GPU_HOUR
    assert record.first_start_ms == HOUR


def test_a_restored_controller_goes_on_with_what_was_used_and_who_waits() -> None:
    desk = Desk().queue("vision", budget=weekly(4), maximum=3 * WHOLE).limit("ada", max_running=2)
    desk.submit("a", 2, queue="vision").submit("b").submit("c").at(90 * MINUTE).tell()
    body = snapshot_of(desk.controller)
    again = Desk()
    found = restored(body, cluster("1x4"), a_policy("fifo"), can_freeze=True)
    again.controller, again.now = found.controller, desk.now
    assert again.used("vision") == desk.used("vision") == 3
    assert again.why("c") == desk.why("c")
    for each in (desk, again):
        each.at(2 * HOUR).end("b").submit("d", queue="vision")
    assert again.running == desk.running == "a c"
    assert snapshot_of(again.controller) == snapshot_of(desk.controller)


@pytest.mark.parametrize(
    ("budget", "now", "began", "renews"),
    [
        (Budget(1, Period.WEEK), "2026-11-17", "2026-11-16", "2026-11-23"),
        (Budget(1, Period.MONTH), "2026-12-31", "2026-12-01", "2027-01-01"),
        (Budget(1, Period.YEAR), "2026-12-31", "2026-01-01", "2027-01-01"),
        (Budget(1, Period.YEAR, 1_790_812_800_000), "2027-09-30", "2026-10-01", "2027-10-01"),
        (Budget(1, Period.YEAR, 1_790_812_800_000), "2027-10-01", "2027-10-01", "2028-10-01"),
        (Budget(1, Period.MONTH, 1_769_817_600_000), "2026-02-28", "2026-02-28", "2026-03-31"),
        (Budget(1, Period.MONTH, 1_769_817_600_000), "2026-02-27", "2026-01-31", "2026-02-28"),
        (Budget(1, Period.DAY), "2026-11-17", "2026-11-17", "2026-11-18"),
    ],
)
def test_periods_begin_on_the_calendar_or_on_their_day(
    budget: Budget, now: str, began: str, renews: str
) -> None:
    at = _ms(now) + HOUR
    assert budget.began_ms(at) == _ms(began)
    assert budget.renews_ms(at) == _ms(renews)


def _ms(day: str) -> int:
    return round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * SECOND)
