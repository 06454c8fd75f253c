"""How good forecasts of run time are: public traces, replayed through the manager's own forecaster.

Every job of a trace runs as long as it did there. A forecast is made as it starts, after a minute, and each
time that it has run twice as long, from the jobs that had ended by then. The first fifth of each trace is
only learned from. Nothing was fitted to these traces.

    python -m benchmarks.run_times [--data ../shared/data] [--out docs/measurements/run-times.md]
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean, median

from benchmarks.pages import page
from trainmaster.estimators.convergence import informative_samples, total_work
from trainmaster.estimators.run_time.forecast import is_due, prediction
from trainmaster.estimators.run_time.past_runs import MOST_RUNS, PastRuns
from trainmaster.model.job import Source
from trainmaster.model.program_key import ProgramKey
from trainmaster.model.progress import Sample
from trainmaster.model.run_time import RunTimeForecast, Stage
from trainmaster.model.units import MINUTE, NOMINAL, SECOND
from trainmaster.traces.formats import load

LEARNED_ONLY = 5
"""The first one in so many jobs is not judged."""
EPOCH_MS = MINUTE
"""What an epoch of the recorded trainings is taken to last: they state none."""
LOSS_OF: Mapping[str, Callable[[float], float]] = {
    "cifar10": lambda accuracy: 1 - accuracy,
    "deepspeech2": lambda word_errors: word_errors,
    "imagenet": lambda accuracy: 1 - accuracy,
    "ncf": lambda hit_rate: 1 - hit_rate,
    "yolov3": lambda precision: 100 - precision,
}
"""What falls as training goes on, from the metric that was recorded after each epoch."""


@dataclass(frozen=True)
class Run:
    """A job of a trace."""

    start_ms: int
    run_ms: int
    key: ProgramKey
    gpus: int
    group: str
    """The newest runs of this make the baseline."""
    losses: tuple[float, ...] = ()
    """After each epoch."""


@dataclass(frozen=True)
class Judged:
    """A forecast, and what came true."""

    forecast: RunTimeForecast
    left_ms: int
    baseline_ms: int

    @property
    def is_within(self) -> bool:
        return self.forecast.low_ms <= self.left_ms <= self.forecast.high_ms


@dataclass
class Replay:
    """The jobs of a trace, one fact after another."""

    past: PastRuns = field(default_factory=PastRuns)
    newest: dict[str, deque[int]] = field(default_factory=dict)
    """Run times of the newest jobs of each group."""
    missed: int = 0
    """Forecasts that were due when nothing was known."""

    def judged(self, runs: Sequence[Run]) -> Iterator[Judged]:
        """Every forecast of the jobs after the first fifth, in the order in which they ended."""
        heap = [(run.start_ms, 1, at, 0) for at, run in enumerate(runs)]
        heap.sort()
        made: dict[int, list[tuple[RunTimeForecast, int]]] = {}
        while heap:
            _, is_forecast, at, ran_ms = heappop(heap)
            run = runs[at]
            if not is_forecast:
                forecasts = made.pop(at, [])
                self._learn(run, [forecast for forecast, _ in forecasts])
                for forecast, baseline in forecasts if at >= len(runs) // LEARNED_ONLY else ():
                    yield Judged(forecast, max(SECOND, run.run_ms - forecast.ran_ms), baseline)
                continue
            assert is_due(ran_ms, ran_ms // 2 or None)
            found = self._forecast(run, ran_ms)
            if found is None:
                self.missed += at >= len(runs) // LEARNED_ONLY
            else:
                made.setdefault(at, []).append((found, self._baseline(run, ran_ms)))
            next_ms = max(MINUTE, 2 * ran_ms)
            is_last = next_ms >= run.run_ms
            then = run.run_ms if is_last else next_ms
            heappush(heap, (run.start_ms + then, int(not is_last), at, then))

    def _forecast(self, run: Run, ran_ms: int) -> RunTimeForecast | None:
        predictions = dict(self.past.predictions(run.key, run.gpus, ran_ms))
        if run.losses:
            total = total_work(informative_samples(list(samples_of(run, ran_ms))))
            predictions = {}
            if total is not None:
                left_ms = round(total) // NOMINAL - ran_ms
                predictions[Source.LOSS] = prediction(Source.LOSS, left_ms, ran_ms)
        return self.past.forecast(predictions, ran_ms)

    def _baseline(self, run: Run, ran_ms: int) -> int:
        """The mean of the group's newest run times, less what it has run; beyond it, as long again."""
        known = self.newest.get(run.group)
        left = round(fmean(known)) - ran_ms if known else 0
        return left if left > 0 else max(ran_ms, SECOND)

    def _learn(self, run: Run, forecasts: list[RunTimeForecast]) -> None:
        self.past.learn(run.key, run.gpus, run.run_ms, forecasts=forecasts)
        self.newest.setdefault(run.group, deque(maxlen=MOST_RUNS)).append(run.run_ms)


def samples_of(run: Run, ran_ms: int) -> Iterator[Sample]:
    """Its reports by then, one for each epoch."""
    for epoch, loss in enumerate(run.losses[: ran_ms // EPOCH_MS], 1):
        work = epoch * EPOCH_MS * NOMINAL
        yield Sample(epoch, round(loss * NOMINAL), 1, NOMINAL, work=work)


# ------------------------------------------------------------------------------------- traces


def philly(data: Path) -> list[Run]:
    """The trace names neither users nor programs: the virtual cluster stands in for both."""
    return [
        Run(
            each.job.submit_ms,
            each.service_ms,
            ProgramKey(each.job.queue, "", ("job",)),
            each.job.demand.nominal.count,
            each.job.queue,
        )
        for each in load(data / "philly/philly-82k.csv").jobs
        if each.service_ms > 0
    ]


def alibaba(data: Path, phase: str = "Succeeded") -> list[Run]:
    """Pods with the same request of GPUs are runs of one program, its arguments the rest of the request."""
    with (data / "alibaba/openb_pod_list_default.csv").open() as lines:
        rows = [
            row
            for row in csv.DictReader(lines)
            if row["scheduled_time"] and row["pod_phase"] == phase and row["num_gpu"] != "0"
        ]
    runs = [
        Run(
            int(row["scheduled_time"]) * SECOND,
            (int(row["deletion_time"]) - int(row["scheduled_time"])) * SECOND,
            ProgramKey(
                row["qos"],
                "",
                (row["gpu_milli"],),
                (row["cpu_milli"], row["memory_mib"], row["gpu_spec"]),
            ),
            int(row["num_gpu"]),
            row["qos"],
        )
        for row in rows
    ]
    return sorted((run for run in runs if run.run_ms > 0), key=lambda run: run.start_ms)


def alibaba_unseen(data: Path) -> list[Run]:
    """Pods that failed, or were deleted while they ran: nothing was chosen by looking at them."""
    found = [*alibaba(data, "Failed"), *alibaba(data, "Running")]
    return sorted(found, key=lambda run: run.start_ms)


def trainings(data: Path) -> list[Run]:
    """AdaptDL's recorded trainings, one after another; each ends after the epochs that it was given."""
    found: list[Run] = []
    for model in sorted(LOSS_OF):
        for path in sorted((data / "adaptdl" / model).glob("validation-*.csv")):
            with path.open() as lines:
                losses = [LOSS_OF[model](float(row["metric"])) for row in csv.DictReader(lines)]
            run_ms, start_ms = len(losses) * EPOCH_MS, len(found) * 1000 * MINUTE
            key = ProgramKey("", "", (model,))
            found.append(Run(start_ms, run_ms, key, 1, model, tuple(losses)))
    return found


READERS: Mapping[str, Callable[[Path], list[Run]]] = {
    "Philly": philly,
    "Alibaba": alibaba,
    "Alibaba, held out": alibaba_unseen,
    "AdaptDL": trainings,
}

# ------------------------------------------------------------------------------------ judging


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    trace: str
    source: str
    when: str
    forecasts: int
    within: float
    factor: float
    error: float
    base_factor: float
    base_error: float
    width: float
    """Upper over lower bound, the median."""


def rows_of(trace: str, judged: Sequence[Judged]) -> Iterator[Row]:
    for source in Source:
        for stage in Stage:
            found = [
                each
                for each in judged
                if each.forecast.basis is source
                and each.forecast.is_calibrated
                and each.forecast.stage is stage
            ]
            if found:
                yield row_of(trace, source.value, stage.value, found)


def row_of(trace: str, source: str, when: str, found: Sequence[Judged]) -> Row:
    expected = [(max(SECOND, each.forecast.expected_ms), each.left_ms) for each in found]
    baseline = [(each.baseline_ms, each.left_ms) for each in found]
    return Row(
        trace,
        source,
        when,
        len(found),
        100 * fmean(each.is_within for each in found),
        factor_off(expected),
        error(expected),
        factor_off(baseline),
        error(baseline),
        median(each.forecast.high_ms / max(SECOND, each.forecast.low_ms) for each in found),
    )


def factor_off(pairs: Sequence[tuple[int, int]]) -> float:
    """The median factor between expected and true."""
    return math.exp(median(abs(math.log(said / true)) for said, true in pairs))


def error(pairs: Sequence[tuple[int, int]]) -> float:
    """The median of |true - expected| / true, in percent."""
    return 100 * median(abs(true - said) / true for said, true in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/measurements/run-times.md"))
    options = parser.parse_args()
    rows: list[Row] = []
    counts: dict[str, dict[str, int]] = {}
    for name, read in READERS.items():
        runs, replay = read(options.data), Replay()
        judged = list(replay.judged(runs))
        counts[name] = {"jobs": len(runs), "missed": replay.missed, "judged": len(judged)}
        rows += rows_of(name, judged)
        print(name, counts[name], flush=True)
    text = page("run_times_page.md", rows=rows, counts=counts).rstrip() + "\n"
    options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
