"""What is known of a program serves its next run, and its speed is told by samples or by steps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from trainmaster.daemon import known_profiles
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.known_profiles import KnownProfiles, KnownProgram
from trainmaster.daemon.live_programs import LivePrograms
from trainmaster.daemon.run_speeds import measured_speed
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.events import JobProfiled
from trainmaster.model.job import Run, Source, gpus
from trainmaster.model.profile import Profile
from trainmaster.model.units import NOMINAL, SECOND

STEP = Profile(step_us=50_000)


@pytest.mark.parametrize(
    ("known", "iterations", "gpus", "seconds"),
    [
        (KnownProgram(STEP, 1_000), None, 1, 50),
        (KnownProgram(STEP, 1_000), 200, 1, 10),
        (KnownProgram(STEP), 200, 1, 10),
        (KnownProgram(STEP), None, 1, None),
        (KnownProgram(Profile(gpu_memory=1), 1_000), None, 1, None),
        (KnownProgram(STEP, 1_000), None, 2, None),
    ],
)
def test_the_steps_of_earlier_runs_tell_how_long_the_next_one_takes(
    known: KnownProgram, iterations: int | None, gpus: int, seconds: int | None
) -> None:
    found = known.estimate(replace(a_job("a", gpus), iterations=iterations))
    if seconds is None:
        assert found is None
    else:
        assert found is not None
        assert (found.work, found.source) == (seconds * SECOND * NOMINAL, Source.PROFILE)


@pytest.mark.parametrize("unit", ["samples_per_s", "steps_per_s"])
def test_a_speed_is_relative_to_the_best_whatever_is_counted(unit: str) -> None:
    record = Strings("1x1").running("a", 0).job("a")
    live: Any = SimpleNamespace(history=JobHistory())
    found = [
        measured_speed(live, record, Progressed(Run("a", 1), 0, 1, **{unit: rate}))  # type: ignore[arg-type]
        for rate in (5.0, 10.0, 4.0, None)
    ]
    assert found == [NOMINAL, NOMINAL, 400_000, None]
    assert getattr(live.history, unit) == 10.0


def speed_of(world: Strings, live: Any, **rates: float) -> int | None:
    [record] = world.state.jobs.values()
    said = Progressed(record.run, 0, 1, **rates)  # type: ignore[arg-type]
    return measured_speed(live, record, said, world.topology)


def test_a_gang_on_more_nodes_than_it_needs_is_nothing_to_compare_with() -> None:
    live: Any = SimpleNamespace(history=JobHistory())
    assert speed_of(Strings("2x2").running("a", 0, 2), live, samples_per_s=5.0) is None
    assert speed_of(Strings("2x2").running("a", 0, 1), live, samples_per_s=10.0) == NOMINAL
    assert speed_of(Strings("2x2").running("a", 0, 2), live, samples_per_s=5.0) == NOMINAL // 2
    assert speed_of(Strings("2x1").running("a", 0, 1), live, samples_per_s=5.0) == NOMINAL // 2


def test_a_job_of_one_device_is_compared_with_the_profile_of_its_program() -> None:
    world = Strings("1x4").submit("a", gpus(1, maximum=4))
    world.tell(JobProfiled("a", profile=Profile(step_us=100_000, batch=64, per_gpu=True)))
    world.start("a", 0, 1, 2, 3)
    live: Any = SimpleNamespace(history=JobHistory())
    assert speed_of(world, live, samples_per_s=1920.0) == 3 * NOMINAL
    assert speed_of(world, live, steps_per_s=30.0) is None, "a step may have more samples"
    rigid = Strings("1x1").running("a", 0)
    rigid.tell(JobProfiled("a", profile=Profile(step_us=100_000, per_gpu=True)))
    assert speed_of(rigid, live, steps_per_s=5.0) == NOMINAL // 2


def a_live_job(command: str, profile: Profile | None = None) -> Any:
    return SimpleNamespace(
        id="a",
        job=a_job("a", 1),
        spec={},
        recipe=SimpleNamespace(command=(command,)),
        name="a",
        state="running",
        history=JobHistory(),
        record=SimpleNamespace(profile=profile),
    )


def test_what_is_learnt_while_a_submission_looks_does_not_fail_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_profiles, "MOST", 1)

    def jobs(wanted: object) -> list[Any]:
        known.learn(a_live_job("other", STEP))  # as the event loop may, beside the submission
        return []

    store: Any = SimpleNamespace(jobs=jobs)
    known = KnownProfiles(store, lambda key: ())
    assert known.of(a_live_job("mine")) is None
    assert known.of(a_live_job("other")) == KnownProgram(STEP)


def test_of_all_live_jobs_only_those_of_the_program_are_asked() -> None:
    store: Any = SimpleNamespace(jobs=lambda wanted: [])
    live_programs = LivePrograms()
    known = KnownProfiles(store, live_programs.with_arguments)
    mine, other = a_live_job("mine", STEP), a_live_job("other", STEP)
    live_programs.register([mine, other])
    other.recipe = None  # nobody looks at it again
    assert known.of(a_live_job("mine")) == KnownProgram(STEP)
    live_programs.forget(mine)
    assert known.of(a_live_job("mine")) == KnownProgram(STEP), "what was learnt stays known"
