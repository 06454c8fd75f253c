"""A policy as it is chosen and stored: its name and options, and the content of files that they name."""

from __future__ import annotations

from dataclasses import dataclass

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """All that is needed to make the policy again, on any day and in any folder."""

    name: str
    """A name of the catalog, or the name of the file that `source` comes from."""
    options: Options = ()
    source: str = ""
    """The text of a user's own policy file."""
    files: tuple[tuple[str, str], ...] = ()
    """The text of files that options name, by the value of the option."""
