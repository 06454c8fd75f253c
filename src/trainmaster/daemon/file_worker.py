"""The process that touches files of users for the manager: one request after another until the last.

A request is a line of JSON on standard input, its answer a line on standard output: `{"done": …}`, or
`{"refused": "a sentence"}`. What takes too long is ended from outside, by killing this process. With an
account as its argument it is that user before it reads the first request.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainmaster.daemon import code_snapshot, outputs, submitted_program
from trainmaster.daemon.code_snapshot import CopyLimits
from trainmaster.daemon.request_errors import RequestError
from trainmaster.engines.local.privileges import account_in, become
from trainmaster.engines.local.processes import die_with_parent, set_process_name
from trainmaster.engines.local.program_files import Seen
from trainmaster.failures.input_blocks import MISSING
from trainmaster.model.launch_spec import Account

MOST_MEMORY = 4 << 30
"""Bytes of address space, Git's included."""


def look(workdir: str, data: list[str], commands: list[list[str]], user: str = "") -> Seen:
    """Check that folder and data are there; the files of its program as they are now.

    No commands: nothing is listed, because the job runs in a copy or names no folder. `user` is who looks,
    where that is not the manager.
    """
    _check_folder(workdir, user)
    for path in data:
        if not os.path.exists(path):
            raise RequestError(
                f"data {path} does not exist on the manager's machine"
                f"{f', or {user} cannot see it' if user else ''}: mount it, or correct the path."
            )
    if not commands:
        return []
    return submitted_program.program_list(workdir, [tuple(each) for each in commands])


def stamp(path: str) -> str:
    """What a path is like: another answer means that it has changed.

    Of one that does not exist: the nearest folder above it that does, without what is in that.
    """
    try:
        seen = os.stat(path)
    except FileNotFoundError:
        return _stamp_of_missing(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"{seen.st_ino} {seen.st_mode} {seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns}"


def _stamp_of_missing(path: str) -> str:
    if not os.path.isabs(path):  # a URL
        return MISSING
    folder = os.path.dirname(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    seen = os.stat(folder)
    return f"{MISSING} in {folder} {seen.st_dev} {seen.st_ino} {seen.st_mode} {seen.st_uid} {seen.st_gid}"


def measure(workdir: str, into: str, most: list[int]) -> list[str]:
    """Check that the folder is not too large to copy; what would be left out."""
    return [*code_snapshot.choose(Path(workdir), Path(into), CopyLimits(*most)).ignored]


def copy(workdir: str, into: str, links: bool, most: list[int]) -> list[str]:
    """Copy the code of a folder; what was left out. `most`: bytes and files."""
    limits = CopyLimits(*most)
    return [*code_snapshot.keep_code(Path(workdir), Path(into), links=links, most=limits)]


def copy_again(kept: str, into: str) -> None:
    code_snapshot.copy_again(Path(kept), Path(into))


def fill(workdir: str, making: str, into: str, links: bool, most: list[int]) -> list[str]:
    """The same into a folder that is there; it is put in its place by others."""
    limits = CopyLimits(*most)
    return [*code_snapshot.fill(Path(workdir), Path(making), Path(into), links=links, most=limits)]


def fill_again(kept: str, making: str) -> None:
    code_snapshot.fill_again(Path(kept), Path(making))


def remove(folders: list[str]) -> None:
    """Remove copies of a submission that was refused after all."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def list_outputs(copied: str) -> list[Any]:
    return [*outputs.written_files(copied)]


def _check_folder(workdir: str, user: str) -> None:
    if not os.path.isdir(workdir):
        there = "is a file" if os.path.exists(workdir) else "does not exist"
        raise RequestError(
            f"workdir {workdir} {there}: name a folder that the manager's machine can see."
        )
    if not os.access(workdir, os.R_OK | os.X_OK):
        raise RequestError(
            f"workdir {workdir} cannot be read by {user or 'the manager'}: change its permissions."
        )


REQUESTS: Mapping[str, Callable[..., object]] = {
    each.__name__: each
    for each in (look, stamp, measure, copy, copy_again, fill, fill_again, remove, list_outputs)
}


def answer(line: str) -> dict[str, object]:
    asked = json.loads(line)
    try:
        return {"done": REQUESTS[asked.pop("do")](**asked)}
    except RequestError as no:
        return {"refused": str(no)}
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return {"refused": f"{where}{error.strerror or error}."}
    except MemoryError:
        return {"refused": "that takes more memory than the manager spends on it."}


def serve(account: Account | None = None) -> None:
    """As this account, which is all that it then can do; as the manager where there is none."""
    refusal = _become(account)
    die_with_parent()
    set_process_name("tm files")
    os.chdir("/")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(refusal or answer(line)) + "\n")
        sys.stdout.flush()


def _become(account: Account | None) -> dict[str, object]:
    """Give up root for the account; where that fails, what every request is answered."""
    if account is None:
        return {}
    try:
        become(account)
    except OSError as error:
        return {"refused": f"files of {account.name} cannot be looked at: {error.strerror}."}
    return {}


if __name__ == "__main__":
    serve(account_in(sys.argv[1]))
