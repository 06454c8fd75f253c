"""What past runs and past forecasts say about the run time of a program.

A program is a user, a folder and a command. Run times are kept by program and number of GPUs, with its
arguments and without them; of past forecasts, the true over the predicted remaining time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from trainmaster.estimators.run_time.forecast import (
    Kind,
    Prediction,
    from_runs,
    run_time_forecast,
)
from trainmaster.estimators.run_time.past_forecasts import PastForecasts
from trainmaster.model.job import Source
from trainmaster.model.program_key import ProgramKey, without_arguments
from trainmaster.model.run_time import RunTimeForecast

MOST_RUNS = 20
"""Run times that are remembered of each program: the newest."""
MOST_PROGRAMS = 4_096
"""Programs that are remembered: those of which a run ended last."""
Runs = dict[tuple[ProgramKey, int], deque[int]]
"""Run times by program and number of GPUs."""


class PastRuns:
    """Run times of programs, and how good forecasts were."""

    def __init__(self) -> None:
        self._forecasts: dict[Kind, PastForecasts] = {}
        self._runs: Runs = {}
        """Of the same user, folder, program and arguments."""
        self._others: Runs = {}
        """Of the same program, whatever its arguments."""

    def learn(
        self,
        key: ProgramKey,
        gpus: int,
        run_ms: int,
        lost_ms: int = 0,
        forecasts: Sequence[RunTimeForecast] = (),
    ) -> None:
        """A run has succeeded: how long it ran, what of that was lost, and what had been forecast."""
        of_kind: dict[Kind, list[RunTimeForecast]] = {}
        for each in forecasts:
            of_kind.setdefault((each.basis, each.stage), []).append(each)
        for kind, alike in of_kind.items():
            self._forecasts.setdefault(kind, PastForecasts()).learn(alike, run_ms)
        useful_ms = max(0, run_ms - lost_ms)
        for runs, which in ((self._runs, key), (self._others, without_arguments(key))):
            known_runs = runs.pop((which, gpus), None) or deque(maxlen=MOST_RUNS)
            known_runs.append(useful_ms)
            runs[which, gpus] = known_runs
            if len(runs) > MOST_PROGRAMS:
                del runs[next(iter(runs))]

    def predictions(
        self, key: ProgramKey, gpus: int, useful_ms: int = 0
    ) -> Iterator[tuple[Source, Prediction]]:
        """How long a run that has run so long still takes, by runs with its arguments and with any."""
        runs = self._runs.get((key, gpus), ())
        others = self._others.get((without_arguments(key), gpus), ())
        for basis, totals_ms in ((Source.RUNS, runs), (Source.PROGRAM, others)):
            if basis is Source.PROGRAM and runs == others:
                continue
            said = from_runs(basis, totals_ms, useful_ms)
            if said is not None:
                yield basis, said

    def forecast(
        self, predictions: Mapping[Source, Prediction], ran_ms: int
    ) -> RunTimeForecast | None:
        """The prediction with the narrowest interval, as good as such predictions were; None without any."""
        return run_time_forecast(predictions, ran_ms, self._forecasts)
