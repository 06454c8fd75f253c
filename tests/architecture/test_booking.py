"""Only a draft books: policies, mechanisms and placement read the occupancy and do not change it.

The occupancy goes by the names `space` and `occupancy` there, so that what is done to it can be found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src/trainmaster"
ROOMS = ("policies", "mechanisms", "placement")
NAMES = {"space", "_space", "occupancy", "_occupancy"}
BOOKING = {
    "book",
    "unbook",
    "reserve_gpus",
    "unreserve_gpus",
    "close",
    "open",
    "book_frozen",
    "undo",
}


def name_of(node: ast.expr | None) -> str:
    """The last name of `a`, `a.b` and `a.b.c`."""
    return getattr(node, "attr", None) or getattr(node, "id", "")


def changes(source: str) -> Iterator[str]:
    """Every place where a source changes the occupancy, or gives it another name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and name_of(node.value) in NAMES:
            is_written = not isinstance(node.ctx, ast.Load)
            if is_written or node.attr in BOOKING:
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for to, value in pairs:
                    is_occupancy = isinstance(value, ast.Name | ast.Attribute)
                    if is_occupancy and name_of(value) in NAMES and name_of(to) not in NAMES:
                        yield f"{node.lineno}: {ast.unparse(node)}"
        elif (
            isinstance(node, ast.arg)
            and name_of(node.annotation) == "Occupancy"
            and node.arg not in NAMES
        ):
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_only_a_draft_books() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{change}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for change in changes(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "draft.space.book(placement, record.demand)",
        "self._space.unbook(placement, demand)",
        "view.occupancy.close(node)",
        "take = space.reserve_gpus",
        "space.free_cpus = []",
        "ledger = draft.space",
        "draft, ledger = self.draft, self.draft.space",
        "def take(ledger: Occupancy) -> None: ...",
    ],
)
def test_a_change_is_found(line: str) -> None:
    assert list(changes(line))


@pytest.mark.parametrize(
    "line",
    [
        "draft.reserve_gpus(slices)",
        "bookings.book(want, stretches)",
        "space = draft.space",
        "free = space.free_gpus",
        "draft, space = self.draft, self.draft.space",
    ],
)
def test_reading_and_drafting_are_allowed(line: str) -> None:
    assert not list(changes(line))
