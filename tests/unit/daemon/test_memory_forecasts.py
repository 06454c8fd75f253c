"""What runs teach about the memory of others of their program, and when those are told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_job
from trainmaster.core.job_record import JobRecord
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.live_programs import LivePrograms
from trainmaster.daemon.measurements import profile_of_peak
from trainmaster.daemon.memory_forecasts import MemoryForecasts, memory_calibration_of
from trainmaster.estimators.memory.observed_memory import of_own_run, passed_on
from trainmaster.model.job import Demand, Shape
from trainmaster.model.job_state import JobState
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.profile import Profile
from trainmaster.model.units import GIB
from trainmaster.store.rows import Batch, StepRow, StoredJob
from trainmaster.store.store import Store


def a_live_job(id: str, arguments: str, profile: Profile | None = None, **more: Any) -> Any:
    record = JobRecord(a_job(id, 1), int(id), 0, None, None)
    record.profile = profile
    said = {
        "id": id,
        "job": a_job(id, 1),
        "recipe": SimpleNamespace(command=("python3.11", "-u", "train.py", *arguments.split())),
        "spec": {"workdir": "/home/ann"},
        "history": JobHistory(),
        "state": JobState.SUCCEEDED,
        "has_started": False,
        "record": record,
    }
    return SimpleNamespace(**said | more)


def ended(gib: int, util_ppm: int | None = None) -> Profile:
    measured = profile_of_peak(gib * GIB)
    return measured if util_ppm is None else measured.updated(Profile(gpu_util_ppm=util_ppm))


def test_a_new_job_starts_with_what_earlier_ones_have_shown() -> None:
    forecasts = MemoryForecasts(LivePrograms())
    new = a_live_job("9", "--batch 32")
    assert forecasts.profile(new, None) is None
    for id, batch, gib in (("1", 8, 3), ("2", 16, 5)):
        assert not [*forecasts.learn(a_live_job(id, f"--batch {batch}", ended(gib, 400_000)))]
    found = forecasts.profile(new, None)
    assert found is not None
    assert found.memory_estimate is not None
    assert found.memory_estimate.expected == 9 * GIB
    assert found.gpu_util_ppm == 400_000
    assert found.gpu_memory == 0  # nothing was measured of these arguments
    shape = Shape(1, memory=GIB)
    stated = a_live_job("8", "--batch 32", job=a_job("8", Demand(shape, 1, 1)))
    assert forecasts.profile(stated, None) is None  # its user knows


@pytest.mark.parametrize(
    "teacher",
    [
        pytest.param(a_live_job("1", "-b 8", ended(3), state=JobState.FAILED), id="it failed"),
        pytest.param(a_live_job("1", "-b 8", Profile(gpu_memory=GIB)), id="not its own peak"),
        pytest.param(a_live_job("1", "-b 8"), id="nothing was measured"),
        pytest.param(
            a_live_job(
                "1",
                "-b 8",
                Profile(gpu_memory=GIB, memory_estimate=passed_on(GIB)),
            ),
            id="passed on by another",
        ),
    ],
)
def test_only_a_run_that_succeeded_and_was_measured_teaches(teacher: Any) -> None:
    forecasts = MemoryForecasts(LivePrograms())
    assert not [*forecasts.learn(teacher)]
    assert forecasts.estimate(a_live_job("2", "-b 8")) is None


def test_jobs_that_wait_are_told_when_it_is_news() -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    first, started = a_live_job("1", "-b 8", ended(3)), a_live_job("2", "-b 8", has_started=True)
    waiting = a_live_job("3", "-b 8")
    other = a_live_job("4", "-b 8", spec={"workdir": "/elsewhere"})
    live_programs.register([started, waiting, other])
    (told,) = forecasts.learn(first)
    assert told.event.job == "3"
    estimate = told.event.profile.memory_estimate
    assert (estimate.source, estimate.runs, estimate.is_same) == (MemorySource.LEARNED, 1, True)
    waiting.record.profile = told.event.profile
    assert not [*forecasts.learn(a_live_job("5", "-b 8", ended(3)))]  # no news
    assert [*forecasts.learn(a_live_job("6", "-b 8", ended(4)))]


def test_what_was_first_expected_is_kept_and_compared() -> None:
    forecasts = MemoryForecasts(LivePrograms())
    expected = MemoryEstimate(GIB, 2 * GIB, 3 * GIB, MemorySource.LEARNED, 1, is_same=True)
    for number in range(9):
        live = a_live_job(str(number), "-b 8", Profile(memory_estimate=expected))
        forecasts.record(live)
        assert live.history.memory_forecast == expected
        live.record.profile = ended(4)
        forecasts.record(live)
        assert not [*forecasts.learn(live)]
    found = forecasts.estimate(a_live_job("10", "-b 8"))
    assert found is not None
    assert found.high == 8 * GIB  # twice what is expected, as it always was


def after(peak: int, steps: int) -> Profile:
    return Profile(gpu_memory=peak, memory_estimate=of_own_run(peak, steps))


def test_a_live_run_tells_others_with_its_arguments_what_it_has_used() -> None:
    forecasts, other = MemoryForecasts(LivePrograms()), a_live_job("2", "-b 8")
    early = forecasts.of_live_run(other, after(3 * GIB, 1))
    assert early.gpu_memory == 3 * GIB
    assert early.memory_estimate == passed_on(3 * GIB)
    other.record.profile = early
    late = forecasts.of_live_run(other, after(4 * GIB, 100))
    assert late.memory_estimate is not None
    assert late.memory_estimate.high == 8 * GIB  # it may grow, whatever its steps
    assert late.memory_estimate == passed_on(4 * GIB)
    other.record.profile = late
    second = forecasts.of_live_run(other, after(GIB, 1))
    assert second == late  # of two that go on, the larger


def test_a_run_that_grows_tells_those_that_go_on_beside_it() -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    grower, beside = (
        a_live_job(id, "-b 8", after(2 * GIB, 100), has_started=True) for id in ("1", "2")
    )
    larger = a_live_job("3", "-b 16", after(2 * GIB, 100), has_started=True)
    stated = a_live_job("4", "-b 8", has_started=True)
    stated.job = stated.record.job = a_job("4", Demand(Shape(1, memory=GIB), 1, 1))
    live_programs.register([grower, beside, larger, stated])
    grown = after(4 * GIB, 1_000)
    (told,) = forecasts.told_to_started(grower, grown)
    assert told.event.job == "2"
    assert told.event.profile.gpu_memory == 4 * GIB
    expected, own = told.event.profile.memory_estimate, grown.memory_estimate
    assert own is not None
    assert (expected.high, expected.is_passed_on) == (own.high, True)
    beside.record.profile = beside.record.profile.updated(told.event.profile)
    assert beside.record.measured_memory == own.high
    assert not [*forecasts.told_to_started(grower, grown)]  # no news


def test_so_does_one_that_has_ended() -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    beside = a_live_job("2", "-b 8", after(2 * GIB, 100), has_started=True)
    live_programs.register([beside])
    (told,) = forecasts.learn(a_live_job("1", "-b 8", ended(4)))
    expected = told.event.profile.memory_estimate
    assert (expected.source, expected.is_same) == (MemorySource.LEARNED, True)
    assert expected.high > 4 * GIB


@pytest.mark.parametrize("steps", [1, 1_000])
def test_the_beginning_of_a_run_does_not_go_before_runs_that_have_ended(steps: int) -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    for batch in (8, 16, 32):
        assert not [*forecasts.learn(a_live_job(str(batch), f"-b {batch}", ended(10 + batch)))]
    new, begun = a_live_job("1", "-b 64"), after(GIB, steps)
    learned = forecasts.estimate(new)
    assert learned is not None
    assert learned.expected == 74 * GIB
    assert forecasts.of_live_run(new, begun).memory_estimate == learned
    failed = forecasts.profile(new, begun)
    assert failed is not None
    assert failed.memory_estimate == learned
    new.record.profile = Profile(gpu_memory=GIB, memory_estimate=passed_on(GIB))
    live_programs.register([new])
    (told,) = forecasts.learn(a_live_job("4", "-b 4", ended(14)))
    assert told.event.profile.memory_estimate.source is MemorySource.LEARNED


def test_a_run_that_shows_more_than_those_that_have_ended_is_believed() -> None:
    forecasts = MemoryForecasts(LivePrograms())
    assert not [*forecasts.learn(a_live_job("1", "-b 8", ended(3)))]
    found = forecasts.of_live_run(a_live_job("2", "-b 8"), after(5 * GIB, 10)).memory_estimate
    assert found == passed_on(5 * GIB)


OF_MODEL = MemoryEstimate(70 * GIB, 74 * GIB, 78 * GIB, MemorySource.STATIC)


def started_with(
    forecasts: MemoryForecasts, arguments: str, known: Profile | None
) -> MemoryEstimate | None:
    stated = Profile(sync_bytes=8, memory_estimate=OF_MODEL)
    found = forecasts.profile(a_live_job("9", arguments), known, stated)
    assert found is not None
    assert found.sync_bytes == 8
    return found.memory_estimate


def test_the_estimate_from_its_model_goes_before_runs_with_other_arguments() -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    assert started_with(forecasts, "--layers 96", None) == OF_MODEL
    waiting = a_live_job("8", "--layers 96", Profile(memory_estimate=OF_MODEL))
    live_programs.register([waiting])
    for layers in (1, 2, 4):
        assert not [*forecasts.learn(a_live_job(str(layers), f"--layers {layers}", ended(1)))]
    assert started_with(forecasts, "--layers 96", None) == OF_MODEL
    assert started_with(forecasts, "--layers 96", after(GIB, 1_000)) == OF_MODEL
    assert forecasts.of_live_run(waiting, after(GIB, 1_000)).memory_estimate == OF_MODEL


def test_the_estimate_from_its_model_gives_way_to_what_was_seen() -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    more = started_with(forecasts, "--layers 96", after(79 * GIB, 10))
    assert more == passed_on(79 * GIB)
    assert not [*forecasts.learn(a_live_job("1", "--layers 96", ended(60)))]
    same = started_with(forecasts, "--layers 96", None)
    assert same is not None
    assert same.is_same
    waiting = a_live_job("8", "--layers 96", Profile(memory_estimate=OF_MODEL))
    live_programs.register([waiting])
    (told,) = forecasts.learn(a_live_job("2", "--layers 96", ended(60)))
    assert told.event.profile.memory_estimate.is_same


def test_what_was_missed_for_one_user_says_nothing_of_the_jobs_of_another() -> None:
    forecasts = MemoryForecasts(LivePrograms())
    forecast = MemoryEstimate(GIB, GIB, GIB, MemorySource.LEARNED, 1, is_same=True)
    history = JobHistory(memory_forecast=forecast)
    eve = {"job": replace(a_job("1", 1), user="eve")}
    ann = a_live_job("2", "-b 8", ended(4))
    assert not [*forecasts.learn(ann)]
    before = forecasts.estimate(ann)
    for number in range(9):
        live = a_live_job(str(number), "-b 8", ended(40), history=history, **eve)
        assert not [*forecasts.learn(live)]
    assert forecasts.estimate(ann) == before
    of_eve = forecasts.estimate(a_live_job("3", "-b 8", **eve))
    assert of_eve is not None
    assert of_eve.high == 80 * GIB


def a_row(
    number: int, command: str, profile: Profile, expected: MemoryEstimate | None = None
) -> StoredJob:
    job = a_job(str(number), 1)
    recipe = LaunchSpec(tuple(command.split()), "/", "")
    live = LiveJob(job, "train", StoredSubmission(recipe, job), {})
    LivePrograms().register([live])
    live.history = JobHistory(profile=profile, memory_forecast=expected)
    return replace(live.row(0), state="succeeded", submit_ms=number)


def test_a_restarted_manager_knows_a_program_however_many_others_have_run_since(
    store: Store,
) -> None:
    rows = [a_row(0, "python rare.py", ended(7))]
    rows += [a_row(number, f"python often.py -b {number}", ended(1)) for number in range(1, 700)]
    store.append([Batch(StepRow(1, 0, "[]", "[]"), tuple(rows))])
    forecasts = MemoryForecasts(LivePrograms())
    forecasts.read_back(store)
    rare = SimpleNamespace(command=("python", "rare.py"))
    found = forecasts.estimate(a_live_job("9000", "", recipe=rare, spec={}))
    assert found is not None
    assert found.low == 7 * GIB
    often = SimpleNamespace(command=("python", "often.py"))
    others = forecasts.estimate(a_live_job("9001", "", recipe=often, spec={}))
    assert others is not None
    assert others.runs == 20


def test_calibration_compares_what_was_expected_with_the_peaks_that_were_read(store: Store) -> None:
    expected = MemoryEstimate(GIB, 2 * GIB, 3 * GIB, MemorySource.LEARNED, 1, is_same=True)
    rows = [a_row(number, "python a.py", ended(number), expected) for number in (1, 2, 4)]
    rows += [a_row(5, "python a.py", ended(5)), a_row(6, "python a.py", Profile(), expected)]
    store.append([Batch(StepRow(1, 0, "[]", "[]"), tuple(rows))])
    (row,) = memory_calibration_of(store)
    assert (row.estimates, row.within, row.covered) == (3, 2, 2)


def test_what_is_expected_counts_until_the_job_starts() -> None:
    forecasts = MemoryForecasts(LivePrograms())
    live = a_live_job("1", "-b 8", Profile(memory_estimate=OF_MODEL))
    forecasts.record(live)
    learned = MemoryEstimate(GIB, 2 * GIB, 3 * GIB, MemorySource.LEARNED, 1, is_same=True)
    live.record.profile = Profile(memory_estimate=learned)
    forecasts.record(live)
    live.has_started = True
    live.record.profile = Profile(memory_estimate=OF_MODEL)
    forecasts.record(live)
    assert live.history.memory_forecast == learned


def test_what_a_run_out_of_host_memory_had_counts_until_one_has_succeeded() -> None:
    live_programs = LivePrograms()
    forecasts = MemoryForecasts(live_programs)
    failed, other = a_live_job("1", "-b 8"), a_live_job("2", "-b 8")
    started = a_live_job("3", "-b 8", has_started=True)
    live_programs.register([failed, other, started, a_live_job("4", "-b 16")])
    failed.has_started = True
    assert forecasts.learn_out_of_memory(failed, 3 * GIB) == [other]
    assert forecasts.host_estimate(other) == passed_on(3 * GIB)
    assert forecasts.learn_out_of_memory(failed, 2 * GIB) == ()  # no news
    assert forecasts.host_estimate(a_live_job("4", "-b 16")) is None
    good = a_live_job("5", "-b 8", Profile(host_memory=4 * GIB))
    assert not [*forecasts.learn(good)]
    found = forecasts.host_estimate(other)
    assert found is not None
    assert (found.low, found.is_same) == (4 * GIB, True)


def test_what_a_run_out_of_host_memory_had_outweighs_less_of_other_arguments() -> None:
    forecasts = MemoryForecasts(LivePrograms())
    for id in ("1", "2", "3"):
        small = a_live_job(id, "--hidden 64", Profile(host_memory=GIB))
        assert not [*forecasts.learn(small)]
    failed, waiting = a_live_job("4", "--hidden 4096"), a_live_job("5", "--hidden 4096")
    forecasts.learn_out_of_memory(failed, 20 * GIB)
    assert forecasts.host_estimate(waiting) == passed_on(20 * GIB)
    enough = a_live_job("6", "--hidden 8192")
    forecasts.learn_out_of_memory(enough, GIB + 1)
    found = forecasts.host_estimate(enough)
    assert found is not None
    assert not found.is_passed_on  # by other arguments, which allows for more than it had
