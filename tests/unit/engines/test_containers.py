"""What a run has left of its containers, told by programs that play an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.local.containers import remove
from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile

ENGINE = """#!/bin/sh
echo "$@" >> "$0.asked"
[ "$1" != ps ] || cat "$0.there"
"""


def run_in(folder: Path, engine: str) -> RunFile:
    return RunFile(
        name="12.1",
        generation=0,
        workdir="/",
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        ranks=(RankSpec(("true",), {}),),
        socket="/tmp/tm/own.sock",
        grace_ms=1000,
        log_bytes=1000,
        log_files=1,
        placement="",
        cgroups=CgroupPlan(),
        container_engine=engine,
    )


def play(folder: Path, engine: str, script: str = ENGINE) -> Path:
    program = folder / engine
    program.write_text(script)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("engine", "removal"),
    [("docker", "rm --force one two"), ("podman", "rm --force --time 0 one two")],
)
def test_all_that_have_the_runs_label_are_removed(
    tmp_path: Path, engine: str, removal: str
) -> None:
    program = play(tmp_path, engine)
    Path(f"{program}.there").write_text("one\ntwo\n")
    remove(run_in(tmp_path, engine))
    looked = "ps --all --quiet --filter label=trainmaster.socket=/tmp/tm/own.sock"
    assert Path(f"{program}.asked").read_text().splitlines() == [looked, removal]


def test_where_none_are_left_none_are_removed(tmp_path: Path) -> None:
    program = play(tmp_path, "docker")
    Path(f"{program}.there").write_text("")
    remove(run_in(tmp_path, "docker"))
    assert len(Path(f"{program}.asked").read_text().splitlines()) == 1


def test_an_engine_that_does_not_answer_may_have_some(tmp_path: Path) -> None:
    play(tmp_path, "docker", "#!/bin/sh\necho no daemon >&2; exit 1\n")
    with pytest.raises(OSError, match="docker ps: no daemon"):
        remove(run_in(tmp_path, "docker"))


def test_an_engine_that_is_not_installed_has_none(tmp_path: Path) -> None:
    run = run_in(tmp_path, "podman")
    run.env["PATH"] = str(tmp_path)
    remove(run)
