"""A digest of the code that a result depends on, so that an outdated result is never reused."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from inspect import getsourcefile
from pathlib import Path

from trainmaster.policy_files import policy_named

PACKAGE = Path(__file__).parents[1]


@cache
def digest_of_policy(name: str) -> str:
    """Changes with the versions of Python and NumPy, with our code, and with the file of a user's policy."""
    own = getsourcefile(policy_named(name))
    assert own is not None, f"{name} has no source file"
    files = sorted(PACKAGE.rglob("*.py"))
    listed = [f"{file.relative_to(PACKAGE)} {file_digest(file)}" for file in files]
    made_with = (str(sys.version_info[:2]), version("numpy"))
    return sha256("\n".join((*made_with, *listed, file_digest(Path(own)))).encode()).hexdigest()


@cache
def file_digest(path: Path) -> str:
    """Of a file's bytes; of a folder's, those of all files in it, with their names."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        listed = [f"{each.relative_to(path)} {file_digest(each)}" for each in files]
        return sha256("\n".join(listed).encode()).hexdigest()
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
