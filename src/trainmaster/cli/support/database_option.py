"""Which database `trainmaster up` is told to use."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl

from trainmaster.cli.support.console import remark
from trainmaster.errors import BadInput, Failed
from trainmaster.input_files import read_text
from trainmaster.store.errors import BadAddress, StoreError
from trainmaster.store.open import check_address

VARIABLE = "TRAINMASTER_DATABASE"
PASSWORD = re.compile(r"[^/]*://[^/@]*:[^/@]+@")
SECRETS = frozenset({"password", "sslpassword"})
"""Parameters of an address that are secret."""


def database_of(url: str | None, file: Path | None) -> str | None:
    """The database that flags or the environment name, if it can be used."""
    found = _named(url, file)
    if found is not None:
        try:
            check_address(found)
        except BadAddress as error:
            raise BadInput(str(error)) from None
        except StoreError as error:  # its package is not installed
            raise Failed(str(error)) from None
    return found


def _named(url: str | None, file: Path | None) -> str | None:
    """A password in a flag is seen by everybody."""
    if url is not None and file is not None:
        raise BadInput("--database and --database-file exclude each other: say one of them.")
    if file is not None:
        found = read_text(file, "--database-file").strip()
        if not found or "\n" in found:
            raise BadInput(f"--database-file {file} must hold one line, the database's address.")
        return found
    if url is not None and _has_password(url):
        remark(
            "Note",
            (
                "everybody on this machine can read the password in the process list: use"
                " --database-file, TRAINMASTER_DATABASE or ~/.pgpass",
            ),
        )
    return url or os.environ.get(VARIABLE) or None


def _has_password(url: str) -> bool:
    parameters = parse_qsl(url.partition("?")[2])
    return PASSWORD.match(url) is not None or not SECRETS.isdisjoint(dict(parameters))
