"""Priority: the level of a job, and until when its rank holds."""

from __future__ import annotations

from tests.builders import a_policy
from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.mechanisms.fair_share.queue_tree import TreeCache
from trainmaster.mechanisms.preemption_guards import STARVING, YOUNG
from trainmaster.model.plan import FrozenMap, Rank
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.policies.trainmaster.memo import TrainmasterMemo
from trainmaster.policies.trainmaster.options import Settings
from trainmaster.policies.trainmaster.policy import Trainmaster
from trainmaster.policies.trainmaster.priority import DUE, GUARANTEED_RUN, LATE, STEP, STEPS, rank
from trainmaster.policies.trainmaster.scheduling_pass import Caches, Pass
from trainmaster.policies.trainmaster.starvation_guard import GuaranteedRuns


def ranked(strings: Strings, name: str, memo: TrainmasterMemo, **options: object) -> Rank:
    policy = a_policy("trainmaster", **options)
    assert isinstance(policy, Trainmaster)
    settings, view = Settings.of(policy.options), strings.controller.view
    caches = Caches.new(settings, TreeCache({}))
    return rank(Pass(settings, caches, view, memo, strings.now, Draft(view)), strings.job(name))


def test_levels_stand_in_the_order_of_the_table() -> None:
    assert DUE < LATE < GUARANTEED_RUN < YOUNG < STARVING < -STEPS * STEP


def test_an_owed_job_goes_first_until_it_has_been_served() -> None:
    strings = Strings("1x2").running("other", 0).submit("a").submit("b")
    memo = TrainmasterMemo(owed=GuaranteedRuns(FrozenMap({"a": 600 * SECOND * WHOLE}), HOUR))

    def found(name: str) -> tuple[int, int | None]:
        each = ranked(strings, name, memo, min_run_s=0)
        return each.level, each.until_ms

    assert found("b")[0] >= 0
    assert found("a") == (GUARANTEED_RUN, None)
    strings.later(60).start("a", 1)
    assert found("a") == (GUARANTEED_RUN, 660 * SECOND)
    strings.later(600)
    assert found("a")[0] >= 0


def test_a_young_run_is_protected_until_it_has_run_long_enough() -> None:
    strings = Strings("1x2").submit("a")
    strings.start("a", 1)
    found = ranked(strings, "a", TrainmasterMemo(), min_run_s=60)
    assert (found.level, found.until_ms) == (YOUNG, strings.now + 60 * SECOND)
    strings.job("a").switch_ms = 45 * SECOND
    assert ranked(strings, "a", TrainmasterMemo()).until_ms == strings.now + 90 * SECOND


def test_a_run_counts_for_a_part_of_its_cost() -> None:
    strings = Strings("1x2").submit("a").submit("b")
    strings.start("a", 1)
    waits, runs = (
        ranked(strings, name, TrainmasterMemo(), min_run_s=0, cap=0, hysteresis=0.65).level
        for name in ("b", "a")
    )
    assert runs == waits * 65 // 100
