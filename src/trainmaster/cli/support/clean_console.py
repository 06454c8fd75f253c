"""Rich's console, with control characters in what it is given shown as codes; its own styles work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from trainmaster.text.control_characters import visible


class CleanConsole(Console):
    """Cleans texts before they are laid out, and what was made as a `Text` when it is written."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(visible(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_clean = segment.control is not None or segment.text.isprintable()
            yield segment if is_clean else segment._replace(text=visible(segment.text))
