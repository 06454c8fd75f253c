"""Tables for spreadsheets: no cell runs anything."""

from __future__ import annotations

import pytest

from trainmaster.text.spreadsheet import csv_text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_cell_that_would_be_a_formula_is_text(text: str) -> None:
    line = csv_text(("user",), [{"user": text}]).split("\n", 1)[1]
    assert line.lstrip('"').startswith("'")


def test_numbers_and_other_text_are_as_they_are() -> None:
    rows = [{"user": "a=b, c", "cost": -1.5, "none": None}]
    assert csv_text(("user", "cost", "none"), rows) == 'user,cost,none\n"a=b, c",-1.5,\n'
