"""The policies of one report, each with its label, file name and colour slot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.model.result import Result


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy's result and how the report speaks of it everywhere."""

    result: Result
    slot: int
    """Position in the comparison, which settles the colour; the first is the baseline."""
    label: str
    slug: str
    """The label made fit for a file name."""


def name_runs(results: Sequence[Result]) -> tuple[PolicyRun, ...]:
    """Give every result a unique label and file name, also when a policy runs twice."""
    labels: set[str] = set()
    slugs: set[str] = set()
    return tuple(
        PolicyRun(
            result,
            slot,
            _unused(result.policy or "policy", labels, " ({})"),
            _unused(_file_name(result.policy), slugs, "-{}"),
        )
        for slot, result in enumerate(results)
    )


def _file_name(policy: str) -> str:
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", policy).strip("-.")
    return kept[:80] or "policy"


def _unused(wanted: str, taken: set[str], numbered: str) -> str:
    """`wanted`, or `wanted` with a number when it is taken; file systems may ignore case."""
    name, number = wanted, 1
    while name.lower() in taken:
        number += 1
        name = wanted + numbered.format(number)
    taken.add(name.lower())
    return name
