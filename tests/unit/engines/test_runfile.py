"""Run files are read only where this user or root has written them: others may have put something there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.engines.local import runfile

READ = """
import resource, sys
from trainmaster.engines.local import runfile
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
try:
    found = runfile.newest(sys.argv[1])
except ValueError as problem:
    print(problem)
else:
    print("read", found)
print(runfile.stated(sys.argv[1], "socket"))
"""
"""In a process of its own, which may wait for ever or run out of memory."""


def said_of(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, timeout=120
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def a_link(path: Path) -> None:
    written = path.with_name("elsewhere.json")
    written.write_text(json.dumps({"socket": "/x"}))
    path.symlink_to(written)


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (os.mkfifo, "is not a file of this user"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
        (a_link, "is a link"),
    ],
    ids=["pipe", "zeros", "link"],
)
def test_what_is_not_a_file_is_not_waited_for(
    tmp_path: Path, put: Callable[[Path], None], said: str
) -> None:
    put(tmp_path / "run.json")
    why, socket = said_of(tmp_path)
    assert why.endswith(said)
    assert socket == "None"


def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("This test gives a file to another user: run it as root.")
    (tmp_path / "run.json").write_text(json.dumps({"socket": "/x"}))
    assert runfile.socket_of(str(tmp_path)) == "/x"
    os.chown(tmp_path / "run.json", 61_001, 61_001)
    assert runfile.socket_of(str(tmp_path)) is None
    with pytest.raises(ValueError, match="not a file of this user"):
        runfile.read(str(tmp_path))


def test_no_more_is_read_than_a_run_file_may_have(tmp_path: Path) -> None:
    with open(tmp_path / "run.json", "wb") as file:
        file.truncate(10 * runfile.LARGEST)
    with pytest.raises(ValueError, match="is longer than"):
        runfile.read(str(tmp_path))
