"""The admin token of a manager, in a file that only its user can read."""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path

import structlog

from trainmaster.daemon.accounts import Accounts, digest_of, is_valid, now_ms
from trainmaster.daemon.unix_users import own_name
from trainmaster.store.rows import TokenRow

log = structlog.get_logger("trainmaster.accounts")

FILE = "admin-token"
LABEL = "the file admin-token of the data folder"
ADMIN = "admin"
LONGEST = 1000


def token_in_file(folder: Path, digest: str) -> TokenRow | None:
    """The token of the file, where it has this digest: for a manager whose store is away."""
    text = read_private(folder / FILE)
    if not text or not hmac.compare_digest(digest_of(text), digest):
        return None
    return TokenRow(FILE, digest, own_name(), ADMIN, LABEL, 0, None, None, now_ms())


async def ensure_admin_token(accounts: Accounts, folder: Path) -> bool:
    """Write a new token where the file is missing, open to others, or not valid; whether it did."""
    place = folder / FILE
    text = read_private(place)
    if text and await accounts.token_of(text) is not None:
        return False
    for row in await accounts.tokens():
        if row.label == LABEL and is_valid(row):
            await accounts.revoke_token(row.id)
    row, text = await accounts.create_token(own_name(), ADMIN, label=LABEL)
    place.unlink(missing_ok=True)
    write_private(place, text)
    log.info("admin token written", file=str(place), token=row.id)
    return True


def forget_admin_token(folder: Path, revoked: TokenRow) -> None:
    """Remove the file of a token that was revoked; the next `trainmaster up` makes another."""
    if token_in_file(folder, revoked.digest) is not None:
        (folder / FILE).unlink(missing_ok=True)


def read_private(place: Path) -> str:
    """What is in a file of ours that is closed to others; empty where it is not such a file."""
    try:
        opened = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(opened) as file:
        found = os.fstat(opened)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours or found.st_mode & 0o077:
            return ""
        return file.read(LONGEST).strip()


def write_private(place: Path, text: str) -> None:
    """A new file that only we can read; FileExistsError where there is something already."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(place, flags, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
