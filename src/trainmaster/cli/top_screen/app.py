"""`trainmaster top` as a program of the terminal (Textual)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from trainmaster.cli.top_screen.cancel_question import CancelQuestion
from trainmaster.cli.top_screen.cluster_lists import (
    JOB_HEADINGS,
    QUEUE_HEADINGS,
    headline,
    job_cells,
    job_sentence,
    queue_cells,
    troubles,
)
from trainmaster.cli.top_screen.cluster_view import Choice, ClusterView, Line
from trainmaster.cli.top_screen.cluster_watch import ClusterWatch
from trainmaster.cli.top_screen.gpu_grid import LEGEND, jobs_on
from trainmaster.cli.top_screen.grid_widget import GpuGrid
from trainmaster.cli.top_screen.job_letters import JobLetters
from trainmaster.cli.top_screen.job_screen import JobScreen
from trainmaster.client.manager_api import ManagerApi, job_path
from trainmaster.daemon.array_rows import ArrayRow
from trainmaster.errors import CommandError
from trainmaster.text.control_characters import visible_line

FIRST = "Reading …"
STYLES = {"running": "green", "suspended": "yellow"}
DONE = {"suspend": "is being suspended", "resume": "is resumed", "cancel": "is being cancelled"}
MORE = " (more match: `trainmaster ps` lists all)"


ONLY_LISTS = ("filter", "mine", "lists", "clear")
"""What keys do on the first screen only."""


class JobTable(DataTable[Text]):
    """The list of jobs; what Enter does is shown with the other keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Details")]


class TopApp(App[None]):
    """The grid of GPUs, and below it jobs or queues."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "trainmaster top"
    CSS = """
    #headline { height: 1; text-style: bold; }
    #trouble { height: auto; max-height: 3; color: $text-error; display: none; }
    #legend { height: 1; text-style: dim; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #listed { height: 1; text-style: bold; margin-top: 1; }
    #headline, #listed { text-wrap: nowrap; text-overflow: ellipsis; }
    DataTable { height: 1fr; scrollbar-size-horizontal: 0; }
    #queues { display: none; }
    #sentence { height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("m", "mine", "Mine/all"),
        Binding("tab", "lists", "Queues", priority=True),
        Binding("s", "order('suspend')", "Suspend"),
        Binding("r", "order('resume')", "Resume"),
        Binding("c", "cancel", "Cancel"),
        Binding("escape", "clear", "Clear", show=False),
    ]

    def __init__(self, client: ManagerApi, choice: Choice) -> None:
        super().__init__()
        self._client, self._choice = client, choice
        self._letters = JobLetters()
        self._lines: dict[str, Line] = {}
        """The jobs that are listed, by what commands call them."""
        self._is_cut = False
        self._cells: Sequence[tuple[str, ...]] = ()
        self._watch = ClusterWatch(client, self._on_view, self._on_complaint)

    # -- what is seen ------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(FIRST, id="headline", markup=False)
        yield Static("", id="trouble", markup=False)
        yield GpuGrid(id="grid")
        yield Static(LEGEND, id="legend", markup=False)
        yield Static("", id="listed", markup=False)
        yield Input(placeholder="part of a name or id, then Enter", id="filter")
        yield JobTable(id="jobs", cursor_type="row")
        yield DataTable(id="queues", cursor_type="row", show_cursor=False)
        yield Static("", id="sentence", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._jobs.add_columns(*JOB_HEADINGS)
        self._queues.add_columns(*QUEUE_HEADINGS)
        self._jobs.focus()
        self._watch.choose(self._choice)
        self._watch.start()

    def on_unmount(self) -> None:
        self._watch.stop()

    @property
    def _base(self) -> Screen[None]:
        """The first screen, whatever lies over it."""
        return self.screen_stack[0]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in ONLY_LISTS or len(self.screen_stack) == 1

    @property
    def _jobs(self) -> DataTable[Text]:
        return self.query_one("#jobs", DataTable)

    @property
    def _queues(self) -> DataTable[Text]:
        return self.query_one("#queues", DataTable)

    def _say(self, where: str, text: str) -> None:
        self._base.query_one(where, Static).update(Text(text, no_wrap=where != "#sentence"))

    def _on_view(self, view: ClusterView, choice: Choice) -> None:
        """From the thread that watches."""
        self.call_later(self._show, view, choice)

    def _on_complaint(self, sentence: str) -> None:
        self.call_later(self._show_trouble, [visible_line(sentence)])

    def _show_trouble(self, sentences: list[str]) -> None:
        shown = self._base.query_one("#trouble", Static)
        shown.display = bool(sentences)
        shown.update(Text("\n".join(sentences)))

    def _show(self, view: ClusterView, choice: Choice) -> None:
        if choice != self._choice:  # its user has chosen others since
            return
        self._letters.give(jobs_on(view.nodes))
        self._say("#headline", f"{headline(view)}   {time.strftime('%H:%M:%S')}")
        self._show_trouble(troubles(view))
        base = self._base
        base.query_one("#grid", GpuGrid).show(view.nodes, self._letters)
        lines = view.lines()
        self._lines, self._is_cut = {_named(line): line for line in lines}, view.is_cut
        self._fill_jobs(base.query_one("#jobs", DataTable))
        self._fill_queues(base.query_one("#queues", DataTable), view)
        self._say("#listed", self._listed(len(lines), self._is_cut))
        self._show_chosen()

    def _listed(self, count: int, is_cut: bool) -> str:
        if not self._base.query_one("#jobs").display:
            return "Queues"
        words = self._choice.words()
        return visible_line(f"{words[:1].upper()}{words[1:]}: {count}{MORE if is_cut else ''}")

    def _fill_jobs(self, table: DataTable[Text]) -> None:
        """Without losing the reader's place."""
        cells = [job_cells(line, self._letters) for line in self._lines.values()]
        if cells == self._cells:
            return
        self._cells = cells
        chosen, scrolled = self._chosen_key(table), table.scroll_offset
        table.clear()
        for key, row in zip(self._lines, cells, strict=True):
            style = STYLES.get(row[4].partition(" ")[0], "")
            table.add_row(
                *(Text(each, style if at == 4 else "") for at, each in enumerate(row)), key=key
            )
        if chosen in self._lines:
            table.move_cursor(row=table.get_row_index(chosen), scroll=False)
        table.scroll_to(scrolled.x, scrolled.y, animate=False)

    def _fill_queues(self, table: DataTable[Text], view: ClusterView) -> None:
        table.clear()
        for queue in view.queues:
            table.add_row(*map(Text, queue_cells(queue)))

    def _chosen_key(self, table: DataTable[Text]) -> str:
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _chosen_line(self) -> Line | None:
        table = self._base.query_one("#jobs", DataTable)
        return self._lines.get(self._chosen_key(table))

    def _show_chosen(self) -> None:
        line = self._chosen_line()
        rows = line.rows if isinstance(line, ArrayRow) else () if line is None else (line,)
        grid = self._base.query_one("#grid", GpuGrid)
        grid.choose(frozenset(row.id for row in rows))
        self._say("#sentence", job_sentence(line))

    def on_data_table_row_highlighted(self) -> None:
        self._show_chosen()

    def on_data_table_row_selected(self) -> None:
        self.action_job()

    # -- what its user does ------------------------------------------------------------------------------

    def _choose(self, choice: Choice) -> None:
        self._choice = choice
        self._say("#listed", "Reading …")
        self._watch.choose(choice)

    def action_mine(self) -> None:
        self._choose(Choice(not self._choice.only_mine, self._choice.text))

    def action_lists(self) -> None:
        """Show queues instead of jobs, and back."""
        jobs, queues = self._jobs, self._queues
        jobs.display, queues.display = queues.display, jobs.display
        (jobs if jobs.display else queues).focus()
        self._say("#listed", self._listed(len(self._lines), self._is_cut))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = self._choice.text
        field.focus()

    def on_input_submitted(self, said: Input.Submitted) -> None:
        self._close_filter()
        self._choose(Choice(self._choice.only_mine, said.value.strip()))

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self._jobs.focus()

    def action_clear(self) -> None:
        """Close the filter, or list all again."""
        if self.query_one("#filter", Input).display:
            self._close_filter()
        elif self._choice.text:
            self._choose(Choice(self._choice.only_mine))

    def _subject(self) -> str | None:
        """The job that an order is for, as commands call it."""
        if isinstance(self.screen, JobScreen):
            return self.screen.job
        line = self._chosen_line() if self._jobs.display else None
        return None if line is None else _named(line)

    def action_job(self) -> None:
        job = self._subject()
        if job is not None and len(self.screen_stack) == 1:
            self.push_screen(JobScreen(self._client, job))

    def action_order(self, what: str) -> None:
        job = self._subject()
        if job is None:
            self.notify("Choose a job first.", markup=False)
            return
        self._send(job, what)

    def action_cancel(self) -> None:
        job = self._subject()
        if job is None:
            self.notify("Choose a job first.", markup=False)
            return
        line = self._lines.get(job)
        name = "" if line is None else f" ({line.name})" * bool(line.name)
        what = f"array {job}" if isinstance(line, ArrayRow) else f"job {job}"

        def answered(yes: bool | None) -> None:
            if yes:
                self._send(job, "cancel")

        self.push_screen(CancelQuestion(visible_line(f"{what}{name}")), answered)

    def _send(self, job: str, what: str) -> None:
        threading.Thread(target=self._order, args=(job, what), daemon=True).start()

    def _order(self, job: str, what: str) -> None:
        """In a thread, as the manager may take its time."""
        try:
            self._client.post(job_path(job, what))
        except CommandError as error:
            self.call_later(self._answer, str(error), "error")
            return
        self.call_later(self._answer, f"Job {job} {DONE[what]}.", "information")
        self._watch.look_now()

    def _answer(self, sentence: str, severity: str) -> None:
        self.notify(
            visible_line(sentence),
            severity="error" if severity == "error" else "information",
            timeout=10,
            markup=False,
        )


def _named(line: Line) -> str:
    return line.array if isinstance(line, ArrayRow) else line.id
