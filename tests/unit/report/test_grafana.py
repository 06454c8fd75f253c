"""The dashboard asks only for metrics that the manager has, and its panels do not overlap."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

from trainmaster.report.grafana import CHARTS, COLUMNS, STATS, dashboard

METRICS = (Path(__file__).parents[3] / "docs/api.md").read_text()


def test_every_metric_that_it_asks_for_is_there() -> None:
    asked = {
        name.removesuffix("_bucket")
        for panel in (*STATS, *CHARTS)
        for query, _ in panel.queries
        for name in re.findall(r"trainmaster_\w+", query)
    }
    documented = set(re.findall(r"`(trainmaster_\w+)`", METRICS))
    assert len(asked) > 20
    assert asked <= documented


def test_panels_fill_rows_without_overlapping() -> None:
    panels = dashboard()["panels"]
    assert isinstance(panels, list)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert len({panel["id"] for panel in panels}) == len(panels)
