"""Run a suite: every trial once, over several processes, each stored as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainmaster.evaluation.process_pool import spread
from trainmaster.evaluation.score import FailedTrial, SuiteResult
from trainmaster.evaluation.selection import runnable
from trainmaster.evaluation.suite import Suite, Trial
from trainmaster.evaluation.trial import run_trial
from trainmaster.evaluation.trial_cache import TrialCache, key_of


@dataclass(frozen=True, slots=True)
class SuiteProgress:
    """How many trials of a suite are done; `trial` is the one that has just ended, if any has."""

    done: int
    in_all: int
    trial: Trial | None = None
    error: str | None = None


class Interrupted(Exception):
    """Stopped by Ctrl-C; the message says how far it got."""

    def __init__(self, done: int, in_all: int) -> None:
        super().__init__(
            f"{done:,} of {in_all:,} trials are done and kept; run the same command again to continue."
        )
        self.done = done
        self.in_all = in_all


def run_suite(
    suite: Suite,
    cache: TrialCache,
    *,
    folder: Path | None = None,
    processes: int = 1,
    is_fresh: bool = False,
    on_progress: Callable[[SuiteProgress], object] = lambda progress: None,
) -> SuiteResult:
    """All scores of the suite, in its order; only trials that are not in the cache are run.

    Equal trials of several experiments are run once. On Ctrl-C it raises `Interrupted`.
    """
    ready, skipped = runnable(suite, folder)
    named = [(key_of(trial, folder), trial) for trial in ready.trials()]
    trials: dict[str, Trial] = {}
    for key, trial in named:
        trials.setdefault(key, trial)
    known = {} if is_fresh else {key: cache.find(key, trial) for key, trial in trials.items()}
    found = {key: scored for key, scored in known.items() if scored is not None}
    pending = [key for key in trials if key not in found]
    errors: dict[str, str] = {}
    on_progress(SuiteProgress(len(found), len(trials)))
    work = partial(run_trial, folder=folder)
    try:
        with closing(spread(work, [trials[key] for key in pending], processes)) as answers:
            for done in answers:
                key = pending[done.place]
                if done.result is not None:
                    cache.keep(key, done.result)
                    found[key] = done.result
                else:
                    errors[key] = done.error or "it said nothing"
                on_progress(
                    SuiteProgress(len(found) + len(errors), len(trials), trials[key], done.error)
                )
    except KeyboardInterrupt:
        raise Interrupted(len(found), len(trials)) from None
    return SuiteResult(
        suite=ready,
        scored=tuple(replace(found[key], trial=trial) for key, trial in named if key in found),
        skipped=skipped,
        failures=tuple(FailedTrial(trial, errors[key]) for key, trial in named if key in errors),
    )
