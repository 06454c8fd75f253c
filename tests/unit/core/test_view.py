"""What is found in the view between two steps is looked for once, and again after the next step."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.view import View


def test_what_is_found_between_two_steps_is_looked_for_once() -> None:
    strings, asked = Strings("1x4"), []

    def count(view: View, at_least: int) -> int:
        asked.append(at_least)
        return sum(each.demand.nominal.count >= at_least for each in view.jobs.values())

    view = strings.submit("small", 1).controller.view
    assert [view.between_steps(count, 1), view.between_steps(count, 1)] == [1, 1]
    assert view.between_steps(count, 2) == 0
    assert asked == [1, 2]
    strings.submit("large", 2)
    assert [view.between_steps(count, 1), view.between_steps(count, 2)] == [2, 1]
