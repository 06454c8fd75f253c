"""Jobs submitted one after another by the same source know each other while they live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from trainmaster.core.submission_siblings import FORGOTTEN_MS, NEAR
from trainmaster.model import events as e
from trainmaster.model.units import SECOND


def submit(strings: Strings, name: str, size: int = 1, *, user: str = "", app: str = "") -> None:
    job = a_job(name, size, at_s=strings.now / SECOND)
    strings.tell(e.JobSubmitted(replace(job, user=user, app=app)))


def a_sweep(count: int, topology: str = "1x4") -> Strings:
    """Jobs j0, j1, ... one second apart."""
    strings = Strings(topology)
    for number in range(count):
        submit(strings, f"j{number}")
        strings.later(1)
    return strings


def siblings(strings: Strings, name: str) -> list[str]:
    return [record.id for record in strings.job(name).siblings]


def test_each_knows_those_before_it_and_those_after_it_in_order_of_submission() -> None:
    strings = a_sweep(3)
    assert siblings(strings, "j0") == ["j1", "j2"]
    assert siblings(strings, "j1") == ["j0", "j2"]
    assert siblings(strings, "j2") == ["j0", "j1"]


def test_ten_before_and_ten_after_are_near_enough() -> None:
    strings = a_sweep(2 * NEAR + 5)
    middle = NEAR + 2
    near = [*range(middle - NEAR, middle), *range(middle + 1, middle + NEAR + 1)]
    assert siblings(strings, f"j{middle}") == [f"j{number}" for number in near]
    assert siblings(strings, "j0") == [f"j{number}" for number in range(1, NEAR + 1)]


@pytest.mark.parametrize(
    "other",
    [{"size": 2}, {"user": "ann"}, {"app": "bert"}],
    ids=["of another size", "of another user", "of another program"],
)
def test_a_job_of_another_source_is_a_stranger(other: dict[str, object]) -> None:
    strings = a_sweep(1)
    submit(strings, "stranger", **other)  # type: ignore[arg-type]
    assert siblings(strings, "stranger") == siblings(strings, "j0") == []


def test_a_job_of_another_queue_is_a_stranger() -> None:
    strings = Strings().submit("a", queue="q").submit("b", queue="p")
    assert siblings(strings, "a") == siblings(strings, "b") == []


def test_one_that_has_ended_is_still_known_to_those_that_live() -> None:
    strings = a_sweep(2)
    strings.start("j0", 0).later(7)
    strings.tell(e.RunSucceeded(strings.run("j0")))
    (ended,) = strings.job("j1").siblings
    assert (ended.id, ended.is_live, ended.attained) == ("j0", False, 7 * SECOND * 1_000)


def test_a_newcomer_hears_of_one_that_has_ended_and_not_the_other_way_round() -> None:
    strings = a_sweep(1)
    ended = strings.job("j0")
    strings.start("j0", 0).tell(e.RunSucceeded(strings.run("j0")))
    submit(strings, "j1")
    assert strings.job("j1").siblings == [ended]
    assert ended.siblings == []


def test_an_ended_job_drops_its_siblings_after_the_next_pass() -> None:
    """Else every job would keep ten others, and those ten more, for ever."""
    strings = a_sweep(3)
    ended = strings.job("j1")
    strings.start("j1", 0).tell(e.RunSucceeded(strings.run("j1")))
    assert ended.siblings == []
    assert siblings(strings, "j0") == ["j1", "j2"]


def test_sources_not_heard_of_for_a_week_are_forgotten() -> None:
    strings = Strings()
    for number in range(50):
        submit(strings, f"j{number}", user=f"u{chr(97 + number % 26)}{chr(97 + number // 26)}")
    sources = strings.state.recent_submissions
    assert len(sources.by_source()) == 50
    strings.later(FORGOTTEN_MS / SECOND + 1)
    for number in range(30):
        submit(strings, f"k{number}", app="another")
    assert len(sources.by_source()) == 1, "two old ones are looked at with each newcomer"
    submit(strings, "late", app="p0")
    assert siblings(strings, "late") == []


def test_numbered_runs_of_one_program_are_siblings() -> None:
    strings = Strings()
    for number in range(3):
        submit(strings, f"j{number}", user="ada", app=f"sweep-{number}.py")
    assert siblings(strings, "j2") == ["j0", "j1"]
