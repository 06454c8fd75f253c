"""Keeps a page as it is now: asks again while it is looked at, and says when the manager does not answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.text.control_characters import visible_line

Refresh = Callable[[], Awaitable[None]]
TIMES = 20
MOST_S = 30.0
"""Longest pause that a slow answer brings: the machine may be busy with other work."""


async def keep_fresh(refresh: Refresh, every_s: float) -> Refresh:
    """Now, and again and again; the answer asks at once, without ever raising.

    A manager that answers slowly is asked more seldom: a page takes some 5 % of its time at most.
    """
    trouble = ui.label().classes("w-full rounded px-3 py-2 bg-red-700 text-white break-words")
    trouble.set_visibility(False)
    trouble.move(target_index=0)

    timer: ui.timer | None = None
    wanted_s = every_s

    async def ask() -> None:
        nonlocal wanted_s
        began_s = time.monotonic()
        try:
            await refresh()
        except Refused as refusal:
            trouble.set_text(visible_line(str(refusal)))
            trouble.set_visibility(True)
        else:
            trouble.set_visibility(False)
        wanted_s = interval_s(every_s, time.monotonic() - began_s)
        if timer is not None:
            timer.interval = wanted_s

    await ask()
    timer = ui.timer(wanted_s, ask, immediate=False)
    return ask


def interval_s(every_s: float, took_s: float) -> float:
    """From the beginning of a refresh to that of the next."""
    return max(every_s, took_s + min(MOST_S, TIMES * took_s))
