"""One job in detail, over the whole terminal, read again every two seconds."""

from __future__ import annotations

import threading
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from trainmaster.cli.top_screen.job_text import job_text
from trainmaster.client.manager_api import ManagerApi
from trainmaster.errors import CommandError
from trainmaster.text.control_characters import visible_line

PAUSE_S = 2.0


class JobScreen(Screen[None]):
    """Its sentence, story and last output; `s`, `r` and `c` act on it here too."""

    DEFAULT_CSS = """
    JobScreen #title { text-style: bold; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,enter", "app.pop_screen", "Back"),
    ]

    def __init__(self, client: ManagerApi, job: str) -> None:
        super().__init__()
        self._client, self.job = client, job
        self._is_left = threading.Event()

    def compose(self) -> ComposeResult:
        yield Static(f"Job {visible_line(self.job)}", id="title", markup=False)
        with VerticalScroll():
            yield Static("Reading …", id="text", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        threading.Thread(target=self._read, args=(self.app,), daemon=True).start()

    def on_unmount(self) -> None:
        self._is_left.set()

    def _read(self, app: App[None]) -> None:
        """Until the screen is left."""
        last = ""
        while not self._is_left.is_set():
            try:
                said = job_text(self._client, self.job)
            except CommandError as error:
                said = str(error)
            if said != last and not self._is_left.is_set():
                last = said
                app.call_later(self._show, said)
            self._is_left.wait(PAUSE_S)

    def _show(self, said: str) -> None:
        if self.is_mounted:
            self.query_one("#text", Static).update(Text(said))
