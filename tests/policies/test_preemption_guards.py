"""`starve_after_s` and `min_run_s`: what each preemptive policy does with them, and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import a_policy, a_scenario, costly, finishes, one, outcome_of, traced
from trainmaster.catalog import policy_class
from trainmaster.config.options import OptionError, read_options
from trainmaster.core.policy import Policy
from trainmaster.model.result import Result
from trainmaster.model.units import SECOND

POLICIES: dict[str, dict[str, object]] = {
    "srtf": {},
    "srsf": {},
    "las": {"quantum_s": 4},
    "tiresias-l": {"thresholds_gpu_s": 4},
    "tiresias-g": {"thresholds_gpu_s": 4},
    "gittins": {"quantum_s": 4},
}
"""With options under which a newcomer goes before a job that has run for 4 s and has long to go."""

every_policy = pytest.mark.parametrize("name", POLICIES)


@pytest.fixture
def short_or_long(tmp_path: Path) -> Path:
    """Jobs take 4 GPU-seconds or 100."""
    path = tmp_path / "samples.csv"
    path.write_text("4\n100\n")
    return path


def made(name: str, samples: Path, **guards: float) -> Policy:
    options = {**POLICIES[name], **guards}
    if name == "gittins":
        options["service_samples"] = samples
    return a_policy(name, **options)


def beside_a_stream(policy: Policy) -> Result:
    """A job of 10 s, and from the fourth second on every four seconds one of 4 s, forty in all."""
    stream = [traced(f"new{n:02}", 1, 4, at_s=4 * n + 4) for n in range(40)]
    return outcome_of(a_scenario([traced("old", 1, 10), *stream], "1x1"), policy)


@every_policy
def test_a_job_that_has_waited_long_enough_goes_first(name: str, short_or_long: Path) -> None:
    """It runs 0-4, and then waits till 164 for all newcomers; or only 20 s, and runs 24-30."""
    off = beside_a_stream(made(name, short_or_long))
    on = beside_a_stream(made(name, short_or_long, starve_after_s=20))
    assert finishes(off)["old"] == 170
    assert finishes(on)["old"] == 30
    assert one(on, "old").preemptions == 1


@every_policy
def test_no_run_is_preempted_before_it_has_run_so_long(name: str, short_or_long: Path) -> None:
    jobs = [traced("long", 1, 100), traced("short", 1, 4, at_s=12)]
    scenario = a_scenario(jobs, "1x1")
    off = outcome_of(scenario, made(name, short_or_long))
    on = outcome_of(scenario, made(name, short_or_long, min_run_s=32))
    assert finishes(off) == {"long": 104, "short": 16}
    assert finishes(on) == {"long": 104, "short": 36}


def test_starting_does_not_count_as_running() -> None:
    """A run that takes 10 s to start is safe for the 10 s and then for `min_run_s`."""
    jobs = [traced("long", 1, 100), traced("short", 1, 4, at_s=12)]
    scenario = a_scenario(jobs, "1x1", costly(start_ms=10_000))
    starts = {
        min_run_s: one(
            outcome_of(scenario, a_policy("srtf", min_run_s=min_run_s)), "short"
        ).start_ms
        for min_run_s in (0, 20)
    }
    assert starts == {0: (12 + 10) * SECOND, 20: (10 + 20 + 10) * SECOND}


def test_a_starving_job_waits_for_a_protected_one() -> None:
    """The second starves from 11 on, but the first is safe until 30; then it is the second's turn."""
    jobs = [traced("first", 1, 100), traced("second", 1, 200, at_s=1)]
    scenario = a_scenario(jobs, "1x1")
    result = outcome_of(scenario, a_policy("srtf", starve_after_s=10, min_run_s=30))
    assert one(result, "second").start_ms == 30 * SECOND
    alone = outcome_of(scenario, a_policy("srtf", starve_after_s=10))
    assert one(alone, "second").start_ms == 11 * SECOND


def test_of_starving_jobs_the_longest_waiting_goes_first() -> None:
    jobs = [
        traced("running", 1, 20),
        traced("large", 1, 50, at_s=1),
        traced("small", 1, 30, at_s=2),
    ]
    scenario = a_scenario(jobs, "1x1")
    off = outcome_of(scenario, a_policy("srtf"))
    on = outcome_of(scenario, a_policy("srtf", starve_after_s=12))
    assert one(off, "small").start_ms == 20 * SECOND, "the shorter of the two"
    assert one(on, "large").start_ms == 13 * SECOND
    assert one(on, "small").start_ms == 25 * SECOND, "when large has run for as long as it waited"


@every_policy
@pytest.mark.parametrize("key", ["starve_after_s", "min_run_s"])
@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_bad_values_are_one_sentence(name: str, key: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: {key} must be a number"):
        read_options(name, policy_class(name).options_type, {key: text})
