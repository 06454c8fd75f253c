"""`new policy`: what it writes works as it stands, alone and in a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_policy_of_ones_own_passes_its_test_and_runs(tm, folder: Path, fig7: Path) -> None:
    said = tm("new policy my-policy")
    assert said.code == 0
    assert 'my-policy = "my_policy:MyPolicy"' in said.out
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_policy.py"],
        cwd=folder,
        text=True,
        capture_output=True,
    )
    assert tests.returncode == 0, tests.stdout
    assert "3 passed" in tests.stdout
    ran = tm(
        "simulate fig7.csv --cluster 1x2 --policy fifo,./my_policy.py --set first=old --json -"
    )
    assert [each["policy"] for each in ran.results()] == ["fifo", "my-policy"]


def test_nothing_is_overwritten(tm, folder: Path) -> None:
    (folder / "test_mine.py").write_text("precious")
    said = tm("new policy mine")
    assert said.code == 2
    assert "test_mine.py is there already; nothing was written" in said.err
    assert [path.name for path in folder.iterdir()] == ["test_mine.py"]
    assert (folder / "test_mine.py").read_text() == "precious"


def test_another_folder(tm, folder: Path) -> None:
    (folder / "lab").mkdir()
    assert tm("new policy mine --dir lab").code == 0
    assert sorted(path.name for path in (folder / "lab").iterdir()) == ["mine.py", "test_mine.py"]


@pytest.fixture
def checkout(folder: Path) -> Path:
    """A copy of the tree, as a contributor has it."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests/policies").mkdir(parents=True)
    (folder / "docs").mkdir()
    return folder


def test_inside_a_checkout_it_goes_to_the_right_places(tm, checkout: Path, fig7: Path) -> None:
    said = tm("new policy brand-new --in-tree")
    assert said.code == 0, said.err
    for name in ("src/trainmaster/policies/brand_new.py", "docs/policies/brand-new.md"):
        assert (checkout / name).exists()
    catalog = (checkout / "src/trainmaster/catalog.py").read_text()
    assert '    "brand-new": "trainmaster.policies.brand_new:BrandNew",\n}' in catalog
    env = os.environ | {"PYTHONPATH": str(checkout / "src")}

    def succeeds(*command: str) -> None:
        ended = subprocess.run(command, cwd=checkout, env=env, text=True, capture_output=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    python = sys.executable
    succeeds(python, "-m", "pytest", "-q", "-n0", "tests/policies/test_brand_new.py")
    succeeds(python, "-m", "ruff", "check", "src/trainmaster/policies", "tests/policies")
    succeeds(python, "-m", "ruff", "format", "--check", "src/trainmaster/policies/brand_new.py",
             "tests/policies/test_brand_new.py", "src/trainmaster/catalog.py")  # fmt: skip
    line = "simulate fig7.csv --cluster 1x2 --policy brand-new"
    succeeds(python, "-m", "trainmaster", *line.split())


def test_a_name_of_an_existing_module_changes_nothing(tm, checkout: Path) -> None:
    before = (checkout / "src/trainmaster/catalog.py").read_text()
    (checkout / "src/trainmaster/policies/guards.py").touch()
    said = tm("new policy guards --in-tree")
    assert said.code == 2
    assert "is there already" in said.err
    assert (checkout / "src/trainmaster/catalog.py").read_text() == before
    assert not (checkout / "docs/policies").exists()
