"""The path entry in real programs: what it does for one that trains, and that all others notice nothing.

`torch` here is a small stand-in with the hook of the real one, which takes seconds to import;
tests/live/test_counted_steps.py uses that.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster_sdk
from tests.unit.sdk.fake_supervisor import FakeSupervisor, booth, environment

PYTHON = sys._base_executable
"""Without our packages, as a training environment is."""
PATH_ENTRY = Path(trainmaster_sdk.__file__).parent / "path_entry"
OPTIMIZER = """
hooks = {}
class Handle:
    def __init__(self, number): self.number = number
    def remove(self): hooks.pop(self.number, None)
def register_optimizer_step_post_hook(hook):
    hooks[len(hooks)] = hook
    return Handle(len(hooks) - 1)
class SGD:
    def step(self):
        for hook in [*hooks.values()]: hook(self, (), {})
"""
TRAIN = """
import torch.optim
one, other = torch.optim.SGD(), torch.optim.SGD()
"""
COUNTED = """
from trainmaster_sdk import step_counter
print(step_counter._installed[0].steps)
"""


@pytest.fixture
def supervisor() -> Iterator[FakeSupervisor]:
    with booth() as opened:
        yield opened


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder of packages as in a training environment: it has torch, and not the SDK."""
    (tmp_path / "library/torch/optim").mkdir(parents=True)
    (tmp_path / "library/torch/__init__.py").write_text("")
    (tmp_path / "library/torch/optim/__init__.py").write_text("from torch.optim.optimizer import *")
    (tmp_path / "library/torch/optim/optimizer.py").write_text(OPTIMIZER)
    return tmp_path / "library"


def python(code: str, *flags: str, path: str | None = None, **env: str) -> tuple[str, str]:
    """Output and errors of a program, which must end well. None: without any PYTHONPATH."""
    own = environment(**env)
    own.pop("PYTHONPATH", None)
    if path is not None:
        own["PYTHONPATH"] = path
    ended = subprocess.run(
        [PYTHON, *flags, "-c", code], env=own, text=True, capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def train(
    supervisor: FakeSupervisor, library: Path, code: str, *flags: str, **env: str
) -> tuple[str, str]:
    path = f"{PATH_ENTRY}:{library}"
    return python(TRAIN + code, *flags, path=path, TRAINMASTER_SOCKET=str(supervisor.path), **env)


def test_steps_of_an_unmodified_program_are_reported(
    supervisor: FakeSupervisor, library: Path
) -> None:
    train(supervisor, library, "for _ in range(120): one.step()")
    supervisor.wait_for("progress")
    *_, last = supervisor.heard
    assert (last["say"], last["step"], last["counted"]) == ("progress", 120, True)
    assert "total_steps" not in last


def test_the_last_steps_before_a_hang_are_reported(
    supervisor: FakeSupervisor, library: Path
) -> None:
    slow = "import os, time\nfor _ in range(3): one.step(); time.sleep(0.15)\nos._exit(0)"
    train(supervisor, library, slow)  # no word at its end, as where it hangs
    assert supervisor.wait_for("progress", 3)[-1]["step"] == 3


def test_it_claims_no_session_and_so_cannot_save(supervisor: FakeSupervisor, library: Path) -> None:
    train(supervisor, library, "one.step()")
    supervisor.wait_for("progress")
    assert supervisor.said("hello") == supervisor.said("done") == []


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        ("one.step(); other.step()", 10),
        ("one.step(); one.step(); one.step(); other.step()", 30),
        ("torch.optim.SGD", 0),
    ],
)
def test_optimizers_that_take_turns_make_one_step(
    supervisor: FakeSupervisor, library: Path, loop: str, steps: int
) -> None:
    code = f"for _ in range(10): {loop}"
    said, _ = train(supervisor, library, code + COUNTED)
    assert said == f"{steps}\n"


def test_an_unmodified_program_keeps_the_pace(supervisor: FakeSupervisor, library: Path) -> None:
    """At 0 it stands still in the hook until the pace is raised."""
    code = """
from trainmaster_sdk import step_counter
step_counter.REPORT_S = 0.0
one.step()
counter = step_counter._installed[0]
while counter._pacer.pace: one.step()
print(counter.steps)
one.step()
print(counter._pacer.pace)
"""
    has_ended = threading.Event()
    asking = threading.Thread(target=_hold_back, args=(supervisor, has_ended))
    asking.start()
    try:
        said, _ = train(supervisor, library, code)
    finally:
        has_ended.set()
        asking.join()
    held_at, pace = map(int, said.split())
    assert (held_at > 0, pace) == (True, 100)


def _hold_back(supervisor: FakeSupervisor, has_ended: threading.Event) -> None:
    """Again and again: a slow program may hear two paces at once."""
    supervisor.wait_for("progress")
    while not has_ended.is_set():
        for pace in (0, 100):
            supervisor.ask({"ask": "pace", "pace": pace})
            has_ended.wait(0.2)


def test_another_rank_counts_nothing(supervisor: FakeSupervisor, library: Path) -> None:
    train(supervisor, library, "one.step()", RANK="1", WORLD_SIZE="2")
    assert supervisor.heard == []


def test_a_rank_by_the_word_of_torch_distributed_counts_nothing(
    supervisor: FakeSupervisor, library: Path
) -> None:
    (library / "torch/distributed.py").write_text(
        "is_available = is_initialized = lambda: True\nget_rank = lambda: 3\n"
    )
    train(supervisor, library, "import torch.distributed; one.step()")
    assert supervisor.heard == []


def test_a_forked_worker_counts_nothing(supervisor: FakeSupervisor, library: Path) -> None:
    code = """
import os, time
one.step()
if os.fork() == 0:
    from trainmaster_sdk import step_counter
    step_counter._installed[0]._due_at = 0
    for _ in range(50): one.step()
    os._exit(0)
os.wait()
one.step()
"""
    train(supervisor, library, code)
    supervisor.wait_for("progress", 2)
    assert [said["step"] for said in supervisor.heard] == [1, 2]


def test_a_session_reports_instead(supervisor: FakeSupervisor, library: Path) -> None:
    code = """
import trainmaster_sdk
with trainmaster_sdk.run() as tm:
    for step in range(5):
        one.step()
        tm.progress(step=100 + step)
"""
    train(supervisor, library, code, TRAINMASTER_CHECKPOINT_DIR=str(library.parent / "kept"))
    supervisor.wait_for("done")
    assert {said["step"] for said in supervisor.said("progress")} <= set(range(100, 105))
    assert not any("counted" in said for said in supervisor.heard)


@pytest.mark.parametrize("flag", ["-S", "-I", "-E"])
def test_programs_without_a_site_go_without(flag: str, tmp_path: Path) -> None:
    code = "import sys; print('sitecustomize' in sys.modules)"
    assert python(code, flag, path=str(PATH_ENTRY)) == python(code, flag)


def test_counting_can_be_switched_off(supervisor: FakeSupervisor, library: Path) -> None:
    train(supervisor, library, "one.step()", TRAINMASTER_COUNT_STEPS="0")
    assert supervisor.heard == []


def test_without_torch_the_program_sees_no_difference() -> None:
    code = (
        "import sys; print(sys.path, sorted(sys.modules));"
        "print('importlib.util' in sys.modules, 'socket' in sys.modules)"
    )
    env = {"TRAINMASTER_SOCKET": "/nowhere"}
    assert python(code, path=str(PATH_ENTRY), **env) == python(code, **env)


OWN = {
    "one that prints": "print('own', __name__)",
    "one that fails": "raise ValueError('own mistake')",
    "one that imports what is missing": "import not_there",
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("module", ["sitecustomize", "usercustomize"])
def test_the_program_has_its_own_sitecustomize(tmp_path: Path, name: str, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(OWN[name])
    code = f"import sys; print(getattr(sys.modules.get({module!r}), '__file__', None))"
    without = python(code, path=str(tmp_path), PYTHONNOUSERSITE="")
    with_entry = python(code, path=f"{PATH_ENTRY}:{tmp_path}", PYTHONNOUSERSITE="")
    assert with_entry[0] == without[0]
    assert with_entry[1].splitlines()[-1:] == without[1].splitlines()[-1:]


def test_what_fails_in_the_hook_does_not_reach_the_program(
    supervisor: FakeSupervisor, library: Path
) -> None:
    (library / "torch/distributed.py").write_text("def is_available(): raise OSError\n")
    said, errors = train(
        supervisor, library, "import torch.distributed; one.step(); one.step(); print('trained')"
    )
    assert (said, errors) == ("trained\n", "")


def test_a_torch_without_the_hook_goes_without(supervisor: FakeSupervisor, library: Path) -> None:
    (library / "torch/optim/optimizer.py").write_text("class SGD: pass")
    said, errors = train(supervisor, library, "print('trained')")
    assert (said, errors, supervisor.heard) == ("trained\n", "", [])


def test_a_supervisor_that_is_gone_is_no_problem(library: Path) -> None:
    said, errors = python(
        TRAIN + "one.step(); print('trained')",
        path=f"{PATH_ENTRY}:{library}",
        TRAINMASTER_SOCKET="/nowhere/s",
    )
    assert (said, errors) == ("trained\n", "")


def test_the_sdk_can_be_imported_without_being_installed() -> None:
    code = "import trainmaster_sdk.wire as w; print(w.__file__)"
    said, _ = python(code, "-s", path=str(PATH_ENTRY))
    assert said.strip() == str(PATH_ENTRY.parent / "wire.py")


def test_an_sdk_that_is_installed_goes_first(tmp_path: Path) -> None:
    (tmp_path / "trainmaster_sdk").mkdir()
    (tmp_path / "trainmaster_sdk/__init__.py").write_text("")
    said, _ = python(
        "import trainmaster_sdk as t; print(t.__file__)", path=f"{PATH_ENTRY}:{tmp_path}"
    )
    assert said.strip() == str(tmp_path / "trainmaster_sdk/__init__.py")
