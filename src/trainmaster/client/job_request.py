"""What a job takes along from where it is submitted: user, working folder, umask, variables, profile."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.client.environment import exported
from trainmaster.client.manager_api import USER, Json
from trainmaster.client.program_profiles import with_profile
from trainmaster.errors import BadInput


def with_environment(spec: Json, export_all: bool = False) -> Json:
    """The job file with its user, its working directory and variables of the submitter's shell."""
    given = spec.get("env") or {}
    if not isinstance(given, dict):
        return spec  # which the check of the file names
    # values of other types stay as they are: the check of the file names them
    env = {
        str(name): value if isinstance(value, bool | list | dict) else value_of(str(name), value)
        for name, value in given.items()
    }
    in_container = bool(spec.get("container"))
    copied = exported(os.environ, everything=export_all, in_container=in_container)
    workdir = Path(str(spec.get("workdir") or ".")).expanduser()
    stated = {"user": os.environ[USER]} if os.environ.get(USER) and not spec.get("user") else {}
    return with_profile(
        spec
        | {
            **stated,
            "workdir": str(workdir.absolute()),
            "umask": spec.get("umask", f"{_umask():03o}"),
            "env": copied | env,
        }
    )


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def value_of(name: str, value: object, place: str = "") -> str:
    """A value as it is; none = the one of this shell."""
    if value is not None:
        return str(value)
    if name not in os.environ:
        raise BadInput(f"{place}{name} is not set here: give it a value with {name}=VALUE.")
    return os.environ[name]
