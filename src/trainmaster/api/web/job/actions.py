"""What a person may do to a job: buttons, each with a question that says what will happen."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from trainmaster.api.web.api_client import ApiClient, Refused
from trainmaster.api.web.job.allowed_actions import Action
from trainmaster.api.web.parts.plain_text import shown
from trainmaster.text.formatting import duration, plural

Send = Callable[[bool], Awaitable[Any]]
"""Does it; True: even if work is lost."""
Done = Callable[[], Awaitable[None]]
BUTTONS = {
    Action.RESUME: ("Resume", "play_arrow"),
    Action.SUSPEND: ("Suspend", "pause"),
    Action.SAVE: ("Save", "save"),
    Action.MOVE: ("Move", "swap_horiz"),
    Action.CHANGE: ("Change", "tune"),
    Action.CANCEL: ("Cancel", "stop"),
}
WORK_WOULD_BE_LOST = "work_would_be_lost"
FOR_COMMANDS = re.compile(r" To [^.]* all the same, add --force \(API: force\)\.")
"""What the API says to commands."""


def sentence_of(refusal: Refused) -> str:
    return shown(FOR_COMMANDS.sub("", str(refusal)))


class JobActions:
    """The buttons of one job."""

    def __init__(self, api: ApiClient, path: str, done: Done) -> None:
        self._api, self._path, self._done = api, path, done
        self._job: Mapping[str, Any] = {}
        self._place = ui.element("div").classes("hidden")
        """Questions are asked from here: buttons may be gone when an answer comes."""

    def about(self, job: Mapping[str, Any]) -> None:
        """The job as it is now."""
        self._job = job

    def draw(self, actions: tuple[Action, ...], job: str) -> None:
        asked = {
            Action.RESUME: self._resume,
            Action.SUSPEND: self._suspend,
            Action.SAVE: self._save,
            Action.MOVE: self._move,
            Action.CHANGE: self._change,
            Action.CANCEL: self._cancel,
        }
        with ui.row().classes("gap-1"):
            for action in actions:
                label, icon = BUTTONS[action]
                colour = "red-6" if action is Action.CANCEL else "primary"
                ui.button(label, icon=icon, color=colour, on_click=asked[action]).props(
                    "outline dense no-caps padding='2px 8px'"
                )
            ui.button(
                "Clone",
                icon="content_copy",
                on_click=lambda: ui.navigate.to(f"/submit?clone={job}"),
            ).props("outline dense no-caps padding='2px 8px'")

    # -- questions -------------------------------------------------------------------------------------

    def _resume(self) -> None:
        self._ask(
            "Let it run again?",
            "It waits for devices and goes on when the policy starts it.",
            "Resume",
            self._post("resume"),
        )

    def _suspend(self) -> None:
        if self._job["state"] == "pending":
            what = "It is not started before it is resumed."
        elif self._job["state"] == "suspended":
            what = "It stays off its devices until it is resumed."
        else:
            what = (
                f"It leaves {self._devices()} to others until it is resumed. Its work is kept in memory,"
                " or saved; if neither is possible, you are asked once more."
            )
        self._ask("Suspend it?", what, "Suspend", self._post("suspend", takes_force=True))

    def _save(self) -> None:
        self._ask(
            "Ask it for a checkpoint?",
            f"Its program is told to save now, and goes on. {self._last_saved()}",
            "Save",
            self._post("save"),
        )

    def _cancel(self) -> None:
        grace = self._job["spec"].get("grace_period", "30s")
        what = "It is taken out of the queue and does not run."
        if self._job["state"] != "pending":
            what = (
                f"Its program is told to stop and killed {shown(str(grace), 20)} later; it is not started"
                f" again. {self._last_saved()}"
            )
        if self._job.get("elements"):
            what = "All its jobs that have not ended are ended, and not started again."
        with Dialog("Cancel it for good?", what) as dialog:
            at_once = ui.checkbox("Kill it at once, without its grace period")
            at_once.set_visibility(self._job["state"] != "pending")

            async def cancel(_: bool) -> Any:
                now = "true" if at_once.value else None
                return await self._api.send("POST", f"{self._path}/cancel", now=now)

            self._answers(dialog, "Cancel the job", cancel, colour="negative", no="Keep it")

    async def _move(self) -> None:
        try:
            nodes = (await self._api.get("/nodes"))["nodes"]
        except Refused as refusal:
            ui.notify(sentence_of(refusal), type="negative")
            return
        own, need = set(self._job["nodes"]), len(self._job["devices"])
        free = {
            node["name"]: sum(not each["jobs"] for each in node["devices"])
            for node in nodes
            if node["state"] == "up" and node["name"] not in own
        }
        fits = {
            name: f"{shown(name, 60)} ({count} free)"
            for name, count in free.items()
            if count >= need
        }
        if not fits:
            ui.notify(f"No other node has {plural(need, 'free device')} now.", type="warning")
            return
        what = (
            f"It goes on there with {plural(need, 'device')}. Its work is kept in memory, or saved; if"
            " neither is possible, you are asked once more."
        )
        with Dialog("Move it to another node?", what) as dialog:
            node = ui.select(fits, value=next(iter(fits)), label="Node").classes("w-full")

            async def move(force: bool) -> Any:
                body = {"node": node.value, "force": force}
                return await self._api.send("POST", f"{self._path}/move", body)

            self._answers(dialog, "Move", move)

    async def _change(self) -> None:
        try:
            queues = [each["name"] for each in (await self._api.get("/queues"))["queues"]]
        except Refused as refusal:
            ui.notify(sentence_of(refusal), type="negative")
            return
        job = self._job
        names = {name: shown(name, 60) for name in dict.fromkeys([job["queue"], *queues])}
        what = "A higher priority goes first, where the policy looks at it."
        with Dialog("Change it?", what) as dialog:
            priority = ui.number("Priority", value=job["priority"], precision=0, format="%d")
            queue = ui.select(names, value=job["queue"], label="Queue")
            for each in (priority, queue):
                each.classes("w-full")

            async def change(_: bool) -> Any:
                stated = {"priority": int(priority.value or 0), "queue": queue.value}
                changed = {name: value for name, value in stated.items() if value != job[name]}
                return await self._api.send("PATCH", self._path, changed) if changed else None

            self._answers(dialog, "Change", change)

    # -- asking ----------------------------------------------------------------------------------------

    def _post(self, name: str, *, takes_force: bool = False) -> Send:
        async def send(force: bool) -> Any:
            forced = "true" if force and takes_force else None
            return await self._api.send("POST", f"{self._path}/{name}", force=forced)

        return send

    def _ask(self, question: str, what: str, yes: str, send: Send) -> None:
        with Dialog(question, what) as dialog:
            self._answers(dialog, yes, send)

    def _answers(
        self, dialog: Dialog, yes: str, send: Send, *, colour: str = "primary", no: str = "Not now"
    ) -> None:
        async def do() -> None:
            dialog.close()
            await self._do(send, yes, force=False)

        dialog.answers(yes, do, colour=colour, no=no)

    async def _do(self, send: Send, what: str, *, force: bool) -> None:
        with self._place:
            try:
                await send(force)
                await self._done()
            except Refused as refusal:
                if refusal.code == WORK_WOULD_BE_LOST and not force:
                    self._ask_again(sentence_of(refusal), what, send)
                else:
                    said = sentence_of(refusal)
                    ui.notify(said, type="negative", timeout=10_000, close_button=True)

    def _ask_again(self, why: str, what: str, send: Send) -> None:
        """The second question: work would be lost."""
        with Dialog("Work would be lost", why) as dialog:

            async def do() -> None:
                dialog.close()
                await self._do(send, what, force=True)

            dialog.answers(f"{what} and lose it", do, colour="negative", no="Leave it")

    def _devices(self) -> str:
        count = len(self._job["devices"])
        return f"its {plural(count, 'device')}" if count else "its devices"

    def _last_saved(self) -> str:
        """What is lost at worst."""
        saved, ran = self._job["saved_at_s"], duration(self._job["run_s"])
        if saved is None:
            return f"It has run for {ran}, and has saved no checkpoint that the manager knows of."
        return "What it has done since its last checkpoint is lost if it does not save again."


class Dialog:
    """A question over the page, open at once and gone when it is answered."""

    def __init__(self, question: str, what: str) -> None:
        self._dialog = ui.dialog(value=True)
        self._dialog.on("hide", self._dialog.delete)
        with self._dialog, ui.card().classes("w-96 max-w-full") as self._card:
            ui.label(question).classes("text-lg font-medium")
            ui.label(what).classes("text-sm break-words")

    def __enter__(self) -> Dialog:
        self._card.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._card.__exit__(*_)

    def close(self) -> None:
        self._dialog.close()

    def answers(self, yes: str, do: Done, *, colour: str, no: str) -> None:
        with ui.row().classes("w-full justify-end gap-2"):
            ui.button(no, color=None, on_click=self.close).props("flat no-caps")
            ui.button(yes, color=colour, on_click=do).props("no-caps")
