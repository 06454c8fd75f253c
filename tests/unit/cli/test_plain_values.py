"""Options of a Typer before 0.29, whose parameters have no descriptor of their type."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainmaster.cli.support.help import _choices
from trainmaster.cli.support.plain_values import take_plain_values


class Parameter(SimpleNamespace):
    """What is asked of a parameter, without the descriptor."""

    def process_value(self, _context: object, value: str) -> str:
        return f"converted {value}"


@pytest.mark.parametrize(("value", "taken"), [("8", "converted 8"), (None, None)])
def test_without_a_descriptor_texts_are_converted(value: str | None, taken: str | None) -> None:
    older = Parameter(multiple=False, nargs=1, required=False, callback=None)
    take_plain_values([older])
    assert older.process_value(None, value) == taken


def test_without_a_descriptor_the_choices_are_those_of_the_type() -> None:
    assert _choices(SimpleNamespace(type=SimpleNamespace(choices=["node", "gpu"]))) == "node|gpu"
    assert _choices(SimpleNamespace(type=SimpleNamespace())) == ""
