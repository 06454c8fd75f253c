"""Profiles of programs, where `profile program` keeps them: one small file for a folder and a command."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainmaster.client.address import user_data_folder
from trainmaster.client.manager_api import Json
from trainmaster.config.validation import ConfigError, checked
from trainmaster.errors import BadInput, cannot_write
from trainmaster.input_files import read_text
from trainmaster.model.memory_estimate import MemoryEstimate
from trainmaster.model.profile import Profile, stated_of

PROFILES = "profiles"


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
            "profile": stated_of(self.profile),
        }


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


def command_words(command: str) -> tuple[str, ...]:
    """The words of a command that `--for` names."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise BadInput(f"--for `{command}` is not a command: {error}.") from None
    if not words:
        raise BadInput("--for names no command: write --for 'python train.py --batch 64'.")
    return words


def keep_memory(words: tuple[str, ...], estimate: MemoryEstimate) -> Path:
    """What was estimated of a program of this folder, beside what was measured of it."""
    workdir = os.getcwd()
    place = place_of(workdir, words)
    known = (
        stored_profile(place)
        if place.exists()
        else StoredProfile(words, workdir, "", Profile(per_gpu=True))
    )
    return keep(replace(known, profile=replace(known.profile, memory_estimate=estimate)), None)


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
    return spec | {"profile": stated_of(stored_profile(path).profile)}
