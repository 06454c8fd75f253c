"""What an experiment varies, read from the names and settings that it gives its steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.comparisons import Comparison, Entrant
from trainmaster.evaluation.report.line_plot import Steps

NUMBERED = re.compile(r"^(?P<before>.*?)(?P<number>\d+(?:\.\d+)?)(?P<after>\D*)$")
Name = Callable[[Comparison], str]
FEWEST = 3
"""Two steps are a comparison, three make a sweep."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Comparisons that differ in one number."""

    of: str
    """What stays the same: the conditions, or the workload."""
    steps: Steps
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class SettingSweep:
    """Contenders of one comparison that differ in one option of their policy."""

    comparison: Comparison
    steps: Steps
    entrants: tuple[Entrant, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nobody else takes part."""
        return len(self.entrants) == len(self.comparison.entrants)


def sweeps(found: Sequence[Comparison]) -> tuple[Sweep, ...]:
    """The sweeps of one experiment: over its conditions, or over its workloads."""
    over_conditions = _sweeps(found, _workload_title, _conditions_name)
    return over_conditions or _sweeps(found, _conditions_name, _workload_name)


def _workload_title(comparison: Comparison) -> str:
    return comparison.workload.title or comparison.workload.name


def _workload_name(comparison: Comparison) -> str:
    return comparison.workload.name


def _conditions_name(comparison: Comparison) -> str:
    return comparison.conditions.name


def _sweeps(found: Sequence[Comparison], fixed: Name, varied: Name) -> tuple[Sweep, ...]:
    """A sweep over what is varied for each that is fixed, or none when one of them is no sweep."""
    groups: dict[str, list[Comparison]] = {}
    for each in found:
        groups.setdefault(fixed(each), []).append(each)
    made = []
    for of, group in groups.items():
        steps = steps_of([varied(each) for each in group])
        if steps is None or steps.values is None:
            return ()
        values = steps.values
        order = sorted(range(len(group)), key=values.__getitem__)
        ordered = Steps(
            steps.title,
            tuple(values[place] for place in order),
            tuple(steps.labels[place] for place in order),
        )
        made.append(Sweep(of, ordered, tuple(group[place] for place in order)))
    return tuple(made)


def steps_of(names: Sequence[str]) -> Steps | None:
    """Names that differ in one number only: `load 0.5`, `load 0.7`; `0 s`, `10 s`, `60 s`."""
    matches = [NUMBERED.match(name) for name in names]
    if len(names) < FEWEST or any(match is None for match in matches):
        return None
    found = [match for match in matches if match is not None]
    around = {(match["before"].strip(" =:,"), match["after"].strip()) for match in found}
    values = tuple(float(match["number"]) for match in found)
    if len(around) != 1 or len(set(values)) < len(values):
        return None
    before, after = next(iter(around))
    title = f"{before} ({after})" if before and after else before or after
    return Steps(title, values, tuple(match["number"] for match in found))


def setting_sweep(comparison: Comparison) -> SettingSweep | None:
    """The contenders of one policy that differ in one number among their settings."""
    policies = dict.fromkeys(each.contender.policy for each in comparison.entrants)
    for policy in policies:
        same = [each for each in comparison.entrants if each.contender.policy == policy]
        found = _by_setting(comparison, same)
        if found is not None:
            return found
    return None


def _by_setting(comparison: Comparison, same: Sequence[Entrant]) -> SettingSweep | None:
    settings = [each.contender.settings for each in same]
    keys = {key for each in settings for key in each}
    varied = [key for key in sorted(keys) if len({each.get(key) for each in settings}) > 1]
    if len(same) < FEWEST or len(varied) != 1:
        return None
    texts = [each.get(varied[0], "") for each in settings]
    if not all(re.fullmatch(r"\d+(?:\.\d+)?", text) for text in texts):
        return None
    pairs = sorted(zip(texts, same, strict=True), key=lambda pair: float(pair[0]))
    values = tuple(float(text) for text, _ in pairs)
    steps = Steps(varied[0], values, tuple(text for text, _ in pairs))
    return SettingSweep(comparison, steps, tuple(each for _, each in pairs))
