"""The usual fields of a job file as a form; what it has besides stays as it is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from trainmaster.api.web.parts.plain_text import shown

NUMBERS = ("priority", "retries")
FIELDS = (
    *("command", "workdir", "name", "gpus", "queue", "max_runtime", "array", "env"),
    *NUMBERS,
)


def env_text(env: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}={value}" for name, value in env.items())


def env_of(text: str) -> dict[str, str]:
    """Lines of NAME=value; ValueError with one sentence for another one."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, sign, value = line.partition("=")
        if not line.strip():
            continue
        if not sign or not name.strip():
            raise ValueError(f"env: line {number} is not NAME=value.")
        found[name.strip()] = value
    return found


def typed_number(text: str) -> Any:
    """A whole number where it is one; what else was typed goes to the manager, who says what is wrong."""
    try:
        return int(text)
    except ValueError:
        return text


class Form:
    """What is empty is left out of the job file."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._rest: dict[str, Any] = {}
        self._inputs: dict[str, Any] = {}
        self._words: list[str] = []
        """A command that is a list of words."""
        inputs = self._inputs
        with ui.column().classes("w-full gap-2"):
            inputs["command"] = ui.textarea("Command", placeholder="python train.py --epochs 10")
            inputs["workdir"] = ui.input("Folder", placeholder="the home folder of its user")
            with ui.element("div").classes("w-full grid grid-cols-2 md:grid-cols-4 gap-2"):
                inputs["gpus"] = ui.input("GPUs", placeholder="1, 2-8, 0.5, H100:2")
                inputs["name"] = ui.input("Name", placeholder="the program's name")
                inputs["queue"] = ui.input(
                    "Queue", placeholder="default", autocomplete=list(queues)
                )
                inputs["max_runtime"] = ui.input("Time limit", placeholder="12h")
                inputs["array"] = ui.input("Array", placeholder="0-9%2")
                inputs["retries"] = ui.input("Retries", placeholder="2")
                inputs["priority"] = ui.input("Priority", placeholder="0")
            inputs["env"] = ui.textarea("Environment variables", placeholder="BATCH=256")
            self._others = ui.label().classes("text-xs opacity-70 break-words")
        for field in inputs.values():
            field.props("outlined dense stack-label spellcheck=false").classes("w-full")
        for name in ("command", "env"):
            inputs[name].props("autogrow").classes("font-mono")

    def show(self, spec: Mapping[str, Any]) -> None:
        self._rest = {key: value for key, value in spec.items() if not self._can_show(key, value)}
        command = self._rest.pop("command", [])
        self._words = [str(word) for word in command] if isinstance(command, list) else []
        for name, field in self._inputs.items():
            value = "" if name in self._rest else spec.get(name, "")
            if name == "command" and self._words:
                value = shlex.join(self._words)
            field.set_value(env_text(value) if isinstance(value, Mapping) else str(value))
        others = ", ".join(shown(key, 40) for key in self._rest)
        self._others.set_text(f"Also in its job file: {others}." if others else "")

    def _can_show(self, key: str, value: object) -> bool:
        if key == "env":
            return isinstance(value, Mapping) and not any("\n" in str(v) for v in value.values())
        return (
            key in FIELDS and isinstance(value, str | int | float) and not isinstance(value, bool)
        )

    def stated(self) -> dict[str, Any]:
        """The job file; ValueError with a sentence where a line cannot be read."""
        typed = {name: str(field.value or "") for name, field in self._inputs.items()}
        found: dict[str, Any] = {
            name: typed_number(text) if name in NUMBERS else text
            for name, text in typed.items()
            if text.strip() and name != "env"
        }
        if self._words and typed["command"] == shlex.join(self._words):
            found["command"] = self._words
        env = env_of(typed["env"])
        return found | ({"env": env} if env else {}) | self._rest

    def complain(self, field: str, sentence: str) -> None:
        """At this field alone."""
        for name, each in self._inputs.items():
            each.error = sentence if name == field else None
