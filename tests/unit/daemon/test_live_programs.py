"""Live jobs are found by their program, with its arguments and with any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.builders import a_job
from trainmaster.daemon.known_profiles import key_of
from trainmaster.daemon.live_programs import LivePrograms


def a_live_job(id: str, command: str) -> Any:
    recipe = SimpleNamespace(command=tuple(command.split()))
    return SimpleNamespace(id=id, job=a_job(id, 1), spec={}, recipe=recipe)


def test_jobs_of_a_program_are_found_until_they_end() -> None:
    first = a_live_job("1", "python train.py -b 8")
    larger = a_live_job("2", "python train.py -b 16")
    same = a_live_job("3", "python train.py -b 8")
    stranger = a_live_job("4", "python test.py -b 8")
    live_programs, key = LivePrograms(), key_of(first)
    live_programs.register([first, larger, same, stranger])
    assert live_programs.with_arguments(key) == [first, same]
    assert live_programs.of_program(key) == [first, larger, same]
    live_programs.forget(first)
    assert live_programs.with_arguments(key) == [same]
    assert live_programs.of_program(key) == [larger, same]
    live_programs.forget(first)  # it is forgotten already
    live_programs.forget(same)
    assert live_programs.with_arguments(key) == []
    assert live_programs.of_program(key) == [larger]
