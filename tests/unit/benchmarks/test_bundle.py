"""The bundle for machines without a network: nothing it needs is missing, nothing heavy is in it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.gpu.bundle import ABSENT, ROOT, missing, wanted

MANAGER = (
    *("trainmaster.cli.main", "trainmaster.cli.up", "trainmaster.cli.ps", "trainmaster.cli.submit"),
    *("trainmaster.api.app", "trainmaster.api.server", "trainmaster.daemon.daemon"),
    *("trainmaster.daemon.driver", "trainmaster.engines.local.engine", "trainmaster.store.open"),
    *(
        "trainmaster.gpu.devices",
        "trainmaster.policies.gandiva",
        "trainmaster.policies.trainmaster",
    ),
    *(
        "trainmaster.policies.antman",
        "trainmaster.policies.big_brain",
        "trainmaster.whatif.forecast",
    ),
)


def _wheel(folder: Path, name: str, *requires: str) -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    lines = [f"Name: {name}", "Version: 1", *(f"Requires-Dist: {each}" for each in requires)]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}-1.dist-info/METADATA", "\n".join(lines))
    return path


def test_a_package_that_a_wheel_requires_must_be_there(tmp_path: Path) -> None:
    wheels = [
        _wheel(tmp_path, "one", "Two_Words>=1", "numpy", "old; python_version < '3.12'"),
        _wheel(tmp_path, "three", "more; extra == 'all'", "one"),
    ]
    assert missing(wheels) == ["two-words"]
    assert missing([*wheels, _wheel(tmp_path, "two.words")]) == []


def test_heavy_packages_stay_out() -> None:
    asked = " ".join(wanted(ROOT / "pyproject.toml"))
    assert "fastapi" in asked
    assert not [each for each in (*ABSENT, "trainmaster-sdk") if each in asked]


def test_the_manager_starts_without_them() -> None:
    blocked = "".join(f"sys.modules[{each!r}] = None\n" for each in sorted(ABSENT))
    code = f"import sys\n{blocked}import {', '.join(MANAGER)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
