"""The grid of GPUs in the terminal: only the lines that are seen are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from trainmaster.cli.top_screen.gpu_grid import ASIDE, FREE, GridLine, GridPart, grid_lines
from trainmaster.cli.top_screen.job_letters import LETTERS, JobLetters
from trainmaster.client.manager_api import Json
from trainmaster.report.palette import JOBS

PLAIN, FAINT, ALARM = Style(), Style(dim=True), Style(bold=True, reverse=True)
CHOSEN = Style(reverse=True, bold=True)


class GpuGrid(ScrollView):
    """One sign for each GPU; those of the chosen job are shown in reverse."""

    can_focus = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cluster: Sequence[Json] = ()
        self._letters = JobLetters()
        self._lines: list[GridLine] = []
        self._chosen: frozenset[str] = frozenset()

    def show(self, nodes: Sequence[Json], letters: JobLetters) -> None:
        self._cluster, self._letters = nodes, letters
        self._fit()

    def choose(self, jobs: frozenset[str]) -> None:
        """These jobs are marked."""
        if jobs != self._chosen:
            self._chosen = jobs
            self.refresh()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """Lines for the present width, and a third of the screen's height at most."""
        width = max(1, self.size.width)
        self._lines = grid_lines(self._cluster, self._letters, width)
        self.virtual_size = Size(width, len(self._lines))
        self.styles.height = max(1, min(len(self._lines), self.app.size.height // 3))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at = y + self.scroll_offset.y
        line = self._lines[at] if at < len(self._lines) else ()
        own = self.rich_style
        return Strip([Segment(part.text, own + self._style(part)) for part in line])

    def _style(self, part: GridPart) -> Style:
        if not part.is_gpu:
            return PLAIN
        if part.text == ASIDE:
            return ALARM
        if not self._chosen.isdisjoint(part.jobs):
            return CHOSEN
        if part.text == FREE:
            return FAINT
        if part.text in LETTERS:
            return Style(color=JOBS[LETTERS.index(part.text) % len(JOBS)])
        return PLAIN
