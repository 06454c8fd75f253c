"""`profile program`, `profile links` and `estimate --speed`, from a program to a curve."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said, Tm
from trainmaster.client.program_profiles import (
    StoredProfile,
    keep,
    place_of,
    with_profile,
)
from trainmaster.config.job_file import ProfileEntry, job_file_of
from trainmaster.model.profile import STATED, STATED_MEMORY, Profile

TRAIN = """
import torch
model = torch.nn.Linear(100, 10, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 100)).sum().backward()
    optimizer.step()
"""
PROFILE = {"step_us": 100_000, "batch": 32, "sync_bytes": 550_000_000}
LINKS = "links:\n  node: {gb_s: 10, latency_us: 10}\n  rack: {gb_s: 1, latency_us: 50}\n"


@pytest.fixture(autouse=True)
def own_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("TRAINMASTER_DATA", str(folder / "manager"))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return folder / "data"


@pytest.fixture
def profile(write: Callable[[str, str], Path]) -> Path:
    said = {"command": ["python", "train.py"], "workdir": "/", "device": "CPU", "profile": PROFILE}
    return write("train.profile", json.dumps(said))


@pytest.mark.slow
def test_a_program_is_profiled_and_its_jobs_carry_the_profile(
    tm: Tm, folder: Path, write: Callable[[str, str], Path]
) -> None:
    write("train.py", TRAIN)
    words = [sys.executable, "train.py"]
    line = f"profile program --seconds 1 --out p.json --json -- {shlex.join(words)}"
    answer = json.loads(_well(tm(line)).out)
    found = answer["profile"]
    assert found["sync_bytes"] == 4 * 100 * 10
    assert found["batch"] == 8
    assert found["step_us"] > 0
    assert found["cpu_us"] > 0
    assert json.loads((folder / "p.json").read_text()) == answer
    spec = with_profile({"command": words, "workdir": str(folder)})
    assert spec["profile"] == found
    assert job_file_of(spec).profile is not None
    curve = json.loads(_well(tm("estimate p.json --speed --links usual --cluster 1x2 --json")).out)
    assert curve["curves"][0]["samples_per_s"] == pytest.approx(8e6 / found["step_us"])


def test_a_curve_shows_the_steps_of_the_topology(
    tm: Tm, profile: Path, write: Callable[[str, str], Path]
) -> None:
    write("links.yaml", LINKS)
    said = _well(tm("estimate train.profile --speed --links links.yaml --cluster 2x2"))
    rows = [line.split() for line in said.out.splitlines()[1:5]]
    assert [(row[0], row[1]) for row in rows] == [
        ("1", "1"),
        ("2", "2"),
        ("3", "2+1"),
        ("4", "2+2"),
    ]
    assert "Slower with more: 2 devices on 1 node" in said.out
    assert "Note" not in said.err
    answer = json.loads(
        _well(tm("estimate train.profile --speed --links links.yaml --cluster 2x2 --json")).out
    )
    assert [each["devices"] for each in answer["curves"]] == [1, 2, 3, 4]
    assert answer["links"]["rack"] == {"gb_s": 1.0, "latency_us": 50}


def test_links_of_the_cluster_file_count_and_missing_levels_are_named(
    tm: Tm, profile: Path, write: Callable[[str, str], Path]
) -> None:
    write("c.yaml", "nodes: [{gpus: 2, count: 2}]\nlinks: {rack: {gb_s: 1, latency_us: 50}}\n")
    said = _well(tm("estimate train.profile --speed --cluster c.yaml"))
    assert (
        "no link was measured at the level node: a usual one is assumed (10 GB/s, 15 µs)"
        in said.err
    )
    assert "level rack" not in said.err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "estimate gone.profile --speed --cluster 1x2",
            "there is no file gone.profile: measure it",
        ),
        ("estimate train.profile --speed --cluster 1x2", "no links have been measured"),
        (
            "estimate bare.profile --speed --links usual",
            "its parameters are not known on one device",
        ),
        ("estimate torn.profile --speed --links usual", "is not a profile: write one with"),
        ("estimate odd.profile --speed --links usual", "step_us"),
        ("estimate train.profile --speed --links gone.yaml", "gone.yaml cannot be read"),
        ("profile program --seconds 0 -- true", "--seconds 0 is not a length of time"),
        ("profile links --nodes 2", "say which node this is with --rank, 0 to 1"),
        ("profile links --nodes 2 --rank 2", "say which node this is with --rank, 0 to 1"),
        ("profile links --nodes 2 --rank 0", "say where they meet with --meet"),
        ("profile links --nodes 2 --rank 0 --meet here", "say where they meet with --meet"),
        ("profile links --devices 1", "there is one device, and nothing to measure"),
        ("profile links --python /none/python", "cannot start /none/python"),
        ("profile links --python /bin/false", "a process that measures died"),
    ],
)
def test_bad_input(
    tm: Tm, profile: Path, write: Callable[[str, str], Path], line: str, why: str
) -> None:
    said = {"command": ["x"], "workdir": "/", "device": "CPU"}
    write("bare.profile", json.dumps(said | {"profile": {"step_us": 5}}))
    write("odd.profile", json.dumps(said | {"profile": {"step_us": -5}}))
    write("torn.profile", '{"command": ["x"')
    answer = tm(line)
    assert answer.code != 0
    assert why in answer.err


def test_a_job_file_may_state_what_is_kept() -> None:
    assert {*STATED, *STATED_MEMORY} == set(ProfileEntry.model_fields)


def test_a_profile_is_of_a_folder_and_a_command(folder: Path) -> None:
    stored = StoredProfile(
        ("python", "train.py"), str(folder), "CPU", Profile(**PROFILE, per_gpu=True)
    )
    keep(stored, None)
    same = with_profile({"command": "python  train.py", "workdir": str(folder)})
    assert same["profile"] == PROFILE, "a text is split as the shell does"
    for other in (
        {"command": "python train.py", "workdir": "/"},
        {"command": "python train.py --lr 1", "workdir": str(folder)},
        {"command": "python 'train.py", "workdir": str(folder)},
    ):
        assert "profile" not in with_profile(other)
    own = {"command": "python train.py", "workdir": str(folder), "profile": {"step_us": 7}}
    assert with_profile(own) == own
    assert (
        place_of(str(folder), ("python", "train.py")).parent == folder / "data/trainmaster/profiles"
    )


def _well(said: Said) -> Said:
    assert said.code == 0, said.err
    return said
