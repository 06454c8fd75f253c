"""The page of a job: why it waits or what was done to it, its output and curves, what may be done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.job import head
from trainmaster.api.web.job.actions import JobActions
from trainmaster.api.web.job.allowed_actions import allowed_actions
from trainmaster.api.web.job.curves import Curves
from trainmaster.api.web.job.elements import MOST, Elements
from trainmaster.api.web.job.job_state import state_badge
from trainmaster.api.web.job.job_text import as_yaml
from trainmaster.api.web.job.log_view import LogView
from trainmaster.api.web.job.placement import placement_drawing
from trainmaster.api.web.job.redrawn import Redrawn
from trainmaster.api.web.job.run_links import RunLink, links_in
from trainmaster.api.web.job.story import story_timeline
from trainmaster.api.web.parts.plain_text import shown, shown_lines
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.daemon.job_rows import JobRow

EVERY_S = 1.5
"""How often the job itself is asked for, which is cheap; the rest when that has changed, ..."""
REST_S = 15.0
"""... or after so long: forecasts change by themselves."""
CURVES_S = 5.0
BEGINNING = 64 * 1024
"""Bytes of output in which links to its run are looked for, besides what is shown."""


def add(manager: Manager) -> None:
    @ui.page("/jobs/{job}")
    async def job_page(job: str) -> None:
        viewer = await manager.viewer()
        with frame(viewer, f"Job {shown(job, 60)}"):
            try:
                found = await viewer.api.get(f"/jobs/{quote(job, safe='')}")
                page = JobPage(viewer, found)
                await page.refresh()
            except Refused as refusal:
                ui.label(shown(str(refusal))).classes("text-base")
                return
        page.watch()


class JobPage:
    """Of one job, or of an array."""

    def __init__(self, viewer: Viewer, job: Mapping[str, Any]) -> None:
        self._api, self._viewer = viewer.api, viewer
        self._id = job["id"]
        self._path = f"/jobs/{quote(self._id, safe='')}"
        self._is_array = job["elements"] is not None
        self._changed_by: object = None
        """What of the job the rest of the page was last asked for with."""
        self._rest_at = self._curves_at = 0.0
        self._links: dict[str, RunLink] = {}
        self._looked_at: set[int] = set()
        """Attempts in whose first output links were looked for."""
        self._turn = asyncio.Lock()
        self._log: LogView | None = None
        self._draw()

    def _draw(self) -> None:
        with ui.row().classes("w-full items-center justify-between gap-2"):
            self._title = Redrawn(self._draw_title, "gap-0 min-w-0")
            self._actions = JobActions(self._api, self._path, self.refresh)
            self._buttons = Redrawn(self._actions.draw, "gap-0")
        self._why = Redrawn(head.why, "w-full gap-1")
        self._numbers = Redrawn(self._draw_numbers)
        self._failure = Redrawn(head.failure)
        self._link_row = Redrawn(self._draw_links)
        if self._is_array:
            self._elements = Elements()
        else:
            with ui.column().classes("w-full gap-1"):
                self._log = LogView(self._api, self._path, self._id, self._look_for_links)
            self._curves = Curves()
        with ui.row().classes("w-full gap-6 items-start"):
            if not self._is_array:
                with ui.column().classes("flex-1 basis-96 min-w-0 gap-2"):
                    _heading("What happened to it")
                    self._story = Redrawn(story_timeline)
            with ui.column().classes("flex-1 basis-96 min-w-0 gap-2"):
                if not self._is_array:
                    _heading("Where it is")
                    self._placement = Redrawn(placement_drawing)
                _heading("The file it was submitted with")
                self._file = Redrawn(_job_file)

    def watch(self) -> None:
        """From now on."""
        if self._log is not None:
            self._log.restart()
            ui.context.client.on_delete(self._log.close)
        ui.timer(EVERY_S, self._refresh_quietly)

    async def _refresh_quietly(self) -> None:
        """As long as nobody waits for the answer."""
        if not self._turn.locked():
            try:
                await self.refresh()
            except Refused as refusal:
                self._title.show({}, shown(str(refusal)))

    async def refresh(self) -> None:
        async with self._turn:
            job = await self._api.get(self._path)
            now = asyncio.get_running_loop().time()
            row = JobRow.from_json(dict(job))
            self._actions.about(job)
            self._title.show(_named(job), row.state_words)
            self._buttons.show(allowed_actions(row, may_change=self._viewer.may_change), self._id)
            changed_by = _changes(job)
            if changed_by != self._changed_by or now - self._rest_at > REST_S:
                self._explained = await self._api.get(f"{self._path}/explain")
                await self._show_rest(job)
                self._changed_by, self._rest_at = changed_by, now  # not where a part was refused
            self._numbers.show(job, self._explained)
            if not self._is_array and now - self._curves_at > CURVES_S:
                self._curves_at = now
                self._curves.show(await self._api.get(f"{self._path}/curves"))

    async def _show_rest(self, job: Mapping[str, Any]) -> None:
        """What is asked for more seldom."""
        story: Sequence[Mapping[str, Any]] = ()
        if self._is_array:
            found = await self._api.get("/jobs", array=self._id, limit=MOST)
            self._elements.show(found["jobs"], of=job["elements"]["jobs"])
        else:
            story = (await self._api.get(f"{self._path}/story"))["story"]
            self._story.show(story)
            self._placement.show(await self._api.get(f"{self._path}/placement"))
            attempts = (await self._api.get(f"{self._path}/attempts"))["attempts"]
            if self._log is not None:
                self._log.choices(attempts)
            await self._look_at_beginning(attempts)
        self._why.show(self._explained, story)
        self._failure.show({name: job[name] for name in ("failure", "last_lines")})
        self._file.show(job["spec"])

    # -- parts -----------------------------------------------------------------------------------------

    def _draw_title(self, job: Mapping[str, Any], words: str) -> None:
        with ui.row().classes("items-center gap-3"):
            ui.label(shown(f"{self._id} {job.get('name', '')}", 130)).classes(
                "text-xl font-medium break-all [unicode-bidi:isolate]"
            )
            state_badge(job.get("state", ""), words)
        if job:
            array = f"part of array {job['array']}" if job["array"] else ""
            about = [f"user {job['user']}", f"queue {job['queue']}", f"priority {job['priority']}"]
            ui.label(
                " \N{MIDDLE DOT} ".join(shown(each, 120) for each in (*about, array) if each)
            ).classes("text-sm opacity-70 break-all")

    def _draw_numbers(self, job: Mapping[str, Any], explained: Mapping[str, Any]) -> None:
        with ui.row().classes("w-full gap-x-8 gap-y-2 items-start"):
            head.numbers(job, explained)

    def _draw_links(self, links: Sequence[RunLink]) -> None:
        with ui.row().classes("w-full gap-x-6 gap-y-1 text-sm"):
            for link in links:
                with ui.row().classes("items-center gap-2"):
                    self._draw_link(link)

    def _draw_link(self, link: RunLink) -> None:
        if link.port is None:
            ui.icon("open_in_new")
            run = ui.link(shown(link.url, 200), link.url, new_tab=True)
            run.props("rel='noopener noreferrer'").classes("break-all")
        else:
            ui.icon("insights")
            ui.label(f"TensorBoard listens in the job on port {link.port}:")
            command = f"trainmaster forward {self._id} {link.port}"
            ui.label(command).classes("font-mono text-xs select-all")

    # -- links to its run ------------------------------------------------------------------------------

    def _look_for_links(self, lines: Sequence[str]) -> None:
        found = links_in(lines)
        if any(link.url not in self._links for link in found):
            self._links |= {link.url: link for link in found}
            self._link_row.show(list(self._links.values())[-4:])

    async def _look_at_beginning(self, attempts: Sequence[Mapping[str, Any]]) -> None:
        """A run is named when it begins, and the view shows the end."""
        if attempts and attempts[-1]["attempt"] not in self._looked_at and attempts[-1]["ranks"]:
            number, rank = attempts[-1]["attempt"], attempts[-1]["ranks"][0]
            text = await self._api.beginning(
                f"{self._path}/logs", BEGINNING, attempt=number, rank=rank
            )
            self._looked_at.add(number)  # what comes later is seen in the view
            self._look_for_links(text.splitlines())


def _changes(job: Mapping[str, Any]) -> object:
    """What makes the rest of the page out of date; not sentences, in which seconds go by."""
    reason = job["reason"] or {}
    return (
        *(job["state"], job["transition"], job["attempt"], job["devices"], job["saved_at_s"]),
        *(job["priority"], job["queue"], job["failures"], job["elements"], job["prerun"]),
        *(reason.get("code"), reason.get("held_by"), reason.get("need"), reason.get("free")),
        *(job["hung"] is None, job["progress"] is None, (job["progress"] or {}).get("total_steps")),
    )


def _named(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in ("name", "state", "user", "queue", "priority", "array")}


def _heading(text: str) -> None:
    ui.label(text).classes("text-base font-medium")


def _job_file(spec: Mapping[str, Any]) -> None:
    ui.label(shown_lines(as_yaml(spec), 20_000)).classes(
        "font-mono text-xs whitespace-pre-wrap break-all w-full rounded bg-gray-500/10 p-2"
    )
