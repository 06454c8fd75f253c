"""`trainmaster compare --list`: list the suites, or the experiments of one."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainmaster.cli.support.compare_tables import table
from trainmaster.cli.support.console import screen, write_json_text
from trainmaster.evaluation.scores_json import listed
from trainmaster.evaluation.selection import narrowed
from trainmaster.evaluation.suite import Experiment, Suite
from trainmaster.evaluation.suites import suite_names, suite_of
from trainmaster.text.formatting import plural

if TYPE_CHECKING:
    from rich.console import Console


def show_suites(
    named: str | None, only: Sequence[str], seeds: int | None, *, as_json: bool
) -> None:
    """Show every suite with its experiments, or one suite in detail."""
    names = suite_names() if named is None else [named]
    suites = [narrowed(suite_of(name), only, seeds) for name in names]
    if as_json:
        text = json_text.dumps({"suites": [listed(each) for each in suites]}, indent=1)
        write_json_text(f"{text}\n")
        return
    console = screen()
    for suite in suites:
        trials = sum(1 for _ in suite.trials())
        title = f"{suite.name}: {suite.title} ({plural(trials, 'trial')})"
        console.print(title, style="bold", markup=False)
        if named is None:
            _summarise(suite, console)
        else:
            _describe(suite, console)
    if named is None:
        console.print("--list --suite NAME says what one of them compares.", markup=False)


def _summarise(suite: Suite, console: Console) -> None:
    """A row for each experiment; names whole, however narrow the screen."""
    rows = (
        (each.name, each.track, f"{sum(1 for _ in each.trials()):,}", each.question)
        for each in suite.experiments
    )
    titles = ("experiment", "track", "trials", "question")
    console.print(table(titles, rows, ("experiment", "track", "question"), folded=["question"]))


def _describe(suite: Suite, console: Console) -> None:
    """A paragraph for each experiment."""
    from rich.padding import Padding
    from rich.text import Text

    for each in suite.experiments:
        console.print()
        console.print(each.name, style="bold", markup=False)
        for line in _about(each):
            console.print(Padding(Text(line), (0, 0, 0, 2)))


def _about(experiment: Experiment) -> Iterator[str]:
    yield experiment.question
    yield f"track {experiment.track}, {plural(sum(1 for _ in experiment.trials()), 'trial')}"
    parts = {
        "workloads": [each.name for each in experiment.workloads],
        "conditions": [each.name for each in experiment.conditions],
        "contenders": [each.label for each in experiment.contenders],
    }
    for title, names in parts.items():
        yield f"{title}: {', '.join(names)}"
