"""The policies as their files describe them: for `trainmaster policies` and for GET /policies."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Card:
    """A policy as its file describes it."""

    name: str
    summary: str
    text: str
    needs_oracle: bool
    options: tuple[Any, ...]

    def as_row(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "summary": self.summary,
            "needs_oracle": self.needs_oracle,
            "options": [
                {
                    "name": option.name,
                    "default": option.default,
                    "allowed": option.allowed,
                    "help": option.help_text,
                }
                for option in self.options
            ],
        }


def card_of(name: str) -> Card:
    """One policy, imported now; CatalogError where there is none of that name."""
    from trainmaster.catalog import policy_class
    from trainmaster.config.options import describe_options

    kind = policy_class(name)
    module = sys.modules[kind.__module__]
    text = (kind.__doc__ if vars(kind).get("__doc__") else module.__doc__) or ""
    summary, _, rest = text.strip().partition("\n")
    return Card(
        name=name,
        summary=summary.strip(),
        text=rest.strip(),
        needs_oracle=bool(kind.needs_oracle),
        options=describe_options(kind.options_type),
    )
