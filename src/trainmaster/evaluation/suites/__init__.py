"""Suites by name, loaded when asked for: each is a table in a module of its own."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module

from trainmaster.evaluation.suite import Suite, SuiteError

SUITES: Mapping[str, str] = {
    "small": "trainmaster.evaluation.suites.small",
    "published": "trainmaster.evaluation.suites.published",
    "philly-82k": "trainmaster.evaluation.suites.philly_82k",
}
"""Each module has a constant `SUITE`."""


def suite_names() -> tuple[str, ...]:
    return tuple(SUITES)


def suite_of(name: str) -> Suite:
    """The suite of that name, its module imported now."""
    if name not in SUITES:
        near = get_close_matches(name, SUITES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SUITES)}."
        raise SuiteError(f"there is no suite {name!r}; {hint}")
    suite: Suite = import_module(SUITES[name]).SUITE
    return suite
