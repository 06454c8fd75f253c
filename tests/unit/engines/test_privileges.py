"""What keeps other users from the files of an installation."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.privileges import closed_place, interpreter_remark
from trainmaster.model.topology import parse_shorthand


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach: those of pytest are closed."""
    made = Path(tempfile.mkdtemp()).resolve()
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def installed(place: Path) -> Path:
    """An interpreter in an environment that is open, which leads to one in a home that is closed."""
    real = place / "home" / "versions" / "bin" / "python3"
    real.parent.mkdir(parents=True)
    real.touch(mode=0o755)
    (place / "home").chmod(0o700)
    (place / "bin").mkdir(mode=0o755)
    (place / "bin" / "python").symlink_to(real)
    return place / "bin" / "python"


def test_a_link_into_a_closed_folder_is_closed(place: Path) -> None:
    python = installed(place)
    assert closed_place(str(python)) == str(place / "home")
    (place / "home").chmod(0o711)
    assert closed_place(str(python)) == ""
    real = place / "home" / "versions" / "bin" / "python3"
    real.chmod(0o700)
    assert closed_place(str(python)) == str(real)


def test_a_manager_of_users_names_an_interpreter_that_they_cannot_run(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = installed(place)
    monkeypatch.setattr(sys, "executable", str(python))
    said = f"cannot run {python}, which leads to {python.resolve()}: {place / 'home'} is closed to them."
    assert said in interpreter_remark()
    for serves_users in (False, True):
        engine = LocalEngine(tmp_path, parse_shorthand("1x1"), serves_users=serves_users)
        assert (said in " ".join(engine.abilities.user_remarks)) is serves_users
    (place / "home").chmod(0o755)
    assert interpreter_remark() == ""
