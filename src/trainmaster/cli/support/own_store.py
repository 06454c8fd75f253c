"""The store of a data folder, for commands that read or write it without its manager."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.cli.support.database_option import database_of
from trainmaster.client.address import DATA, SYSTEM_FOLDER, state_folder
from trainmaster.client.peer_check import ROOT
from trainmaster.daemon.data_folder import store_mark
from trainmaster.errors import BadInput, system_reason

USUAL = "trainmaster.db"
"""The file of a store in its data folder."""


def sqlite_in(folder: Path) -> str:
    return f"sqlite:///{folder}/{USUAL}"


def managed_folder(stated: Path | None) -> Path:
    """The data folder that is meant; for root that of the manager for everybody, where it has none itself."""
    own = state_folder(stated)
    is_usual = stated is None and not os.environ.get(DATA)
    if is_usual and os.geteuid() == ROOT and not own.exists() and SYSTEM_FOLDER.is_dir():
        return SYSTEM_FOLDER
    return own


def store_of(folder: Path, database: str | None, database_file: Path | None) -> str:
    """The database that flags or the environment name, else the one that the folder was used with last."""
    stated = database_of(database, database_file)
    if stated is not None:
        return stated
    mark = store_mark(folder)
    if mark is None or (
        mark.database.startswith("sqlite:") and mark.database.endswith(f"/{USUAL}")
    ):
        return sqlite_in(folder)  # the folder may have been moved since
    return mark.database


def refuse_others_folder(folder: Path, *, root_may: bool) -> None:
    """BadInput for a data folder of another user; root may read any, and would leave files of its own."""
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be read ({system_reason(error)}): only its owner may do this there."
        ) from None
    own = os.geteuid()
    if owner == own or (root_may and own == ROOT):
        return
    raise BadInput(
        f"{folder} belongs to the user with the id {owner}: only that user may do this there."
    )
