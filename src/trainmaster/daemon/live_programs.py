"""The jobs that have not ended, by program: those with the same arguments, and those with any."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable

from trainmaster.daemon.known_profiles import key_of
from trainmaster.daemon.live_job import LiveJob
from trainmaster.model.program_key import ProgramKey, without_arguments

Index = dict[ProgramKey, dict[str, LiveJob]]
"""By program, then by id: those that came first are first."""


class LivePrograms:
    """An index of the live jobs.

    Safe to call from several threads: submissions look beside the event loop.
    """

    def __init__(self) -> None:
        self._same: Index = {}
        self._any: Index = {}
        self._lock = threading.Lock()

    def register(self, new_jobs: Iterable[LiveJob]) -> None:
        """New jobs, or those of before a restart; the store finds them by their program from now on."""
        with self._lock:
            for live in new_jobs:
                live.program = program_id(key_of(live))
                for index, key in self._places(live):
                    index.setdefault(key, {})[live.id] = live

    def forget(self, ended: LiveJob) -> None:
        with self._lock:
            for index, key in self._places(ended):
                there = index.get(key, {})
                there.pop(ended.id, None)
                if not there:
                    index.pop(key, None)

    def with_arguments(self, key: ProgramKey) -> list[LiveJob]:
        """Jobs of the program that have these arguments."""
        with self._lock:
            return [*self._same.get(key, {}).values()]

    def of_program(self, key: ProgramKey) -> list[LiveJob]:
        """Jobs of the program, whatever their arguments."""
        with self._lock:
            return [*self._any.get(without_arguments(key), {}).values()]

    def _places(self, live: LiveJob) -> tuple[tuple[Index, ProgramKey], ...]:
        key = key_of(live)
        return (self._same, key), (self._any, without_arguments(key))


def program_id(key: ProgramKey) -> str:
    """The same for all jobs of a program, whatever their arguments."""
    text = json.dumps(without_arguments(key))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
