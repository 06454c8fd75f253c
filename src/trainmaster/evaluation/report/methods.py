"""The tables of the section on methods: contenders, conditions, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from trainmaster.evaluation.comparisons import Comparison
from trainmaster.evaluation.score import SuiteResult
from trainmaster.evaluation.suite import Contender
from trainmaster.report.rendering import Column, Table, quoted

MOST_OPEN = 12
"""Rows of a table that is shown open."""


def contenders_table(found: Sequence[Comparison]) -> Table:
    """The policy and settings of each label, over the whole suite."""
    rows = list(dict.fromkeys(_contender(each.contender) for c in found for each in c.contenders))
    titles = ("contender", "policy", "standing", "settings", "tuned over")
    return _words_table(titles, rows)


def _contender(contender: Contender) -> tuple[str, ...]:
    settings = " ".join(f"{key}={value}" for key, value in sorted(contender.settings.items()))
    tuned = f"{len(contender.grid)} settings" if contender.grid else ""
    role = contender.role.value
    return (contender.label, contender.policy, role, quoted(settings), tuned)


def conditions_table(found: Sequence[Comparison]) -> Table:
    """The definition of each set of conditions."""
    used: dict[tuple[str, ...], dict[str, None]] = {}
    for each in found:
        perf, conditions = each.conditions.perf, each.conditions
        words = perf if isinstance(perf, str) else json.dumps(perf, default=dict)
        line = (conditions.name, quoted(words), conditions.estimates)
        used.setdefault(line, {})[each.experiment.name] = None
    rows = [(*line, ", ".join(names)) for line, names in used.items()]
    return _words_table(("conditions", "perf", "estimates", "used in"), rows)


def _words_table(titles: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    columns = [Column(title, is_words=True) for title in titles]
    return Table(columns, rows, is_folded=len(rows) > MOST_OPEN)


def missing(result: SuiteResult, found: Sequence[Comparison]) -> dict[str, list[str]]:
    """What a reader might look for and not find, by heading."""
    skipped = (f"{each.experiment}, {each.what}: {each.why}" for each in result.skipped)
    return {
        "What was skipped": list(dict.fromkeys(skipped)),
        "What failed": [f"{each.trial}: {each.error}" for each in result.failures],
        "Remarks": list(_remarks(found)),
    }


def _remarks(found: Sequence[Comparison]) -> Iterator[str]:
    for comparison in found:
        for contender in comparison.contenders:
            said = [(s, words) for s, score in contender.scores.items() for words in score.remarks]
            if said:
                seed, words = said[0]
                more = f" ({len(said) - 1} more such)" if len(said) > 1 else ""
                where = f"{comparison.experiment.name}, {comparison.title}"
                yield f"{where}, {contender.label}, seed {seed}: {words}{more}"
