"""Where the token comes from that a manager is asked with.

Over a Unix socket none is sent: the kernel says who asks. Over TCP it goes only where `connection` has
checked who listens.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.client.connection import Place
from trainmaster.client.known_managers import known_managers
from trainmaster.errors import BadInput, system_reason

TOKEN = "TRAINMASTER_TOKEN"
TOKEN_FILE = "TRAINMASTER_TOKEN_FILE"
ADMIN_TOKEN = "admin-token"
"""In the data folder: the token that the first `trainmaster up` made."""


def token_for(place: Place, file: Path | None = None) -> str | None:
    """The token of an option, else of the environment, else the one that is kept for this manager."""
    if not place.is_tcp:
        return None
    stated = stated_token(file)
    if stated is not None or place.folder is None:
        return stated or known_managers().token_of(place.url)
    try:
        return read_token(place.folder / ADMIN_TOKEN)
    except BadInput:  # not there, or another user's
        return None


def stated_token(file: Path | None) -> str | None:
    """The token that the user has given, whatever the manager."""
    if file is not None:
        return read_token(file)
    if stated := os.environ.get(TOKEN, ""):
        return checked_token(stated, TOKEN)
    named = os.environ.get(TOKEN_FILE, "")
    return read_token(Path(named)) if named else None


def read_token(path: Path) -> str:
    try:
        return checked_token(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = system_reason(error) if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"the token in {path} cannot be read: {reason}.") from None


def checked_token(text: str, where: str) -> str:
    token = text.strip()
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise BadInput(f"{where} holds no token: one is a single word, as `token new` prints it.")
    return token
