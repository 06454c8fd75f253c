"""Select the part of a suite to run: by the user's choice, and by what is available here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainmaster.catalog import policy_names
from trainmaster.evaluation.score import Skipped
from trainmaster.evaluation.suite import (
    Contender,
    Experiment,
    Suite,
    SuiteError,
    TraceFile,
    Workload,
)
from trainmaster.evaluation.workloads import file_of
from trainmaster.policy_files import is_path


def narrowed(suite: Suite, only: Sequence[str], seeds: int | None) -> Suite:
    """The suite with only these experiments, and this number of seeds where anything is random."""
    known = [each.name for each in suite.experiments]
    for name in only:
        if name not in known:
            raise SuiteError(
                f"suite {suite.name} has no experiment {name!r}; it has {', '.join(known)}."
            )
    chosen = [each for each in suite.experiments if not only or each.name in only]
    if seeds is not None:
        chosen = [replace(each, workloads=_reseeded(each.workloads, seeds)) for each in chosen]
    return replace(suite, experiments=tuple(chosen))


def _reseeded(workloads: Iterable[Workload], count: int) -> tuple[Workload, ...]:
    """The first `count` seeds, continued after the last; a workload with one seed keeps only that."""
    found = []
    for each in workloads:
        after = range(max(each.seeds) + 1, max(each.seeds) + 1 + count)
        seeds = each.seeds if len(each.seeds) == 1 else (*each.seeds, *after)
        found.append(replace(each, seeds=seeds[:count]))
    return tuple(found)


def runnable(suite: Suite, folder: Path | None) -> tuple[Suite, tuple[Skipped, ...]]:
    """The suite without what cannot be run here: missing files, policies that are not installed."""
    kept, skipped = [], []
    policies = set(policy_names())
    for experiment in suite.experiments:
        missing = {
            each.name: _missing(each.source, folder)
            for each in experiment.workloads
            if isinstance(each.source, TraceFile) and _missing(each.source, folder)
        }
        unknown = {
            each.label: f"there is no policy {each.policy}"
            for each in experiment.contenders
            if each.policy not in policies and not is_path(each.policy)
        }
        left_out: dict[str, str] = {**missing, **unknown}
        skipped += [Skipped(experiment.name, what, why) for what, why in left_out.items()]
        rest = _without(experiment, left_out)
        if rest is not None:
            kept.append(rest)
    return replace(suite, experiments=tuple(kept)), tuple(skipped)


def _missing(source: TraceFile, folder: Path | None) -> str:
    """Why its file is missing; empty if it is there."""
    if folder is None and not Path(source.path).is_absolute():
        return f"{source.path} is not here; --data names the folder of the public traces"
    file = file_of(source, folder)
    return "" if file.exists() else f"{source.path} is not in {folder}"


def _without(experiment: Experiment, left_out: Mapping[str, str]) -> Experiment | None:
    """The experiment without these; None if nothing is left to compare."""
    workloads = tuple(each for each in experiment.workloads if each.name not in left_out)
    contenders = tuple(each for each in experiment.contenders if each.label not in left_out)
    if not workloads or not contenders:
        return None
    baseline = _baseline(experiment.baseline, contenders)
    return replace(experiment, workloads=workloads, contenders=contenders, baseline=baseline)


def _baseline(wanted: str, contenders: Sequence[Contender]) -> str:
    labels = [each.label for each in contenders]
    return wanted if wanted in labels else labels[0]
