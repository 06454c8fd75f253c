"""Colours of the report."""

from __future__ import annotations

from trainmaster.catalog import POLICIES
from trainmaster.report.charts import empty_chart
from trainmaster.report.palette import policy_shade


def test_every_policy_of_ours_has_a_colour_of_its_own() -> None:
    shades = [policy_shade(slot) for slot in range(len(POLICIES))]
    assert len({shade.light for shade in shades}) == len(POLICIES)
    assert len({shade.dark for shade in shades}) == len(POLICIES)
    assert policy_shade(0).light == "#0072b2"


def test_a_chart_says_its_title_once_however_often_it_is_written() -> None:
    chart = empty_chart("Nothing.")
    first = chart.written("One title", "png")
    assert chart.written("One title", "png") == first
    assert chart.written("Another", "png") != first


def test_a_name_that_looks_like_a_colour_is_left_as_it_is() -> None:
    chart = empty_chart("#0072b2")
    assert ">#0072b2</text>" in chart.svg()
    assert 'aria-label="#0072b2"' in chart.svg()
