"""Colours of the report."""

from __future__ import annotations

import itertools

from trainmaster.catalog import POLICIES
from trainmaster.report.charts import empty_chart
from trainmaster.report.palette import policy_dash, policy_shade


def test_every_policy_of_ours_has_a_colour_of_its_own() -> None:
    shades = [policy_shade(slot) for slot in range(len(POLICIES))]
    assert len({shade.light for shade in shades}) == len(POLICIES)
    assert len({shade.dark for shade in shades}) == len(POLICIES)
    assert policy_shade(0).light == "#0072b2"


def test_neighbouring_policies_differ_in_more_than_hue() -> None:
    dashes = [policy_dash(slot) for slot in range(len(POLICIES))]
    assert all(one != other for one, other in itertools.pairwise(dashes))


def test_drawings_of_a_chart_are_the_same_bytes_each_time() -> None:
    chart = empty_chart("Nothing.")
    for kind in ("svg", "pdf"):
        assert chart.drawing(kind) == chart.drawing(kind) == empty_chart("Nothing.").drawing(kind)


def test_a_chart_says_its_title_once_however_often_it_is_written() -> None:
    chart = empty_chart("Nothing.")
    first = chart.written("One title", "png")
    assert chart.written("One title", "png") == first
    assert chart.written("Another", "png") != first


def test_a_name_that_looks_like_a_colour_is_left_as_it_is() -> None:
    chart = empty_chart("#0072b2")
    assert ">#0072b2</text>" in chart.svg()
    assert 'aria-label="#0072b2"' in chart.svg()
