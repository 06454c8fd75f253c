"""Who pre-runs a program, who waits for that, and what is remembered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from trainmaster.api.messages import prerun
from trainmaster.config.limits import Limits
from trainmaster.core.job_record import JobRecord
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon import prerun_events, preruns
from trainmaster.daemon.dependencies import Dependencies
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.daemon.job_history import JobHistory, Prerun, Progress
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.preruns import Preruns, program_digest
from trainmaster.daemon.report_events import LoggedEvent, events_of
from trainmaster.daemon.retries import RetryTerms
from trainmaster.daemon.runtime_limits import RuntimeLimits
from trainmaster.daemon.service_api import JobStatus
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.failure import Failure
from trainmaster.model.job import Run, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.store.rows import KEYS_LIVE_MS, KeyRow
from trainmaster.text.messages import story_sentence

RECIPE = LaunchSpec(("python", "a.py"), "/w", "/c", preflight=True, program_digest="f00")


class Stage:
    """Pre-runs of jobs that the test makes, with a store that keeps keys alone."""

    def __init__(self) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.keys: dict[str, KeyRow] = {}
        self.now = 0
        store = cast(Any, SimpleNamespace(key=self.keys.get))
        self.preruns = Preruns(store, self.jobs, Dependencies(self.jobs))

    def new(
        self,
        *names: str,
        recipe: LaunchSpec = RECIPE,
        size: int = 4,
        hold: Hold | None = None,
        **more: Any,
    ) -> list[LiveJob]:
        """Before anything is decided about them."""
        lives = []
        for name in names:
            job = a_job(name, size, **more)
            lives.append(LiveJob(job, name, StoredSubmission(recipe, job), {"workdir": "/w"}))
            lives[-1].holds.update(() if hold is None else {hold})
        return lives

    def plan(self, lives: list[LiveJob]) -> None:
        self.preruns.plan(lives, self.preruns.look_up(lives), self.now)

    def submit(self, *names: str, **how: Any) -> list[str]:
        """All at once; those that are held for a pre-run."""
        lives = self.new(*names, **how)
        self.plan(lives)
        self.take_in(lives)
        return [live.id for live in lives if Hold.PRERUN in live.holds]

    def take_in(self, lives: list[LiveJob]) -> None:
        """Their first step."""
        for live in lives:
            prerun = live.history.prerun
            live.record = JobRecord(live.job, 0, 0, None, None)
            if prerun is not None and not prerun.passed_as:
                live.record.begin_with_prerun()
            self.jobs[live.id] = live
        self.preruns.register(lives)

    def said(self, name: str) -> str:
        prerun = self.jobs[name].history.prerun
        return "none" if prerun is None else prerun.result

    def passes(self, name: str, failure: Failure | None = None) -> list[str]:
        live = self.jobs[name]
        event = e.RunPassed(Run(name, 1), failure)
        prerun = live.history.prerun or Prerun()
        result = "passed" if failure is None else "unsure"
        live.history = replace(live.history, prerun=replace(prerun, result=result))
        self.keys |= {row.key: row for row in self.preruns.note([LoggedEvent(event)], self.now)}
        assert live.record is not None
        live.record.end_prerun(cannot_save=True)
        return self.after(name)

    def after(self, name: str) -> list[str]:
        return told(self.preruns.follow_up([self.jobs[name]]))


def told(found: Iterable[LoggedEvent]) -> list[str]:
    return [f"{type(each.event).__name__} {cast(Any, each.event).job}" for each in found]


def test_of_several_jobs_of_a_program_the_first_pre_runs_and_the_others_follow() -> None:
    stage = Stage()
    assert stage.submit("a", "b") == ["b"]
    assert stage.submit("c") == ["c"]
    assert stage.after("a") == [], "it goes on"
    released = ["PrerunWaived b", "JobReleased b", "PrerunWaived c", "JobReleased c"]
    assert stage.passes("a") == released
    assert stage.submit("d") == []
    assert (stage.said("a"), stage.said("b"), stage.said("d")) == ("passed", "skipped", "skipped")


def test_it_is_remembered_by_the_store() -> None:
    stage = Stage()
    stage.submit("a")
    stage.passes("a")
    again = Stage()
    again.keys |= stage.keys
    assert again.submit("b") == []
    assert again.jobs["b"].history.prerun == Prerun(
        program_digest(again.jobs["b"]), "skipped", passed_as="a"
    )


def test_it_is_remembered_for_seven_days_from_when_it_passed() -> None:
    stage = Stage()
    stage.submit("a")
    stage.passes("a")
    stage.now = KEYS_LIVE_MS
    assert (stage.submit("b"), stage.said("b")) == ([], "skipped")
    stage.now += 1
    assert stage.submit("c", "d") == ["d"]
    assert (stage.after("c"), stage.said("c"), stage.said("d")) == ([], "", "")
    assert stage.passes("c") == ["PrerunWaived d", "JobReleased d"]
    (row,) = stage.keys.values()
    assert (row.at_ms, row.answer_json) == (stage.now, '"c"')
    again = Stage()
    again.keys |= stage.keys
    again.now = stage.now + KEYS_LIVE_MS + 1
    assert (again.submit("e"), again.said("e")) == ([], "")


def test_new_jobs_wait_for_those_that_are_not_taken_in_yet_and_not_if_they_never_are() -> None:
    stage = Stage()
    first = stage.new("a")
    stage.plan(first)
    assert stage.submit("b", "c") == ["b", "c"]
    assert stage.after("b") == []
    assert told(stage.preruns.withdraw(first)) == ["JobReleased b"]


def test_one_that_passes_before_the_first_step_of_a_new_job() -> None:
    stage = Stage()
    stage.submit("a")
    new = stage.new("b")
    stage.plan(new)
    assert stage.passes("a") == [], "`b` cannot be released before it is submitted"
    stage.take_in(new)
    assert stage.after("b") == ["PrerunWaived b", "JobReleased b"]


def test_one_that_only_waits_leads_none_that_may_start_before_it() -> None:
    stage = Stage()
    assert stage.submit("a", priority=1) == []
    assert stage.submit("queue", queue="other", priority=1) == []
    assert stage.submit("urgent", priority=2) == []
    assert stage.submit("small", size=2) == ["small"], "it asks for the same device"
    assert stage.submit("elsewhere", queue="other") == ["elsewhere"]
    other = replace(gpus(4), host_memory=1)
    assert stage.submit("modest", size=other) == [], "`a` may wait for more memory"
    assert stage.submit("third", queue="third") == []
    record = stage.jobs["a"].record
    assert record is not None
    record.placement = Strings("1x4").on(0)
    assert stage.submit("fourth", queue="fourth", priority=9) == ["fourth"], "`a` runs"
    record.placement = None
    assert stage.after("a") == ["JobReleased fourth"]


def test_what_is_asked_of_the_store_beside_the_loop_walks_over_nothing_that_the_loop_changes() -> (
    None
):
    stage = Stage()
    stage.submit("a", "b")
    during: list[str] = []

    def key(name: str) -> KeyRow | None:
        stage.preruns.forget(stage.jobs.pop("a"))
        during.append(name)
        return None

    stage.preruns._store = cast(Any, SimpleNamespace(key=key))
    new = stage.new("c", "d")
    stored = stage.preruns.look_up(new)
    assert (len(during), stored) == (1, {})
    stage.preruns.plan(new, stored, 0)
    assert [live.id for live in new if Hold.PRERUN in live.holds] == ["d"], (
        "`a` has ended meanwhile"
    )


def test_a_step_looks_at_each_job_of_an_array_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, count = Stage(), 200
    looked: list[str] = []
    leads = preruns._leads

    def counted(other: LiveJob, live: LiveJob) -> bool:
        looked.append(live.id)
        return leads(other, live)

    monkeypatch.setattr(preruns, "_leads", counted)
    names = [f"a{number}" for number in range(count)]
    assert stage.submit(*names) == names[1:]
    assert stage.after("a0") == []
    assert len(looked) < 10, "they differ in nothing that decides"
    assert len(stage.passes("a0")) == 2 * (count - 1)
    assert not stage.preruns._by_program, "nothing is left to look at"


def test_where_the_first_ends_or_is_held_the_next_takes_its_turn() -> None:
    stage = Stage()
    assert stage.submit("a", "b", "c") == ["b", "c"]
    record = stage.jobs["a"].record
    assert record is not None
    record.phase = Phase.FAILED
    failed = replace(stage.jobs["a"].history.prerun or Prerun(), result="failed")
    stage.jobs["a"].history = replace(stage.jobs["a"].history, prerun=failed)
    assert stage.after("a") == ["JobReleased b"]
    following = stage.jobs["b"].history.prerun
    assert following is not None
    assert following.failed_as == "a", "which is said of the next"
    stage.jobs["b"].holds.add(Hold.OWNER)
    assert stage.after("b") == ["JobReleased c"]


def test_one_that_waits_for_its_retry_or_for_other_devices_holds_nobody_up() -> None:
    stage = Stage()
    assert stage.submit("a", "b", "c") == ["b", "c"]
    record = stage.jobs["a"].record
    assert record is not None
    record.retry_at_ms = 60_000
    assert stage.after("a") == ["JobReleased b"], "and `c` waits for that"
    assert stage.submit("d") == ["d"]
    record.retry_at_ms = None
    assert stage.after("a") == []
    assert stage.passes("b") == [
        *("PrerunWaived a", "PrerunWaived c", "JobReleased c", "PrerunWaived d", "JobReleased d")
    ]
    other = Stage()
    assert other.submit("a", "b") == ["b"]
    record = other.jobs["a"].record
    assert record is not None
    record.demand = replace(record.demand, avoid=(0,))
    assert other.after("a") == ["JobReleased b"]


def test_one_that_is_held_leads_only_those_that_are_held_likewise() -> None:
    stage = Stage()
    assert stage.submit("a", "b", hold=Hold.DEPENDENCY) == ["b"]
    assert stage.submit("c") == [], "it need not wait for what `a` depends on"
    stage.jobs["b"].holds.discard(Hold.DEPENDENCY)
    assert stage.after("b") == [], "it waits for `c` now"
    record = stage.jobs["c"].record
    assert record is not None
    record.phase = Phase.CANCELLED
    assert stage.after("c") == ["JobReleased b"], "before `a`, which is still held"


def test_one_that_is_unsure_lets_those_that_wait_go_and_is_not_remembered() -> None:
    stage = Stage()
    stage.submit("a", "b")
    assert stage.passes("a", Failure("cuda-out-of-memory")) == ["PrerunWaived b", "JobReleased b"]
    assert not stage.keys
    assert stage.submit("c", "d") == ["d"]
    assert stage.after("a") == [], "what `a` does later says nothing about `c`"
    assert (stage.said("c"), stage.said("d")) == ("", "")


def test_who_needs_none_and_who_is_not_known_again() -> None:
    stage = Stage()
    assert (
        stage.submit("one", size=1)
        == stage.submit("off", recipe=replace(RECIPE, preflight=False))
        == []
    )
    assert (stage.said("one"), stage.said("off")) == ("none", "none")
    nameless = replace(RECIPE, program_digest="")
    assert stage.submit("x", "y", recipe=nameless) == []
    assert (stage.said("x"), stage.said("y")) == ("", "")


def test_another_file_argument_or_variable_is_another_program() -> None:
    stage = Stage()
    others = (
        replace(RECIPE, program_digest="ba2"),
        replace(RECIPE, command=("python", "a.py", "--lr", "1")),
        replace(RECIPE, env=(("LR", "1"),)),
        replace(RECIPE, array_index=7, checkpoint_dir="/other", uuid="u"),
    )
    stage.submit("a")
    for number, recipe in enumerate(others):
        stage.submit(f"b{number}", recipe=recipe)
    assert [Hold.PRERUN in stage.jobs[f"b{n}"].holds for n in range(4)] == [
        False,
        False,
        False,
        True,
    ]


def test_it_is_stored_with_the_job() -> None:
    history = JobHistory(prerun=Prerun("f00", "passed", 1, 1, 2_000), attempts=2)
    assert JobHistory.from_json(history.to_json()) == history
    assert history.restarts == 0


def test_one_that_was_seen_to_make_no_step_in_its_time_goes_on_and_is_not_remembered() -> None:
    stage = Stage()
    for name, has_stepped in (("a", False), ("b", True)):
        stage.submit(name)
        live = stage.jobs[name]
        assert live.record is not None
        said = r.Ended(Run(name, 1), 0, code=143, asked=r.StopOrder.PRERUN)
        event = prerun_events.passed_event(said, live, live.record, None, has_stepped=has_stepped)
        assert event == e.RunPassed(Run(name, 1))
        told = prerun_events.doubt(live)
        assert (stage.said(name), told) == (
            ("passed", {}) if has_stepped else ("unsure", {"stepless": True})
        )
        assert bool(list(stage.preruns.note([LoggedEvent(event)], 0))) is has_stepped


def test_of_a_program_that_ended_within_it_it_is_said_that_it_runs_again() -> None:
    stage = Stage()
    stage.submit("a")
    live = stage.jobs["a"]
    assert live.record is not None
    said = r.Ended(Run("a", 1), 0, code=0)
    assert prerun_events.passed_event(said, live, live.record, None, has_stepped=False)
    told = prerun_events.doubt(live)
    assert "ended within its pre-run: it runs again" in story_sentence("pre-run passed", told)
    row = prerun(JobStatus(live.row(0), live.history, 0))
    assert row is not None
    assert "is done again on all its devices" in row.sentence
    assert JobHistory.from_json(live.history.to_json()) == live.history


def test_the_time_limit_of_a_job_does_not_count_its_pre_run() -> None:
    stage, limits = Stage(), RuntimeLimits()
    stage.submit("a", recipe=replace(RECIPE, max_runtime_ms=5_000))
    live = stage.jobs["a"]
    limits.note(live)
    live.began(0)
    assert (list(limits.overdue(9_000)), limits.next_due(9_000)) == ([], None)
    live.paused(9_000)
    prerun_events.leave(live)
    assert live.ran_ms(9_000) == 0
    assert live.history.prerun is not None
    assert live.history.prerun.ran_ms == 9_000
    stage.passes("a")
    live.began(10_000)
    assert [type(each.event) for each in limits.overdue(15_000)] == [e.JobWithdrawn]


def test_a_failed_one_is_judged_by_the_steps_and_the_time_that_it_had() -> None:
    world = Strings("1x4").running("x", 1, retries=2)
    record = world.job("x")
    record.demand_after_prerun = record.demand
    submission = StoredSubmission(RECIPE, record.job)
    live = LiveJob(record.job, "x", submission, {}, record=record)
    progress = Progress(0, 15, None, None, None, None)
    live.history = replace(
        live.history, prerun=Prerun("f00"), progress=progress, since_ms=world.now
    )
    failure = Failure("unknown", exit_code=1, lines=('File "a.py", line 3', "FlakyError: again"))
    said = r.Ended(record.run, world.now + 30_000, code=1, rank=0)
    terms = RetryTerms(built_in_table(), world.state.occupancy)
    (found,) = events_of(said, live, world.now + 30_000, Limits(), failure, terms)
    assert isinstance(found.event, e.RunFailed)
    assert found.event.retryable, "it made its first step"
    (attempt,) = live.history.failed_attempts
    assert (attempt.step, attempt.ran_ms, attempt.job_ran_ms) == (15, 30_000, 30_000)
    assert (live.history.progress, live.history.run_ms, live.history.failed_ms) == (None, 0, (0,))
