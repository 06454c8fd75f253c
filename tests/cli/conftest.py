"""The command line as its users have it: arguments in, exit code and words out, in an empty folder."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cli.main import main

FIG7 = "job_id,submit_s,gpus,duration_s\n1,0,2,2\n2,0,1,8\n3,0,2,6\n"


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    def results(self) -> list[dict[str, Any]]:
        """The results of `--json -`."""
        assert self.code == 0, self.err
        found: list[dict[str, Any]] = json.loads(self.out)["results"]
        return found


Tm = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command runs in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINMASTER_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def tm(folder: Path, capsys: pytest.CaptureFixture[str]) -> Tm:
    """Run a command in this process: a line as one would type it, and further arguments."""

    def run(line: str, *more: object) -> Said:
        capsys.readouterr()
        try:
            code = main([*shlex.split(line), *map(str, more)])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture
def process(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command as a process of its own: for signals, limits and the environment."""

    def run(
        line: str,
        *,
        env: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trainmaster", *shlex.split(line)],
            cwd=folder,
            env=os.environ | (env or {}),
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            preexec_fn=before,
        )

    return run


@pytest.fixture
def write(folder: Path) -> Callable[[str, str], Path]:
    """Put a file into the folder."""

    def put(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    return put


@pytest.fixture
def fig7(write: Callable[[str, str], Path]) -> Path:
    return write("fig7.csv", FIG7)
