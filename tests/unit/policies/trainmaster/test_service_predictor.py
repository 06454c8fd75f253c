"""Foresight: what is learned of jobs' service, when, from whom, and that none of it is only a cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job
from tests.policies.cases import Scripted
from tests.unit.core.stage import Strings
from trainmaster.core.view import View
from trainmaster.estimators.service_hazard import BINS, GPU_SECOND, bin_of
from trainmaster.estimators.service_prediction import NOBODY, Prospect
from trainmaster.model import events as e
from trainmaster.model.plan import Plan
from trainmaster.model.units import SECOND
from trainmaster.policies.trainmaster.service_predictor import (
    ENOUGH,
    FRESH,
    FRESH_MS,
    Foresight,
    Seen,
    classes_of,
)


class Learning(Scripted):
    """Does as it is told, and learns in each pass."""

    def __init__(self, **asks: bool) -> None:
        super().__init__()
        self.foresight = Foresight(**asks)
        self.seen = Seen()

    def first_memo(self) -> Seen:
        return Seen()

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Seen)
        self.seen = self.foresight.learn(memo, view, now)
        return replace(super().plan(view, memo, now), memo=self.seen)


class Lives(Strings):
    """Jobs live their lives; somebody learns from them."""

    def __init__(self, **asks: bool) -> None:
        super().__init__("1x64")
        self.learning = Learning(**asks)
        self.script = self.controller.policy = self.learning
        self.controller.memo = Seen()

    @property
    def seen(self) -> Seen:
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
        return self.learning.foresight.of(self.job(name)).inverse(0) / GPU_SECOND


ALONE = Prospect(NOBODY).inverse(0) / GPU_SECOND
"""The same where nothing is known."""


def without_siblings(**asks: bool) -> Lives:
    return Lives(asks_siblings=False, **asks)


# -- classes ---------------------------------------------------------------------------------------


def test_a_job_is_of_all_of_its_size_of_its_queue_and_of_its_program() -> None:
    lives = Lives()
    lives.arrives("a", queue="q", user="ann", app="bert", size=4)
    lives.arrives("b", queue="q", size=4)
    wide = ((), (2,), ("q", 2))
    assert classes_of(lives.job("a")) == (*wide, ("q", 2, "ann", "bert"))
    assert classes_of(lives.job("b")) == wide, "nobody knows its program"


@pytest.mark.parametrize(
    ("gpus", "size"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (64, 4)]
)
def test_sizes_are_one_two_four_eight_and_more(gpus: int, size: int) -> None:
    lives = Lives()
    lives.arrives("a", size=gpus)
    assert classes_of(lives.job("a"))[1] == (size,)


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
    lives.later(FRESH_MS / SECOND + 1)
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


def test_runs_that_go_on_count_at_the_time_of_the_tables_and_not_for_ever() -> None:
    lives = without_siblings()
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


def test_when_tables_are_made_everybody_is_ranked_anew() -> None:
    lives = without_siblings()
    lives.arrives("waits")
    before = lives.cost_s("waits")
    lives.many_live(FRESH - 1, 1)
    assert lives.cost_s("waits") == before == ALONE
    lives.many_live(1, 1)
    assert lives.cost_s("waits") < before
    assert not lives.controller.view._is_built, "the next call of `order` ranks all"


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
        lives = without_siblings(asks_programs=asks)
        lives.many_live(FRESH // 2, 5, user="ann", app="eval")
        lives.many_live(FRESH // 2, 5_000, user="ann", app="train")
        lives.arrives("e", user="ann", app="eval")
        lives.arrives("t", user="ann", app="train")
        assert (lives.cost_s("e") < lives.cost_s("t")) is asks
        assert (lives.cost_s("e") == lives.cost_s("t")) is not asks


def test_where_classes_are_not_asked_nothing_is_known() -> None:
    lives = without_siblings(asks_classes=False)
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
    lives.tell(e.RunSucceeded(lives.run("first")))
    assert lives.cost_s("second") < ALONE
    changed = [record.id for record in lives.state.changed.values()]
    assert "second" in changed, "it is ranked anew"


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
    alone = Lives(asks_siblings=False)
    alone.learning.foresight.show(lives.seen)
    by_class = alone.learning.foresight.of(lives.job("c")).inverse(0) / GPU_SECOND
    assert lives.cost_s("c") > by_class


# -- amnesia ---------------------------------------------------------------------------------------


def test_a_forgotten_foresight_answers_the_same() -> None:
    """Shown what was seen, a new one says of every live job what the old one says."""
    lives = Lives()
    for number in range(8):
        lives.arrives(f"w{number}", user="ann", app=f"p{number % 3}")
    lives.start("w0", 1).start("w1", 2).start("w2", 3)
    for number in range(FRESH + 20):
        who = {"user": "ann", "app": f"p{number % 3}"}
        lives.lives(f"l{number}", 1 + 37 * (number % 5), **who)
        if number % 10 == 0:
            lives.arrives(f"v{number}", **who)  # type: ignore[arg-type]
        renewed = Foresight()
        renewed.show(lives.seen)
        for record in lives.state.jobs.values():
            old, new = lives.learning.foresight.of(record), renewed.of(record)
            assert [old.inverse(step) for step in range(BINS)] == [
                new.inverse(step) for step in range(BINS)
            ], f"{record.id} after {number}"
    assert lives.seen.known, "tables were made on the way"


def test_what_was_seen_is_a_value() -> None:
    first, second = Lives(), Lives()
    for lives in (first, second):
        lives.many_live(FRESH + 3, 5)
    assert first.seen == second.seen
    assert hash(first.seen) == hash(second.seen)


# -- what is hardly exceeded -----------------------------------------------------------------------


def test_where_few_have_ended_nobody_says_what_will_hardly_be_exceeded() -> None:
    lives = without_siblings()
    lives.later(FRESH_MS / SECOND + 1)
    lives.many_live(1, 5)
    lives.arrives("a")
    assert lives.learning.foresight.hardly_exceeded(lives.job("a")) is None


def test_most_of_its_kind_take_no_longer_than_what_is_hardly_exceeded() -> None:
    """Of fifty like it all but one took a minute or less, that one an hour and a half."""
    lives = without_siblings()
    lives.many_live(FRESH - 1, 30)
    lives.many_live(1, 5_000)
    lives.arrives("a")
    assert FRESH >= ENOUGH
    assert lives.learning.foresight.hardly_exceeded(lives.job("a")) == 60 * GPU_SECOND


def test_one_that_has_come_further_is_judged_by_those_who_did() -> None:
    lives = without_siblings()
    lives.arrives("a")
    lives.start("a", 1).later(100)
    lives.many_live(FRESH, 30)
    record = lives.job("a")
    record.accrue(lives.now)
    found = lives.learning.foresight.hardly_exceeded(record)
    assert found is not None
    assert found > record.attained
