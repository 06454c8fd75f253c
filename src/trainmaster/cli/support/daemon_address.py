"""Where a daemon keeps its state, and how those who want to speak to it find its address."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.support.errors import BadInput

URL = "TRAINMASTER_URL"
DATA = "TRAINMASTER_DATA"
HERE = ".trainmaster"
"""The state of `make run`, in the folder that it was started in."""
ADDRESS = "address"
ROOT = 0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon should answer, and who said so."""

    url: str
    said_by: str


def user_data_folder() -> Path:
    """Where `trainmaster up` keeps its state unless it is told otherwise."""
    from platformdirs import user_data_path

    return user_data_path("trainmaster")


def find_address(url: str | None, data: Path | None) -> Address | None:
    """The daemon's address: what is typed goes first, then the environment, then files."""
    if url:
        return Address(_checked(url), "--url")
    if data is None and os.environ.get(URL):
        return Address(_checked(os.environ[URL]), URL)
    for folder in _folders(data):
        found = _in_folder(folder)
        if found is not None:
            return found
    return None


def _folders(data: Path | None) -> Iterator[Path]:
    stated = data or (Path(os.environ[DATA]) if os.environ.get(DATA) else None)
    if stated is not None:
        yield stated
        return
    if _is_own(Path(HERE)):
        yield Path(HERE)
    yield user_data_folder()


def _is_own(folder: Path) -> bool:
    """Whether nobody but this user (or root) can have put the address there.

    A folder that somebody happens to be in may be anybody's: jobs, with the keys in their environment,
    would go wherever it says.
    """
    path = folder / ADDRESS
    try:
        owners = {each.stat().st_uid for each in (folder, path)}
    except OSError:
        return True  # no address, or one that cannot be read: reading it says so
    if owners <= {os.geteuid(), ROOT}:
        return True
    sys.stderr.write(
        f"Note: {path} belongs to somebody else and is not used: give --data {folder} if you trust it.\n"
    )
    return False


def _in_folder(folder: Path) -> Address | None:
    path = folder / ADDRESS
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}."
        ) from None
    try:
        url = json.loads(text)["url"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{path} holds no address: give the daemon's with --url, or start it again."
        ) from None
    return Address(_checked(str(url)), str(path))


def _checked(url: str) -> str:
    stated = url if "://" in url else f"http://{url}"
    if not stated.startswith(("http://", "https://")):
        raise BadInput(f"`{url}` is not the address of a manager: write http://HOST:PORT.")
    return stated.rstrip("/")
