"""A page that submits a job, by a form or as a job file; the manager checks both before."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from nicegui import ui

from trainmaster.api.web.api_client import ApiClient, Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.job.job_form import FIELDS, Form
from trainmaster.api.web.job.job_text import NotYaml, as_yaml, for_copy, from_yaml
from trainmaster.api.web.parts.plain_text import shown
from trainmaster.api.web.viewer import Manager

FORM, TEXT = "Form", "Job file"
EXAMPLE = {"command": "", "gpus": 1}
WORD = re.compile(r"[a-z_]+")
NOTHING_CHECKED = "Nothing was checked yet. A check submits nothing."


def add(manager: Manager) -> None:
    @ui.page("/submit")
    async def submit_page(clone: str = "") -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Submit"):
            ui.label("Submit a job").classes("text-xl font-medium")
            if not viewer.may_change:
                ui.label(f"{viewer.user} has the role {viewer.role} here, which submits no jobs.")
                return
            spec, said = await _copied(viewer.api, clone) if clone else (EXAMPLE, "")
            try:
                queues = [each["name"] for each in (await viewer.api.get("/queues"))["queues"]]
            except Refused as refusal:
                ui.label(shown(str(refusal)))
                return
            SubmitPage(viewer.api, spec, queues, said)


async def _copied(api: ApiClient, job: str) -> tuple[Mapping[str, Any], str]:
    """The file of another job, and what is missing of it."""
    try:
        found = await api.get(f"/jobs/{quote(job, safe='')}")
    except Refused as refusal:
        return EXAMPLE, shown(str(refusal))
    spec, hidden = for_copy(found["spec"])
    if not hidden:
        return spec, ""
    return (
        spec,
        f"Values that are hidden were not copied: set {', '.join(map(shown, hidden))} again.",
    )


class SubmitPage:
    """What is typed is one job file, seen as a form or as text."""

    def __init__(
        self, api: ApiClient, spec: Mapping[str, Any], queues: Sequence[str], said: str
    ) -> None:
        self._api = api
        self._visit = uuid4().hex
        """With what is submitted, a key: a double click submits once."""
        self._is_sending = False
        with ui.row().classes("w-full gap-6 items-start"):
            with ui.column().classes("flex-[3] basis-96 min-w-0 gap-2"):
                self._draw_input(spec, queues)
            with ui.column().classes("flex-[2] basis-80 min-w-0 gap-2"):
                ui.label("Check").classes("text-base font-medium")
                self._result = ui.column().classes("w-full gap-1")
        with self._result:
            ui.label(said or NOTHING_CHECKED).classes("text-sm break-words")

    def _draw_input(self, spec: Mapping[str, Any], queues: Sequence[str]) -> None:
        with ui.tabs().props("dense align=left no-caps") as self._tabs:
            ui.tab(FORM)
            ui.tab(TEXT)
        with ui.tab_panels(self._tabs, value=FORM).classes("w-full bg-transparent"):
            with ui.tab_panel(FORM).classes("p-0"):
                self._form = Form(queues)
            with ui.tab_panel(TEXT).classes("p-0"):
                self._text = ui.codemirror(language="YAML", line_wrapping=True)
                self._text.classes("w-full h-96 border border-gray-500/30")
                ui.label("One job file, or several with --- between them.").classes(
                    "text-xs opacity-70"
                )
        self._error = ui.label().classes("text-sm text-negative break-words")
        with ui.row().classes("gap-2"):
            ui.button("Check", icon="rule", on_click=self._check).props("outline no-caps")
            ui.button("Submit", icon="send", on_click=self._submit).props("no-caps")
        self._form.show(spec)
        self._text.set_value(as_yaml(spec))
        self._tabs.on_value_change(self._changed_tab)

    # -- form and text ---------------------------------------------------------------------------------

    @property
    def _is_text(self) -> bool:
        return bool(self._tabs.value == TEXT)

    async def _changed_tab(self) -> None:
        """What was typed in one is seen in the other; other pages are answered meanwhile."""
        self._complain("")
        if self._is_text:
            self._text.set_value(as_yaml(self._form.stated()))
            return
        try:
            self._form.show(await asyncio.to_thread(from_yaml, self._text.value))
        except NotYaml as problem:
            self._tabs.set_value(TEXT)
            self._complain(str(problem))

    def _complain(self, sentence: str) -> None:
        """At the field that the sentence is about, else below all."""
        self._form.complain("", "")
        first = WORD.match(sentence)
        field = first[0] if first is not None else ""
        is_of_field = not self._is_text and field in FIELDS
        if is_of_field:
            self._form.complain(field, sentence)
        self._error.set_text("" if is_of_field else sentence)

    # -- asking the manager ----------------------------------------------------------------------------

    async def _send(self, **query: Any) -> Any:
        """What is typed, as it is seen; None where it was refused, which is said."""
        try:
            if self._is_text:
                return await self._api.send("POST", "/jobs", yaml=self._text.value, **query)
            return await self._api.send("POST", "/jobs", self._form.stated(), **query)
        except (Refused, ValueError) as refusal:
            self._complain(shown(str(refusal)))
            return None

    def _key(self) -> str:
        typed = self._text.value if self._is_text else json.dumps(self._form.stated())
        return f"{self._visit}-{hashlib.sha256(typed.encode('utf-8', 'replace')).hexdigest()[:16]}"

    async def _check(self) -> None:
        self._complain("")
        answer = await self._send(dry_run="true")
        self._result.clear()
        with self._result:
            if answer is None:
                ui.label("It cannot be submitted like that.").classes("text-sm")
                return
            for each in answer["jobs"]:
                _checked(each)

    async def _submit(self) -> None:
        if self._is_sending:
            return
        self._is_sending = True
        try:
            self._complain("")
            answer = await self._send(key=self._key())
        except ValueError as problem:
            self._complain(str(problem))
            return
        finally:
            self._is_sending = False
        if answer is None:
            return
        jobs = answer["jobs"]
        for each in jobs:
            for remark in each["remarks"]:
                ui.notify(shown(remark), timeout=10_000)
        ui.navigate.to(f"/jobs/{jobs[0]['id']}")


def _checked(found: Mapping[str, Any]) -> None:
    """What it would be, and when it would start."""
    job = found["job"]
    with ui.card().classes("w-full gap-1").props("flat bordered"):
        ui.label(shown(job["name"], 120)).classes("font-medium break-all")
        size = (
            f"{job['gpus']:g}"
            if job["min_gpus"] is None
            else f"{job['min_gpus']:g}-{job['max_gpus']:g}"
        )
        of_array = "" if job["elements"] is None else f", {job['elements']['jobs']:,} jobs"
        about = f"GPUs {size} \N{MIDDLE DOT} queue {shown(job['queue'], 100)}{of_array}"
        ui.label(about).classes("text-sm opacity-80 break-words")
        ui.label(shown(found["forecast"]["sentence"], 1_000)).classes("text-sm break-words")
        for remark in job["remarks"]:
            ui.label(shown(remark, 1_000)).classes("text-sm opacity-80 break-words")
