"""Running a suite: every trial once, over several processes, each kept as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainmaster.evaluation.process_pool import Done, spread
from trainmaster.evaluation.score import Campaign, Failure, Scored
from trainmaster.evaluation.selection import runnable
from trainmaster.evaluation.suite import Suite, Trial
from trainmaster.evaluation.trial import run_trial
from trainmaster.evaluation.trial_cache import Archive, key_of


@dataclass(frozen=True, slots=True)
class News:
    """How far a campaign has come; `trial` is the one that has just ended, if any has."""

    done: int
    in_all: int
    trial: Trial | None = None
    wall_s: float = 0.0
    error: str | None = None


OnNews = Callable[[News], None]


class Interrupted(Exception):
    """Stopped by Ctrl-C: one sentence on where it stands."""

    def __init__(self, done: int, in_all: int) -> None:
        super().__init__(
            f"{done:,} of {in_all:,} trials are done and kept; the same command goes on from there."
        )
        self.done = done
        self.in_all = in_all


def run_campaign(
    suite: Suite,
    archive: Archive,
    *,
    folder: Path | None = None,
    processes: int = 1,
    is_fresh: bool = False,
    on_news: OnNews | None = None,
) -> Campaign:
    """All scores of the suite, in its order; only trials that are not in the archive are run.

    Equal trials of several experiments are run once. On Ctrl-C it raises `Interrupted`.
    """
    ready, skipped = runnable(suite, folder)
    trials = list(ready.trials())
    keys = [key_of(trial, folder) for trial in trials]
    named = list(zip(keys, trials, strict=True))
    errand = _Errand(archive, folder, named)
    if not is_fresh:
        errand.recall()
    errand.run(processes, on_news or _hush)
    found, errors = errand.found, errand.errors
    return Campaign(
        suite=ready,
        scored=tuple(replace(found[key], trial=trial) for key, trial in named if key in found),
        skipped=skipped,
        failures=tuple(Failure(trial, errors[key]) for key, trial in named if key in errors),
    )


def _hush(news: News) -> None:
    """Nobody listens."""


class _Errand:
    """Different trials by key: those known already, those to be run, and what came of them."""

    def __init__(
        self, archive: Archive, folder: Path | None, named: Sequence[tuple[str, Trial]]
    ) -> None:
        self._archive = archive
        self._folder = folder
        self._trials: dict[str, Trial] = {}
        for key, trial in named:
            self._trials.setdefault(key, trial)
        self.found: dict[str, Scored] = {}
        self.errors: dict[str, str] = {}

    def recall(self) -> None:
        """What is kept from earlier runs."""
        for key, trial in self._trials.items():
            scored = self._archive.find(key, trial)
            if scored is not None:
                self.found[key] = scored

    def run(self, processes: int, on_news: OnNews) -> None:
        pending = [key for key in self._trials if key not in self.found]
        on_news(News(len(self.found), len(self._trials)))
        pieces = [self._trials[key] for key in pending]
        work = partial(run_trial, folder=self._folder)
        try:
            with closing(spread(work, pieces, processes)) as answers:
                for done in answers:
                    on_news(self._note(pending[done.place], done))
        except KeyboardInterrupt:
            raise Interrupted(len(self.found), len(self._trials)) from None

    def _note(self, key: str, done: Done[Scored]) -> News:
        if done.result is not None:
            self._archive.keep(key, done.result)
            self.found[key] = done.result
        else:
            self.errors[key] = done.error or "it said nothing"
        wall_s = 0.0 if done.result is None else done.result.wall_s
        so_far = len(self.found) + len(self.errors)
        return News(so_far, len(self._trials), self._trials[key], wall_s, done.error)
