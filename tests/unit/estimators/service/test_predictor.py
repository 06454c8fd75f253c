"""The service predictor: what it learns, when, from which jobs, and that its caches can be dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job
from tests.policies.cases import Scripted
from tests.unit.core.stage import Strings
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View, by_demand
from trainmaster.estimators.service.bins import BINS, GPU_SECOND, bin_of
from trainmaster.estimators.service.gittins_by_bin import (
    PRIOR_PROBABILITIES,
    BinProbabilityForecast,
)
from trainmaster.estimators.service.predictor import (
    BOUND_JOBS,
    BY_BINS,
    RENEW_MS,
    Observations,
    ServicePredictor,
    service_bound,
)
from trainmaster.model import events as e
from trainmaster.model.codec import dumps, loads
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.units import SECOND

FRESH = BY_BINS.renew_ends


def a_predictor(
    *, classes: int | None = None, siblings: bool = True
) -> ServicePredictor[BinProbabilityForecast]:
    return ServicePredictor(BY_BINS, classes, asks_siblings=siblings)


class Learning(Scripted):
    """Does as it is told, and learns in each pass."""

    def __init__(self, predictor: ServicePredictor[BinProbabilityForecast]) -> None:
        super().__init__()
        self.predictor = predictor
        self.seen = Observations()

    def first_memo(self) -> Observations:
        return Observations()

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Observations)
        self.seen = self.predictor.learn(memo, view, now)
        return replace(super().plan(view, memo, now), memo=self.seen)


class Lives(Strings):
    """Jobs live their lives; somebody learns from them."""

    def __init__(self, *, classes: int | None = None, siblings: bool = True) -> None:
        super().__init__("1x64")
        self.learning = Learning(a_predictor(classes=classes, siblings=siblings))
        self.script = self.controller.policy = self.learning
        self.controller.memo = Observations()

    @property
    def seen(self) -> Observations:
        return self.learning.seen

    def arrives(
        self, name: str, *, queue: str = "q", user: str = "", app: str = "", size: int = 1
    ) -> None:
        job = a_job(name, size, at_s=self.now / SECOND, queue=queue)
        self.tell(e.JobSubmitted(replace(job, user=user, app=app)))

    def lives(self, name: str, seconds: float, **who: str) -> None:
        """It comes, runs and ends."""
        self.arrives(name, **who)  # type: ignore[arg-type]
        self.start(name, 0).later(seconds)
        self.tell(e.RunSucceeded(self.run(name)))

    def many_live(self, count: int, seconds: float, **who: str) -> None:
        start = self.state.submitted
        for number in range(start, start + count):
            self.lives(f"j{number}", seconds, **who)

    def cost_s(self, name: str) -> float:
        """What a completion of this job is expected to cost from its beginning, in GPU-seconds."""
        return self.forecast(name).gittins_cost(0) / GPU_SECOND

    def forecast(self, name: str) -> BinProbabilityForecast:
        return self.learning.predictor.forecast(self.seen, self.job(name))

    def bound(self, name: str) -> int | None:
        return service_bound(self.learning.predictor, self.seen, self.job(name))


ALONE = BinProbabilityForecast(PRIOR_PROBABILITIES).gittins_cost(0) / GPU_SECOND
"""The same where nothing is known."""


def without_siblings(classes: int | None = None) -> Lives:
    return Lives(classes=classes, siblings=False)


# -- classes ---------------------------------------------------------------------------------------


def test_a_job_is_of_all_of_its_size_of_its_queue_and_of_its_program() -> None:
    lives = Lives()
    lives.arrives("a", queue="q", user="ann", app="bert", size=4)
    lives.arrives("b", queue="q", size=4)
    wide = ((), (2,), ("q", 2))
    assert lives.learning.predictor.classes_of(lives.job("a")) == (*wide, ("q", 2, "ann", "bert"))
    assert lives.learning.predictor.classes_of(lives.job("b")) == wide, "nobody knows its program"


@pytest.mark.parametrize(
    ("gpus", "size"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (64, 4)]
)
def test_sizes_are_one_two_four_eight_and_more(gpus: int, size: int) -> None:
    lives = Lives()
    lives.arrives("a", size=gpus)
    assert lives.learning.predictor.classes_of(lives.job("a"))[1] == (size,)


# -- when something is learned ---------------------------------------------------------------------


def test_tables_are_made_after_so_many_ends() -> None:
    lives = without_siblings()
    lives.many_live(FRESH - 1, 1)
    assert (len(lives.seen.fresh), len(lives.seen.known)) == (FRESH - 1, 0)
    lives.many_live(1, 1)
    assert lives.seen.fresh == ()
    assert lives.seen.known[()].ended[0] == FRESH
    assert lives.seen.made_ms == lives.now


def test_or_after_some_time_and_one() -> None:
    lives = without_siblings()
    lives.arrives("first")
    lives.later(RENEW_MS / SECOND + 1)
    lives.tell()
    assert lives.seen.known == {}, "nobody has ended"
    lives.many_live(1, 1)
    assert lives.seen.known[()].ended[0] == 1
    lives.many_live(1, 1)
    assert lives.seen.known[()].ended[0] == 1, "the tables are young"


def test_time_counts_from_the_first_job_whatever_the_clock_says() -> None:
    """So a live cluster, whose clock began in 1970, learns as a trace does that begins at 0."""
    lives = without_siblings()
    lives.later(50 * 365 * 86_400)
    lives.many_live(1, 1)
    assert lives.seen.known == {}


def test_tables_add_up_over_time() -> None:
    lives = without_siblings()
    lives.many_live(2 * FRESH, 1)
    assert lives.seen.past[()].ended[0] == 2 * FRESH
    assert set(lives.seen.past) == {(), (0,), ("q", 0)}


def test_runs_that_go_on_count_at_the_time_of_the_tables_and_not_forever() -> None:
    lives = Lives()
    lives.arrives("long")
    lives.start("long", 1)
    lives.many_live(FRESH, 2)
    there = bin_of((2 * FRESH) * GPU_SECOND)
    assert lives.seen.known[()].going[there] == 1
    assert lives.seen.going == {lives.job("long").seq: there}
    assert sum(lives.seen.past[()].going) == 0, "what has ended is kept apart"


def test_nothing_is_learned_from_one_that_never_ran() -> None:
    lives = without_siblings()
    lives.arrives("never")
    lives.tell(e.JobWithdrawn("never"))
    assert lives.seen.fresh == ()


def test_when_tables_are_made_everybody_is_ranked_again() -> None:
    lives = without_siblings()
    lives.arrives("waits")
    before = lives.cost_s("waits")
    lives.many_live(FRESH - 1, 1)
    assert lives.cost_s("waits") == before == ALONE
    assert ranked(lives) == ["waits"]
    assert ranked(lives) == []
    lives.many_live(1, 1)
    assert lives.cost_s("waits") < before
    assert ranked(lives) == ["waits"]


def ranked(lives: Lives) -> list[str]:
    """Jobs that had to be ranked since the last time."""
    found: list[str] = []

    def rank(record: JobRecord) -> Rank:
        found.append(record.id)
        return Rank(0, 0)

    view = lives.controller.view
    view.ranked(rank, lives.now, group=by_demand, with_running=True)
    return found


# -- what is learned -------------------------------------------------------------------------------


def test_each_class_by_its_own_and_strangers_by_the_wider() -> None:
    lives = without_siblings()
    lives.many_live(FRESH // 2, 5, queue="quick")
    lives.many_live(FRESH // 2, 5_000, queue="slow")
    lives.arrives("q", queue="quick")
    lives.arrives("s", queue="slow")
    lives.arrives("x", queue="never heard of")
    assert lives.cost_s("q") < lives.cost_s("x") < lives.cost_s("s")


def test_programs_count_only_if_asked() -> None:
    for asks in (True, False):
        lives = without_siblings(classes=4 if asks else 3)
        lives.many_live(FRESH // 2, 5, user="ann", app="eval")
        lives.many_live(FRESH // 2, 5_000, user="ann", app="train")
        lives.arrives("e", user="ann", app="eval")
        lives.arrives("t", user="ann", app="train")
        assert (lives.cost_s("e") < lives.cost_s("t")) is asks
        assert (lives.cost_s("e") == lives.cost_s("t")) is not asks


def test_where_classes_are_not_asked_nothing_is_known() -> None:
    lives = without_siblings(classes=0)
    lives.many_live(FRESH, 5)
    lives.arrives("a")
    assert lives.cost_s("a") == ALONE


# -- siblings --------------------------------------------------------------------------------------


def test_the_end_of_a_sibling_is_told_at_once() -> None:
    """Long before there are tables: one end is enough."""
    lives = Lives()
    lives.arrives("first")
    lives.arrives("second")
    assert lives.cost_s("second") == ALONE
    lives.start("first", 0).later(1)
    changes = lives.controller.view.changes("test")
    changes.read_jobs()
    lives.tell(e.RunSucceeded(lives.run("first")))
    assert lives.cost_s("second") < ALONE
    changed = [record.id for record in changes.read_jobs()]
    assert "second" in changed, "it is ranked again"


def test_siblings_are_not_told_where_they_are_not_asked() -> None:
    lives = without_siblings()
    lives.arrives("first")
    lives.arrives("second")
    lives.start("first", 0).later(1)
    lives.tell(e.RunSucceeded(lives.run("first")))
    assert lives.cost_s("second") == ALONE


def test_a_sibling_that_never_ran_tells_nothing() -> None:
    lives = Lives()
    lives.arrives("first")
    lives.arrives("second")
    lives.tell(e.JobWithdrawn("first"))
    assert lives.cost_s("second") == ALONE


def test_siblings_that_go_on_count_as_they_stood_when_the_tables_were_made() -> None:
    lives = Lives()
    for name in ("a", "b", "c"):
        lives.arrives(name, app="sweep")
    lives.start("a", 1).start("b", 2).later(10_000)
    lives.tell()
    assert lives.cost_s("c") == ALONE, "no tables yet"
    lives.many_live(1, 1, app="another")
    by_class = a_predictor(siblings=False).forecast(lives.seen, lives.job("c"))
    assert lives.cost_s("c") > by_class.gittins_cost(0) / GPU_SECOND


# -- amnesia ---------------------------------------------------------------------------------------


def test_a_predictor_without_caches_answers_the_same() -> None:
    lives = Lives()
    for number in range(8):
        lives.arrives(f"w{number}", user="ann", app=f"p{number % 3}")
    lives.start("w0", 1).start("w1", 2).start("w2", 3)
    for number in range(FRESH + 20):
        who = {"user": "ann", "app": f"p{number % 3}"}
        lives.lives(f"l{number}", 1 + 37 * (number % 5), **who)
        if number % 10 == 0:
            lives.arrives(f"v{number}", **who)  # type: ignore[arg-type]
        renewed = a_predictor()
        for record in lives.state.jobs.values():
            old, new = lives.forecast(record.id), renewed.forecast(lives.seen, record)
            assert [old.gittins_cost(step) for step in range(BINS)] == [
                new.gittins_cost(step) for step in range(BINS)
            ], f"{record.id} after {number}"
    assert lives.seen.known, "tables were made on the way"


def test_what_was_seen_is_a_value() -> None:
    first, second = Lives(), Lives()
    for lives in (first, second):
        lives.many_live(FRESH + 3, 5)
    assert first.seen == second.seen
    assert hash(first.seen) == hash(second.seen)


def test_observations_of_gittins_in_older_stores_can_be_read() -> None:
    """Once they were a type of their own."""
    older = '{"is":"gittins.Service","made_ms":7,"fresh":[[[[],[0],["q",0]],5000]],"ends":3}'
    seen = loads(older)
    assert seen == Observations(made_ms=7, fresh=((((), (0,), ("q", 0)), 5000),), ends=3)
    assert loads(dumps(seen)) == seen


# -- the bound -----------------------------------------------------------------------


def test_where_few_have_ended_there_is_no_bound() -> None:
    lives = without_siblings()
    lives.later(RENEW_MS / SECOND + 1)
    lives.many_live(1, 5)
    lives.arrives("a")
    assert lives.bound("a") is None


def test_most_of_its_kind_stay_below_the_bound() -> None:
    """Of fifty like it all but one took a minute or less, that one an hour and a half."""
    lives = without_siblings()
    lives.many_live(FRESH - 1, 30)
    lives.many_live(1, 5_000)
    lives.arrives("a")
    assert FRESH >= BOUND_JOBS
    assert lives.bound("a") == 60 * GPU_SECOND


def test_a_job_is_predicted_by_jobs_that_reached_its_bin() -> None:
    lives = without_siblings()
    lives.arrives("a")
    lives.start("a", 1).later(100)
    lives.many_live(FRESH, 30)
    record = lives.job("a")
    record.update_service(lives.now)
    found = lives.bound("a")
    assert found is not None
    assert found > record.attained
