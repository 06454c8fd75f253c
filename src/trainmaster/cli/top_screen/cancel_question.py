"""Asks whether jobs are to be cancelled."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static


class CancelQuestion(ModalScreen[bool]):
    """True after `y`; `n`, Escape and Enter leave the job alone."""

    DEFAULT_CSS = """
    CancelQuestion { align: center middle; }
    CancelQuestion Vertical { width: 60; max-width: 90%; height: auto; border: round $error; padding: 1 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "Cancel the job"),
        ("n,escape,enter,q", "answer(False)", "Leave it"),
    ]

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"Cancel {self._what}?", markup=False)
            yield Static("y: cancel it    n: leave it", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
