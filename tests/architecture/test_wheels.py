"""Two wheels from one checkout: the manager's, and the SDK's, which training environments install alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import trainmaster
import trainmaster_sdk

ROOT = Path(__file__).parents[2]
FRAMEWORKS = (
    "accelerate",
    "balanced",
    "elastic",
    "huggingface",
    "lightning",
    "offload",
    "resize_rounds",
    "torch",
)
"""Modules for programs that have these libraries."""
IMPORT_ALL = f"""
import importlib, pkgutil, sys
import trainmaster_sdk
for found in pkgutil.iter_modules(trainmaster_sdk.__path__):
    if found.name not in {FRAMEWORKS}:
        importlib.import_module(f"trainmaster_sdk.{{found.name}}")
ours = {{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names)
print(trainmaster_sdk.__file__)
print(*sorted(name for name in ours if not name.startswith("_")))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("hatchling", reason="hatchling builds the wheels: pip install hatchling")
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "sdk"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        built = subprocess.run(command, cwd=project, text=True, stdout=-1, stderr=-2, timeout=120)
        assert built.returncode == 0, built.stdout
    return {file.name.partition("-")[0]: file for file in folder.glob("*.whl")}


def packages_in(wheel: Path) -> set[str]:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def test_each_package_is_in_one_wheel(wheels: dict[str, Path]) -> None:
    assert {name: packages_in(wheel) for name, wheel in wheels.items()} == {
        "trainmaster": {"trainmaster"},
        "trainmaster_sdk": {"trainmaster_sdk"},
    }


def test_the_sdk_installs_and_imports_alone(wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True, symlinks=True)
    python = tmp_path / "empty/bin/python"
    pip = [python, "-Im", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    subprocess.run([*pip, wheels["trainmaster_sdk"]], check=True, timeout=120)
    said = subprocess.run([python, "-Ic", IMPORT_ALL], check=True, text=True, stdout=-1, timeout=60)
    place, packages = said.stdout.splitlines()
    assert place.startswith(str(tmp_path / "empty"))
    assert packages == "trainmaster_sdk"


def test_the_two_have_one_version() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert trainmaster_sdk.__version__ == trainmaster.__version__
    assert f"trainmaster-sdk~={trainmaster.__version__}" in settings["project"]["dependencies"]


def test_the_full_package_re_exports_it() -> None:
    import trainmaster.sdk

    assert trainmaster.sdk.run is trainmaster_sdk.run
    assert set(trainmaster.sdk.__all__) == set(trainmaster_sdk.__all__)
