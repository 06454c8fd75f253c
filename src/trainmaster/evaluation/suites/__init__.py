"""Suites by name, loaded on demand: each is a table in its own module."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from trainmaster.evaluation.suite import Suite, SuiteError
from trainmaster.text.suggest import did_you_mean

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
        raise SuiteError(f"there is no suite {name!r}; {did_you_mean(name, SUITES)}")
    suite: Suite = import_module(SUITES[name]).SUITE
    return suite
