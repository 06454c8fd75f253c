"""Output of a job as it comes: by rank and attempt, bounded however much there is, shown as text."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from nicegui import background_tasks, ui

from trainmaster.api.web.api_client import ROOT, ApiClient, Refused
from trainmaster.api.web.job.log_text import LogText
from trainmaster.api.web.parts.plain_text import shown

TAIL = 400
"""Lines that are shown at first of each rank."""
MOST_LINES = 3_000
"""Lines that a browser holds: with more, the older half goes."""
MOST_AT_ONCE = 400
"""New lines that are sent together; of more, the last ones."""
FLUSH_S = 0.25
AGAIN_S = 2.0
"""Before a stream that has broken off is asked for again."""
ALL = "all"
LAST = "last"
END = 10**9


class LogView:
    """`on_lines` is told of all lines that are shown."""

    def __init__(
        self, api: ApiClient, path: str, job: str, on_lines: Callable[[Sequence[str]], None]
    ) -> None:
        self._api, self._path, self._job = api, path, job
        self._on_lines = on_lines
        self._reading: asyncio.Task[Any] | None = None
        self._kept: deque[str] = deque(maxlen=MOST_LINES // 2)
        self._held = 0
        """Lines that the browser holds."""
        self._new: list[str] = []
        self._left_out = 0
        self._text = LogText()
        self._unfinished = ""
        self._ranks: list[int] = [0]
        self._attempts: list[int] = []
        self._draw()

    def _draw(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            ui.label("Output").classes("text-base font-medium")
            self._rank = ui.select({"0": "rank 0"}, value="0", on_change=self.restart)
            self._attempt = ui.select({LAST: "last attempt"}, value=LAST, on_change=self.restart)
            for choice in (self._rank, self._attempt):
                choice.props("dense options-dense outlined").classes("min-w-32")
            self._follow = ui.switch("Follow", value=True, on_change=self._scroll)
            self._follow.tooltip("Scroll to the newest line as it comes")
            self._wrap = ui.switch("Wrap", value=True, on_change=self._set_wrap)
            ui.space()
            self._said = ui.label().classes("text-sm opacity-70")
            self._download = ui.link("Download", "#").props(f'download="job-{self._job}.log"')
        with (
            ui.element("div")
            .classes("w-full h-72 overflow-auto rounded border border-gray-500/30 bg-gray-500/10")
            .props('tabindex=0 role=log aria-label="Output of the job"') as self._box
        ):
            self._lines = ui.element("pre").classes(TEXT + " whitespace-pre-wrap break-all")
            self._rest = ui.label().classes(TEXT + " whitespace-pre-wrap break-all")

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def choices(self, attempts: Sequence[dict[str, Any]]) -> None:
        """What there is to choose from, as the API has it."""
        ranks = sorted({rank for each in attempts for rank in each["ranks"]}) or [0]
        numbers = [each["attempt"] for each in attempts]
        if ranks != self._ranks:
            self._ranks = ranks
            named = {str(rank): f"rank {rank}" for rank in ranks}
            self._rank.set_options(
                {ALL: f"all {len(ranks)} ranks", **named} if ranks[1:] else named
            )
        if numbers != self._attempts:
            self._attempts = numbers
            past = {str(number): f"attempt {number}" for number in reversed(numbers)}
            self._attempt.set_options({LAST: "last attempt", **past})

    def restart(self) -> None:
        """Read again, as it is chosen now."""
        self.close()
        rank, attempt = str(self._rank.value), str(self._attempt.value)
        self._kept.clear()
        self._new.clear()
        self._held = self._left_out = 0
        self._text = LogText(names=rank == ALL)
        self._show("replaceChildren", "")
        self._rest.set_text("")
        query = "" if attempt == LAST else f"&attempt={attempt}"
        one = "0" if rank == ALL else rank
        self._download.props(f'href="{ROOT}{self._path}/logs?rank={one}{query}"')
        asked = {"rank": rank, "tail": TAIL, "follow": "true"}
        if attempt != LAST:
            asked["attempt"] = attempt
        self._reading = background_tasks.create(self._read(asked))

    async def _read(self, asked: dict[str, Any]) -> None:
        """Until the job has ended, however often the stream breaks off."""
        sending = background_tasks.create(self._send())
        try:
            while True:
                try:
                    async for name, said in self._api.events(f"{self._path}/logs", **asked):
                        self._take(name, said)
                        if name == "end":
                            return
                except Refused as refusal:
                    self._said.set_text(shown(str(refusal)))
                    if 400 <= refusal.status < 500 and refusal.status != 429:
                        return
                except (httpx.HTTPError, ValueError):
                    self._said.set_text("The connection broke off.")
                await asyncio.sleep(AGAIN_S)
                self._new.append("\N{MIDLINE HORIZONTAL ELLIPSIS} connected again")
        finally:
            await asyncio.sleep(FLUSH_S)
            self._flush()
            sending.cancel()

    def _take(self, name: str, said: dict[str, Any]) -> None:
        if name == "log":
            lines = self._text.take_event(said)
            self._new += lines
            self._on_lines(lines)
            over = len(self._new) - MOST_AT_ONCE
            if over > 0:
                del self._new[:over]
                self._left_out += over
        elif name == "end":
            self._said.set_text("It has ended.")
        elif name == "state":
            self._said.set_text(shown(said["state"].replace("_", " ")))

    async def _send(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._flush()

    def _flush(self) -> None:
        """Send what is new to the browser."""
        lines, self._new = self._new, []
        if self._left_out:
            lines.insert(0, LEFT_OUT.format(self._left_out))
            self._left_out = 0
        rest = self._text.unfinished()
        if not lines and rest == self._unfinished:
            return
        self._unfinished = rest
        self._rest.set_text(rest)
        self._kept.extend(lines)
        self._held += len(lines)
        if self._held > MOST_LINES:
            self._held = len(self._kept)
            self._show("replaceChildren", "\n".join(self._kept) + "\n")
        elif lines:
            self._show("append", "\n".join(lines) + "\n")
        self._scroll()

    def _show(self, method: str, text: str) -> None:
        """By the DOM's own methods, which take text as text."""
        self._lines.run_method(method, text)

    def _scroll(self) -> None:
        if self._follow.value:
            self._box.run_method("scrollTo", 0, END)

    def _set_wrap(self) -> None:
        wrapped, cut = "whitespace-pre-wrap break-all", "whitespace-pre"
        add, remove = (wrapped, cut) if self._wrap.value else (cut, wrapped)
        for each in (self._lines, self._rest):
            each.classes(add=add, remove=remove)


TEXT = "font-mono text-xs px-2 py-0 m-0 text-left [unicode-bidi:plaintext]"
LEFT_OUT = (
    "\N{MIDLINE HORIZONTAL ELLIPSIS} {:,} lines came faster than they can be shown: the download has all"
    " that is kept"
)
