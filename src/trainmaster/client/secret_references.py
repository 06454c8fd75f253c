"""Secrets of the submitter's shell go along by reference: a private file of theirs, and never the value.

`WANDB_API_KEY` in the environment becomes a file in the user's configuration folder, which only the user can
read, and the job names that file. Its processes read it when they start.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from trainmaster.client.connection import Place
from trainmaster.client.manager_api import Json
from trainmaster.config.secret_names import looks_secret
from trainmaster.errors import Failed, system_reason
from trainmaster.text.formatting import listing

MODE, FOLDER_MODE = 0o600, 0o700


def folder() -> Path:
    from platformdirs import user_config_path

    return user_config_path("trainmaster") / "secrets"


def with_secrets_apart(manager: Place, spec: Json) -> tuple[Json, str]:
    """On one machine the values stay with their user; elsewhere they go along, and a note says so."""
    if manager.socket is not None:
        return by_reference(spec, folder()), ""
    clear = [name for name in spec.get("env") or () if looks_secret(str(name))]
    if not clear:
        return spec, ""
    return spec, (
        f"the manager gets {listing(clear)} as it is: --secret NAME=FILE names a file there instead."
    )


def by_reference(spec: Json, place: Path) -> Json:
    """The job with files instead of the values of variables that look like secrets."""
    env = spec.get("env") or {}
    values = {
        name: value
        for name, value in (env.items() if isinstance(env, Mapping) else ())
        if isinstance(value, str) and value and "\0" not in value and looks_secret(name)
    }
    if not values:
        return spec
    try:
        kept = {name: str(_kept(place, name, value)) for name, value in values.items()}
    except OSError as error:
        raise Failed(f"{place} cannot hold secrets: {system_reason(error)}.") from None
    others = {name: value for name, value in env.items() if name not in values}
    return spec | {"env": others, "secrets": kept | (spec.get("secrets") or {})}


def _kept(place: Path, name: str, value: str) -> Path:
    """A file for each value, so that jobs that were submitted before keep theirs."""
    place.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    file = place / f"{name}.{hashlib.sha256(value.encode()).hexdigest()[:12]}"
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    except FileExistsError:
        return file
    with open(opened, "w", encoding="utf-8") as writing:
        writing.write(value)
    return file
