"""What `node drain` says of the jobs that are still there."""

from __future__ import annotations

import pytest

from trainmaster.cli.node import still_there

ROWS = [
    (([], [], []), ""),
    ((["1"], ["1"], []), "1 job there now: it is being moved or ended."),
    ((["1", "2"], ["1", "2"], []), "2 jobs there now: they are being moved or ended."),
    ((["1"], [], []), "1 job there now: moved where there is room, or until the end."),
    (
        (["1", "2"], ["2"], []),
        "1 job there now: it is being moved or ended."
        " 1 job there now: moved where there is room, or until the end.",
    ),
    (
        ([], [], ["3"]),
        "1 job suspended in memory there: a program that cannot save waits for `undrain`.",
    ),
]


@pytest.mark.parametrize(("there", "said"), ROWS)
def test_a_node_is_free_once_no_process_is_left(
    there: tuple[list[str], list[str], list[str]], said: str
) -> None:
    on, leaving, frozen = there
    node = {"devices": [{"jobs": on}], "leaving": leaving, "frozen": frozen}
    assert " ".join(still_there(node)) == said
