"""The state of a job, as a coloured word."""

from __future__ import annotations

from nicegui import ui

COLOURS = {
    "pending": "amber-8",
    "running": "green-8",
    "suspended": "orange-9",
    "succeeded": "teal-8",
    "failed": "red-8",
    "timed_out": "red-8",
    "cancelled": "blue-grey-6",
}


def state_badge(state: str, words: str) -> None:
    """`words` says more than the state: `suspended (user)`."""
    ui.badge(words, color=COLOURS.get(state, "grey-7")).classes("text-sm px-2 py-1")
