"""Ignore files are read as Git reads them, and no pattern takes long to match."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trainmaster.daemon.ignore_patterns import patterns_of

NAMES = st.text("ab.", min_size=1, max_size=4).filter(lambda name: set(name) != {"."})
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
LINES = st.lists(
    st.text("ab./*?![]-\\ #", min_size=1, max_size=8).filter(lambda line: "\\ " not in line),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(lines=["[/a]"], paths=["a", "x/a"])
@example(lines=["x[b/a]/[!/]"], paths=["xa/b", "xb/a", "x/a"])
@example(lines=["[b-a]", "[a-/]c"], paths=["a", "b", "ac", "c"])
@given(lines=LINES, paths=st.lists(PATHS, min_size=1, max_size=12))
def test_git_and_we_agree(lines: list[str], paths: list[str], repository: Path) -> None:
    (repository / ".git/info/exclude").write_text("\n".join(lines) + "\n")
    asked = b"".join(path.encode() + b"\0" for path in paths)
    git = ["git", "-C", str(repository), "check-ignore", "--no-index", "-z", "--stdin"]
    done = subprocess.run(git, input=asked, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    theirs = {each.decode() for each in done.stdout.split(b"\0") if each}
    ours = patterns_of(lines)
    assert {path for path in paths if ours.excludes(path)} == theirs


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 120),
        ("*a?a*a?a*a?a*a?a*[ab]*a?a*b", "a" * 255),
        ("/".join(["**/a"] * 12) + "/b", "/".join("a" * 200)),
        ("**/*a*a*a*a*a*a*b/**/*a*a*a*a*a*a*b", "/".join(["a" * 60] * 60)),
    ],
)
def test_many_stars_end(line: str, path: str) -> None:
    assert not patterns_of([line]).excludes(path)
    assert patterns_of([line.replace("b", "a")]).excludes(path)
