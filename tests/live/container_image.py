"""An image for tests of containers: this Python, the SDK and a shell, out of files of this machine."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import trainmaster_sdk

PROGRAMS = ("sh", "cat", "echo", "id", "ls", "sleep", "touch", "env", "kill", "stat", "true")
LEFT_OUT = frozenset(
    {"test", "site-packages", "ensurepip", "idlelib", "tkinter", "lib2to3", "__pycache__"}
)
FOLDERS = ("tmp", "var", "var/tmp", "etc", "dev", "proc", "sys", "root", "bin")
ACCOUNTS = {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n", "etc/group": b"root:x:0:\n"}
PYTHON = "/usr/bin/python3"
"""Where it is in the image."""


def write_image(path: Path) -> None:
    """A root file system as a tar archive, for `import`: no registry is asked."""
    with tarfile.open(path, "w") as tar:
        written: set[str] = set()
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if "tmp" in folder else 0o755
            tar.addfile(entry)
        for name, content in ACCOUNTS.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
        for source, target in _files():
            if target not in written:
                written.add(target)
                tar.add(source, target.lstrip("/"), recursive=False)
        link = tarfile.TarInfo(PYTHON.lstrip("/"))
        link.type, link.linkname = tarfile.SYMTYPE, str(Path(sys.executable).resolve())
        tar.addfile(link)


def _files() -> Iterator[tuple[Path, str]]:
    """Each with where it is in the image: where it is here, but for programs."""
    library = Path(sysconfig.get_path("stdlib"))
    own = Path(sys.executable).resolve()
    programs = {name: Path(shutil.which(name) or name).resolve() for name in PROGRAMS}
    compiled = [*library.glob("lib-dynload/*.so")]
    for found in _below(library):
        yield found, str(found)
    sdk = Path(trainmaster_sdk.__file__).parent
    for found in _below(sdk):
        yield found, str(library / "site-packages" / sdk.name / found.relative_to(sdk))
    yield own, str(own)
    for name, program in programs.items():
        yield program, f"/bin/{name}"
    for shared in _libraries([own, *compiled, *programs.values()]):
        yield shared.resolve(), str(shared)


def _below(folder: Path) -> Iterator[Path]:
    for each in sorted(folder.rglob("*")):
        parts = each.relative_to(folder).parts
        is_left_out = LEFT_OUT.intersection(parts) or parts[0].startswith("config-")
        if each.is_file() and not is_left_out:
            yield each


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that they need, by the dynamic linker's own word."""
    found = set()
    for program in programs:
        said = subprocess.run(
            ["ldd", str(program)], capture_output=True, text=True, check=True
        ).stdout
        words = (word for word in said.split() if word.startswith("/"))
        found.update(Path(word) for word in words)
    return found
