"""Profiles of programs, where `profile program` keeps them: one small file for a folder and a command."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainmaster.cli.support.address import user_data_folder
from trainmaster.cli.support.client import Json
from trainmaster.cli.support.errors import BadInput, cannot_write
from trainmaster.cli.support.files import read_text
from trainmaster.config.validation import ConfigError, checked
from trainmaster.model.profile import Profile

PROFILES = "profiles"
STATED = ("step_us", "batch", "sync_bytes", "cpu_us", "activation_bytes")
"""What a job file may say of it."""


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """What was measured of a program on one device."""

    command: tuple[str, ...]
    workdir: str
    device: str
    profile: Profile

    def to_json(self) -> Json:
        return {
            "command": list(self.command),
            "workdir": self.workdir,
            "device": self.device,
            "profile": stated(self.profile),
        }


def stated(profile: Profile) -> dict[str, int]:
    """What it says, as a job file has it."""
    values = asdict(profile)
    return {name: values[name] for name in STATED if values[name]}


def place_of(workdir: str, command: Sequence[str]) -> Path:
    digest = hashlib.sha256("\0".join([workdir, *command]).encode(errors="surrogateescape"))
    return user_data_folder() / PROFILES / f"{digest.hexdigest()[:16]}.json"


def keep(stored: StoredProfile, out: Path | None) -> Path:
    """Where the next `submit` of the program finds it, and in `out`; the latter's place, or the former's."""
    from trainmaster.durable_files import write_whole

    text = json.dumps(stored.to_json(), indent=1) + "\n"
    place = place_of(stored.workdir, stored.command)
    for path in (place, *([out] if out is not None else [])):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise cannot_write(str(path), error) from None
    return out or place


def stored_profile(path: Path) -> StoredProfile:
    """A file that `profile program` wrote."""
    from trainmaster.config.job_file import ProfileEntry  # it takes long to import

    text = read_text(path, "the profile")
    wrong = BadInput(f"{path} is not a profile: write one with `trainmaster profile program`.")
    try:
        said: dict[str, Any] = json.loads(text)
        entry = checked(ProfileEntry, said["profile"], str(path))
        command = tuple(map(str, said["command"]))
        return StoredProfile(command, str(said["workdir"]), str(said["device"]), entry.profile)
    except ConfigError as error:
        raise BadInput(str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise wrong from None


def with_profile(spec: Json) -> Json:
    """The job file with the profile that was measured of its program here, unless it states one."""
    command = spec.get("command")
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError:  # the shell may know what it means
            return spec
    if not isinstance(command, list | tuple) or "profile" in spec:
        return spec
    path = place_of(str(spec["workdir"]), [str(each) for each in command])
    if not path.exists():
        return spec
    return spec | {"profile": stated(stored_profile(path).profile)}
