"""`trainmaster.compare`: policies on a trace over several seeds, by rules that make it fair."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trainmaster.errors import BadInput
from trainmaster.evaluation.comparisons import Comparison, ContenderScores, comparisons, ratio
from trainmaster.evaluation.own_trace import TraceQuestion, experiment_of
from trainmaster.evaluation.runner import Interrupted, run_suite
from trainmaster.evaluation.score import SuiteResult
from trainmaster.evaluation.scores_json import to_json
from trainmaster.evaluation.suite import Suite
from trainmaster.evaluation.trial_cache import TrialCache
from trainmaster.frames.arguments import (
    PathLike,
    path_of,
    policies_of,
    settings_of,
    trace_file,
)
from trainmaster.frames.user_errors import as_value_errors

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("experiment", "workload", "conditions", "contender", "policy", "seed")


@dataclass(frozen=True)
class ComparisonResults:
    """The scores of each policy; the numbers are those of `trainmaster compare --json`."""

    result: SuiteResult
    notes: tuple[str, ...]
    """What the command writes beside its table."""

    @cached_property
    def entries(self) -> dict[str, Any]:
        """The JSON."""
        found: dict[str, Any] = json.loads(to_json(self.result))
        return found

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row for each policy and seed, with all its measures."""
        import pandas as pd

        return pd.DataFrame(
            [
                {**{name: each[name] for name in NAMES}, **_measures(each["score"])}
                for each in self.entries["trials"]
            ]
        )

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row for each policy: means over seeds, and the ratio to the baseline with its 95 % interval."""
        import pandas as pd

        rows = list(self._rows())
        return pd.DataFrame(rows).set_index("policy")

    def _rows(self) -> Iterator[dict[str, Any]]:
        kinds = {str(name): kind.kind for name, kind in self.trials.dtypes.items()}
        measures = [name for name, kind in kinds.items() if kind in "if" and name != "seed"]
        for comparison in comparisons(self.result):
            for each in comparison.contenders:
                own = self.trials[self.trials.contender == each.label]
                means = zip(measures, own[measures].mean(skipna=False), strict=True)
                yield {"policy": each.label, **_against(comparison, each), **dict(means)}

    def report(self, folder: PathLike) -> Path:
        """Write the report with its charts; its page."""
        from trainmaster.evaluation.report import write_report

        return write_report(self.result, Path(folder))

    def __repr__(self) -> str:
        return f"<ComparisonResults of {self.result.suite.title}>\n{self.summary}"

    def _repr_html_(self) -> str:
        return str(self.summary.to_html(escape=True))


def _measures(score: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in score.items() if not isinstance(value, list | dict)}


def _against(comparison: Comparison, contender: ContenderScores) -> dict[str, float | None]:
    """The ratio of what policies are ranked by, and the ends of its interval; null for the baseline."""
    baseline = comparison.baseline
    found = (
        None
        if baseline is None or contender is baseline
        else ratio(contender, baseline, comparison.subject.measure)
    )
    return {
        "ratio": None if found is None else found.value,
        "ratio_low": None if found is None else found.low,
        "ratio_high": None if found is None else found.high,
    }


def compare(
    trace: PathLike | pd.DataFrame,
    cluster: PathLike,
    policy: PathLike | Sequence[PathLike] = ("las", "tiresias-l", "trainmaster"),
    *,
    options: Mapping[str, Any] | None = None,
    format: str | None = None,
    queues: PathLike | None = None,
    perf: PathLike = "default",
    estimates: str = "none",
    seeds: int | None = None,
    processes: int = 0,
) -> ComparisonResults:
    """Compare policies as `trainmaster compare TRACE` does; the first is the baseline.

    `processes` more processes share the work; a script that asks for some needs `if __name__ == "__main__":`
    around its own code. Bad input is a ValueError.
    """
    notes: list[str] = []

    def remark(_: str, lines: Iterable[str]) -> None:
        notes.extend(lines)

    with as_value_errors(), trace_file(trace) as path, TemporaryDirectory() as kept:
        question = TraceQuestion(
            trace=path,
            cluster=str(cluster),
            policy=policies_of(policy),
            format=format,
            set=tuple(settings_of(options)),
            queues=path_of(queues),
            perf=str(perf),
            estimates=estimates,
            seeds=seeds,
        )
        experiment = experiment_of(question, remark)
        suite = Suite("own", experiment.title, (experiment,))
        try:
            result = run_suite(suite, TrialCache(Path(kept)), processes=processes)
        except Interrupted:
            raise KeyboardInterrupt from None
        if result.failures:
            first = result.failures[0]
            raise RuntimeError(f"{first.trial}: {first.error}")
        if not result.suite.experiments:
            reasons = "; ".join(dict.fromkeys(each.why for each in result.skipped))
            raise BadInput(f"nothing of it can be run here: {reasons}.")
    return ComparisonResults(result, tuple(notes))
