"""Managers on other machines that the user has confirmed: address, certificate and token of each.

They are kept in `~/.config/trainmaster/managers.json`, which only its user can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.errors import BadInput, cannot_write, system_reason

FILE = "managers.json"


@dataclass(frozen=True, slots=True)
class KnownManager:
    """What is remembered of one."""

    token: str | None = None
    fingerprint: str | None = None
    """Of its certificate; None: one that the system's authorities vouch for."""


@dataclass(frozen=True, slots=True)
class KnownManagers:
    """All of them, by their addresses."""

    managers: Mapping[str, KnownManager] = field(default_factory=dict)
    default: str | None = None
    """The one that commands ask where no manager of one's own runs here."""

    def pin_of(self, url: str) -> str | None:
        found = self.managers.get(url)
        return None if found is None else found.fingerprint

    def token_of(self, url: str) -> str | None:
        found = self.managers.get(url)
        return None if found is None else found.token

    def with_manager(self, url: str, manager: KnownManager) -> KnownManagers:
        return KnownManagers({**self.managers, url: manager}, url)

    def without(self, url: str) -> KnownManagers:
        left = {each: known for each, known in self.managers.items() if each != url}
        return KnownManagers(left, None if self.default == url else self.default)


def config_folder() -> Path:
    """The user's own folder for settings of programs."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "trainmaster"


def known_managers() -> KnownManagers:
    path = config_folder() / FILE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        managers = {
            str(url): KnownManager(each.get("token"), each.get("fingerprint"))
            for url, each in said["managers"].items()
        }
        return KnownManagers(managers, said.get("default"))
    except FileNotFoundError:
        return KnownManagers()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {system_reason(error)}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"{path} is damaged: remove it, and call `trainmaster token use` again."
        ) from None


def remember(known: KnownManagers) -> Path:
    """Keep these, readable by their user alone; where they are kept."""
    from trainmaster.durable_files import write_whole

    path = config_folder() / FILE
    managers = {
        url: {"token": each.token, "fingerprint": each.fingerprint}
        for url, each in known.managers.items()
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        said = {"default": known.default, "managers": managers}
        write_whole(path, json.dumps(said, indent=2) + "\n", 0o600)
    except OSError as error:
        raise cannot_write(str(path), error) from None
    return path
