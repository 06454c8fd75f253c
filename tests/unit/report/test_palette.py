"""Colours of the report."""

from __future__ import annotations

from trainmaster.catalog import POLICIES
from trainmaster.report.palette import policy_shade


def test_every_policy_of_ours_has_a_colour_of_its_own() -> None:
    shades = [policy_shade(slot) for slot in range(len(POLICIES))]
    assert len({shade.light for shade in shades}) == len(POLICIES)
    assert len({shade.dark for shade in shades}) == len(POLICIES)
    assert policy_shade(0).light == "#0072b2"
