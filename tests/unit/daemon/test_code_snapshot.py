"""The code of a job is kept as it was: what is taken, what is left, what it costs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainmaster.daemon import code_snapshot as code
from trainmaster.daemon.code_snapshot import copy_again, keep_code
from trainmaster.daemon.service_api import RequestError
from trainmaster.engines.copied_files import is_as_copied


def write(base: Path, **files: str) -> None:
    for name, text in files.items():
        write_one(base, name, text)


def write_one(base: Path, name: str, text: str) -> None:
    path = base / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def held(base: Path) -> list[str]:
    """What was copied: files, and links that stay in the copy."""
    return sorted(
        str(path.relative_to(base))
        for path in base.rglob("*")
        if (path.is_file() and not path.is_symlink()) or (path.is_symlink() and not leaves(path))
    )


def leaves(link: Path) -> bool:
    return os.readlink(link).startswith("/")


def links(base: Path) -> dict[str, str]:
    """Links that lead out of the copy."""
    found = [path for path in base.rglob("*") if path.is_symlink() and leaves(path)]
    return {str(path.relative_to(base)): os.readlink(path) for path in found}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    write_one(folder, "train.py", "print(1)")
    write_one(folder, "lib/net.py", "net = 1")
    write_one(folder, "lib/__init__.py", "")
    return folder


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "state" / "jobs" / "1" / "code"


def test_a_plain_folder_is_taken_without_caches_and_environments(work: Path, into: Path) -> None:
    for name in ("__pycache__/x.pyc", ".venv/lib/a.py", "lib/node_modules/a.js", ".trainmaster/db"):
        write_one(work, name, "x")
    os.symlink("train.py", work / "main.py")
    os.mkfifo(work / "pipe")
    keep_code(work, into)
    assert held(into) == ["lib/__init__.py", "lib/net.py", "main.py", "train.py"]
    assert os.readlink(into / "main.py") == "train.py"
    assert (into / "lib/net.py").read_text() == "net = 1"


def test_editing_the_folder_afterwards_changes_nothing(work: Path, into: Path) -> None:
    keep_code(work, into)
    (work / "train.py").write_text("print(2)")
    assert (into / "train.py").read_text() == "print(1)"


def test_git_says_what_is_code(work: Path, into: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(work)]
    write(work, **{".gitignore": "*.bin\n", "data.bin": "x", "kept.bin": "y", "gone.py": "z"})
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-f", "kept.bin", "gone.py", "train.py"], check=True)
    (work / "gone.py").unlink()
    write_one(work, "vendored/in.py", "v")
    subprocess.run(["git", "init", "-q", str(work / "vendored")], check=True)
    write_one(work, "vendored/out.bin", "v")
    keep_code(work, into)
    assert held(into) == [
        ".gitignore",
        "kept.bin",
        "lib/__init__.py",
        "lib/net.py",
        "train.py",
        "vendored/in.py",
        "vendored/out.bin",
    ]
    inner = into.parent.parent / "2" / "code"
    keep_code(work / "lib", inner)
    assert held(inner) == ["__init__.py", "net.py"], (
        "a folder inside a work tree is itself the code"
    )


def test_an_ignore_file_leaves_out_more(work: Path, into: Path) -> None:
    write(
        work,
        **{".trainmasterignore": "# big\ndata/\n*.log\n!keep.log\n", "a.log": "x", "keep.log": "y"},
    )
    write_one(work, "data/huge", "x")
    keep_code(work, into)
    assert held(into) == [
        ".trainmasterignore",
        "keep.log",
        "lib/__init__.py",
        "lib/net.py",
        "train.py",
    ]


def test_what_is_ignored_is_linked_to_where_the_node_sees_it(work: Path, into: Path) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    write(work, **{".gitignore": "data/\n*.bin\n.venv/\n", "weights.bin": "w", "lib/x.bin": "x"})
    write(work, **{"data/set/1.csv": "1", ".venv/bin/python": "", "__pycache__/x.pyc": "c"})
    write_one(work, ".trainmasterignore", "big/\n")
    write_one(work, "big/file", "b")
    assert keep_code(work, into) == ()
    names = (".venv", "big", "data", "lib/x.bin", "weights.bin")
    assert links(into) == {name: str(work / name) for name in names}
    assert (into / "data/set/1.csv").read_text() == "1"
    assert all(is_as_copied(into / name) for name in names)
    other = into.parent.parent / "2" / "code"
    assert keep_code(work, other, links=False) == names
    assert links(other) == {}


def test_relative_links_that_leave_the_folder_lead_to_the_same_place(
    work: Path, into: Path
) -> None:
    (work.parent / "datasets").mkdir()
    os.symlink("../datasets", work / "data")
    os.symlink("../../datasets", work / "lib/data")
    os.symlink("../train.py", work / "lib/main.py")
    keep_code(work, into)
    outside = str(work.parent / "datasets")
    assert links(into) == {"data": outside, "lib/data": outside}
    assert os.readlink(into / "lib/main.py") == "../train.py"


@pytest.mark.parametrize("kind", ["fifo", "device", "large"])
def test_an_ignore_file_that_never_ends_is_refused(work: Path, into: Path, kind: str) -> None:
    place = work / ".trainmasterignore"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "device":
        os.symlink("/dev/zero", place)
    else:
        place.write_bytes(b"x" * (2 << 20))
    with pytest.raises(RequestError, match=r"\.trainmasterignore cannot be read: it is"):
        keep_code(work, into)


def test_copies_are_on_the_disk_before_they_have_their_name(
    work: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(code, "sync", lambda path: synced.append(path.name))
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        synced.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    keep_code(work, into)
    before = synced[: synced.index("renamed")]
    assert {"train.py", "net.py", "__init__.py", "lib"} <= set(before)
    assert synced[-2:] == ["1", "jobs"], "the names are on the disk too"


def test_half_made_copies_are_removed(work: Path, into: Path) -> None:
    keep_code(work, into)
    write_one(into.parent, "code.0123.new/train.py", "x")
    write_one(into.parent.parent / "7", "code.4567.new/train.py", "x")
    assert code.remove_incomplete(into.parent.parent) == 2
    assert os.listdir(into.parent.parent) == ["1"]
    assert os.listdir(into.parent) == ["code"]


def test_the_daemons_own_state_inside_the_folder_is_no_code(work: Path) -> None:
    into = work / "state" / "jobs" / "1" / "code"
    keep_code(work, into)
    keep_code(work, into.parent.parent / "2" / "code")
    assert held(into.parent.parent / "2" / "code") == held(into)
    assert "train.py" in held(into)


def append(path: Path, text: str) -> None:
    """Write in place, as a root user may even where the file says read-only."""
    with path.open("a") as file:
        file.write(text)


def test_what_a_job_writes_in_place_no_other_job_sees(work: Path, into: Path) -> None:
    """Hard links into one store would hand the change on to every copy of the same content."""
    other, third, last = (into.parent.parent / id / "code" for id in ("2", "3", "4"))
    keep_code(work, into)
    keep_code(work, other)
    copy_again(other, third)
    append(into / "train.py", "  # mine")
    append(third / "lib/net.py", "  # mine")
    keep_code(work, last)
    for copy in (other, last):
        assert (copy / "train.py").read_text() == "print(1)"
        assert (copy / "lib/net.py").read_text() == "net = 1"
    assert (third / "train.py").read_text() == "print(1)"
    assert (work / "train.py").read_text() == "print(1)"
    assert held(into.parent.parent) == [
        f"{id}/code/{name}"
        for id in "1234"
        for name in ("lib/__init__.py", "lib/net.py", "train.py")
    ], "nothing is kept beside the copies"


def test_a_copy_has_the_rights_of_its_source_and_may_be_written(work: Path, into: Path) -> None:
    (work / "train.py").chmod(0o755)
    (work / "lib/net.py").chmod(0o400)
    keep_code(work, into)
    copy_again(into, into.parent.parent / "2" / "code")
    for copy in (into, into.parent.parent / "2" / "code"):
        assert (copy / "train.py").stat().st_mode & 0o777 == 0o755
        assert (copy / "lib/net.py").stat().st_mode & 0o777 == 0o600


def test_a_copy_is_copied_for_a_job_submitted_together_with_it(work: Path, into: Path) -> None:
    os.symlink("train.py", work / "main.py")
    keep_code(work, into)
    other = into.parent.parent / "2" / "code"
    copy_again(into, other)
    assert held(other) == held(into)
    assert os.readlink(other / "main.py") == "train.py"
    with pytest.raises(RequestError, match="could not be copied"):
        copy_again(into.parent / "nothing", into.parent.parent / "3" / "code")


def test_what_the_job_wrote_is_told_from_what_was_copied(work: Path, into: Path) -> None:
    os.symlink("train.py", work / "main.py")
    keep_code(work, into)
    other = into.parent.parent / "2" / "code"
    copy_again(into, other)
    for copy in (into, other):
        assert all(is_as_copied(copy / name) for name in held(copy))
        append(copy / "train.py", "  # mine")
        write_one(copy, "model.pt", "weights")
        assert not is_as_copied(copy / "train.py")
        assert not is_as_copied(copy / "model.pt")
        assert is_as_copied(copy / "lib/net.py")


def test_too_much_is_refused_with_what_is_large(work: Path, into: Path) -> None:
    few_bytes, few_files = code.CopyLimits(bytes=1 << 20), code.CopyLimits(files=2)
    (work / "data").mkdir()
    (work / "data" / "set.bin").write_bytes(b"x" * (3 << 20))
    with pytest.raises(RequestError, match=r"3 MiB, more than the 1 MiB .* data/ alone has 3 MiB"):
        keep_code(work, into, most=few_bytes)
    with pytest.raises(RequestError, match=r"more than 2 files, .*snapshot: false"):
        keep_code(work, into, most=few_files)
    assert not into.exists()
    assert list(into.parent.parent.glob("*/*.new")) == []


def test_a_file_that_vanishes_or_grows_is_no_error(
    work: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = code._copy_file

    def meanwhile(source: Path, target: Path, most: int) -> None:
        if source.name == "net.py":
            source.write_text("net = 22222")
        if source.name == "train.py":
            source.unlink()
        real(source, target, most)

    monkeypatch.setattr(code, "_copy_file", meanwhile)
    keep_code(work, into)
    assert held(into) == ["lib/__init__.py", "lib/net.py"]
    assert (into / "lib/net.py").read_text() == "net = 22222"


def test_a_folder_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not exist any more"):
        keep_code(tmp_path / "nowhere", tmp_path / "state" / "jobs" / "1" / "code")


@pytest.mark.parametrize(
    ("pattern", "path", "wanted"),
    [
        ("*.log", "a/b.log", True),
        ("/*.log", "a/b.log", False),
        ("/*.log", "b.log", True),
        ("data/", "data/x/y", True),
        ("data/", "sub/data/x", True),
        ("data/", "data", False),
        ("a/b", "a/b/c", True),
        ("a/b", "x/a/b", False),
        ("**/tmp", "x/y/tmp", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**", "a/b", True),
        ("file?.[ch]", "file1.c", True),
        ("file?.[!ch]", "file1.c", False),
        ("#x", "#x", False),
        ("\\#x", "#x", True),
        ("[", "[", False),
    ],
)
def test_patterns_are_read_as_git_reads_them(
    pattern: str, path: str, wanted: bool, work: Path, into: Path
) -> None:
    write_one(work, ".trainmasterignore", pattern)
    write_one(work, path, "x")
    keep_code(work, into)
    assert (path not in held(into)) is wanted
