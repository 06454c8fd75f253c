"""Text of users, as a page shows it: nothing in it changes how the rest is read."""

from __future__ import annotations

from trainmaster.text.control_characters import visible, visible_line
from trainmaster.text.formatting import shortened

MOST = 500
"""Characters of a name or a sentence."""


def shown(text: str, most: int = MOST) -> str:
    r"""One line: `\u202e` stands for a change of direction."""
    return shortened(visible_line(text), most)


def shown_lines(text: str, most: int = 100_000) -> str:
    """The same of a text of several lines."""
    return shortened(visible(text.expandtabs(4)), most)
