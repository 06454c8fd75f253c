"""The letter that stands for a job in the grid of GPUs and in the list of jobs."""

from __future__ import annotations

import string
from collections.abc import Iterable

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits


class JobLetters:
    """A job keeps its letter as long as it holds GPUs; with more jobs than letters, several share one."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}
        self._given = 0

    def give(self, jobs: Iterable[str]) -> None:
        """These jobs hold GPUs now, and no others."""
        now = dict.fromkeys(jobs)
        self._letters = {job: each for job, each in self._letters.items() if job in now}
        taken = set(self._letters.values())
        for job in now:
            if job not in self._letters:
                self._letters[job] = letter = self._next(taken)
                taken.add(letter)

    def _next(self, taken: set[str]) -> str:
        """The next letter in turn that no job has, so that a letter is not soon given to another job."""
        for _ in LETTERS:
            letter = LETTERS[self._given % len(LETTERS)]
            self._given += 1
            if letter not in taken:
                return letter
        self._given += 1
        return LETTERS[self._given % len(LETTERS)]

    def of(self, job: str) -> str:
        """Its letter; a space where it holds no GPU."""
        return self._letters.get(job, " ")
