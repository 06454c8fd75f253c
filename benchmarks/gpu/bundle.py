"""Build `gpu-bundle/`: all that Trainmaster needs on a GPU machine without a network.

    python -m benchmarks.gpu.bundle [FOLDER]

Wheels for Python 3.12 on x86-64 Linux, `install.sh`, and the measuring programs. What the live manager can do
without (scipy, matplotlib) or what comes with the machine's PyTorch (numpy) stays out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
ABSENT = frozenset({"numpy", "scipy", "matplotlib"})
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64")
MOST_BYTES = 60_000_000


def build(folder: Path) -> None:
    """Everything, checked; the folder is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    pip("wheel", "--no-deps", "--wheel-dir", wheels, ROOT / "sdk", ROOT)
    # The `pip` wheel is the installer there; cuda-core asks for numpy, so the CUDA wheels come alone.
    download(wheels, *wanted(ROOT / "pyproject.toml"), "pip")
    download(wheels, "--no-deps", *cuda(ROOT / "pyproject.toml"))
    copy_programs(folder)
    (folder / "benchmarks" / "__init__.py").touch()
    lacking = missing(wheels.glob("*.whl"))
    if lacking:
        sys.exit(f"the bundle lacks {', '.join(lacking)}")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > MOST_BYTES:
        sys.exit(f"the bundle has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB")
    print(f"{folder}: {len(list(wheels.iterdir()))} wheels, {size / 1e6:.1f} MB")


def copy_programs(folder: Path) -> None:
    """The measuring programs with their folders; what installs them is beside the wheels."""
    for each in sorted(HERE.rglob("*")):
        if each.suffix in {".py", ".sh"}:
            programs = folder / "benchmarks" / "gpu" / each.parent.relative_to(HERE)
            target = folder if each.suffix == ".sh" else programs
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, target)


def wanted(project: Path) -> list[str]:
    """Our dependencies, less those that stay out and the SDK, which is built from this tree."""
    stated = tomllib.loads(project.read_text())["project"]["dependencies"]
    left_out = ABSENT | {"trainmaster-sdk"}
    return [each for each in stated if canonicalize_name(Requirement(each).name) not in left_out]


def cuda(project: Path) -> list[str]:
    """The extra [gpu], with what its wheels need beside numpy."""
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    return [*extras["gpu"], "cuda-pathfinder"]


def missing(wheels: Iterable[Path]) -> list[str]:
    """Packages that a wheel of these requires and that are neither among them nor meant to be absent."""
    read = [metadata(wheel) for wheel in wheels]
    there = {canonicalize_name(str(each["Name"])) for each in read}
    asked = [Requirement(line) for each in read for line in each.get_all("Requires-Dist", [])]
    environment = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.3", "extra": ""}
    needed = {
        canonicalize_name(each.name)
        for each in asked
        if each.marker is None or each.marker.evaluate(environment)
    }
    return sorted(needed - there - ABSENT)


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        name = next(each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(file.read(name).decode())


def download(wheels: Path, *what: str) -> None:
    where = [option for name in PLATFORMS for option in ("--platform", name)]
    only = ("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp")
    pip("download", "--dest", wheels, *only, *where, *what)


def pip(*words: object) -> None:
    quiet = ("-q", "--disable-pip-version-check", "--no-input")
    subprocess.run([sys.executable, "-m", "pip", *quiet, *map(str, words)], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "gpu-bundle"))
