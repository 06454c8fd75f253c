"""Whom a manager serves, and as whom jobs run: kept in the data folder, and the same at the next start."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from trainmaster.cli.support.private_folder import is_open_to_users
from trainmaster.cli.support.remembered_file import kept_text
from trainmaster.durable_files import write_whole
from trainmaster.errors import BadInput, system_reason

SERVES = "serves"
"""The file."""


class Serves(StrEnum):
    """Whom, from the fewest to the most."""

    ONE = "one account"
    USERS = "users"
    """Jobs run as the Unix users who submit them."""
    SYSTEM = "system"
    """The same, and the manager has the socket for everybody."""


def served(folder: Path, *, is_system: bool | None, runs_as_user: bool) -> Serves:
    """As it is stated, else as at the last start with this folder; it never goes back to one account."""
    before = _remembered(folder)
    if before is Serves.ONE and is_open_to_users(folder):
        before = Serves.USERS
    if is_system or (is_system is None and before is Serves.SYSTEM):
        return Serves.SYSTEM
    return Serves.USERS if runs_as_user or before is not Serves.ONE else Serves.ONE


def remember_users(folder: Path, serves: Serves) -> None:
    """For the next start."""
    write_whole(folder / SERVES, f"{serves}\n")


def _remembered(folder: Path) -> Serves:
    try:
        return Serves(kept_text(folder / SERVES).strip())
    except FileNotFoundError:
        return Serves.ONE
    except (OSError, ValueError) as error:
        why = system_reason(error) if isinstance(error, OSError) else "it is damaged"
        raise BadInput(
            f"{folder / SERVES} cannot be read ({why}), so it is not known whom the manager serves: remove"
            " it, and start with --system or --run-as-user if jobs ran as their users."
        ) from None
