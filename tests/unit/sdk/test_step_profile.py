"""What the first steps of a real PyTorch program show: parameters, CPU time, examples of a step."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.sdk.fake_supervisor import booth
from tests.unit.sdk.test_path_entry import PATH_ENTRY
from tests.unit.sdk.test_path_entry import python as started

pytestmark = pytest.mark.slow
BEGIN = """
import torch
from torch import nn
body = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
body[0].bias.requires_grad = False
loss_of, target = nn.CrossEntropyLoss(), torch.zeros(16, dtype=torch.int64)
optimizer = torch.optim.SGD([each for each in body.parameters()], lr=0.1)
def step():
    optimizer.zero_grad()
    loss_of(body(torch.randn(16, 8)), target).backward()
    optimizer.step()
"""
TRAINED_BYTES = 4 * (8 * 4 + 4 * 2)
PASSES = {
    "one pass": ("for _ in range(30): step()", 16),
    "accumulated": (
        "for _ in range(30):\n    body(torch.randn(16, 8)).sum().backward()\n    step()",
        32,
    ),
    "evaluated in between": (
        "for _ in range(30):\n    step()\n    with torch.no_grad(): body(torch.randn(64, 8))",
        16,
    ),
    "by name": (
        "body.forward = lambda *, x: nn.Sequential.forward(body, x)\n"
        "for _ in range(30):\n    optimizer.zero_grad(); body(x=torch.randn(16, 8)).sum().backward()\n"
        "    optimizer.step()",
        16,
    ),
    "one optimizer after another": (
        "for _ in range(3): step()\n"
        "optimizer = torch.optim.Adam(body.parameters())\n"
        "for _ in range(27): step()",
        16,
    ),
    "two optimizers": (
        "head = nn.Linear(2, 2, bias=False); other = torch.optim.SGD(head.parameters(), lr=0.1)\n"
        "for _ in range(30):\n    optimizer.zero_grad(); head(body(torch.randn(16, 8))).sum().backward()\n"
        "    optimizer.step(); other.step()",
        16,
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_profile_in_a_file(tmp_path: Path, name: str) -> None:
    code, batch = PASSES[name]
    file = tmp_path / "profile"
    path = f"{PATH_ENTRY}:{_site_packages()}"
    started(BEGIN + code, path=path, TRAINMASTER_STEP_PROFILE=str(file))
    said = json.loads(file.read_text())
    more = 4 * 2 * 2 if name == "two optimizers" else 0
    assert said["sync_bytes"] == TRAINED_BYTES + more, "frozen parameters do not travel"
    assert said["batch"] == batch
    assert said["cpu_us"] > 0


def test_a_supervisor_is_told_without_a_hook_on_modules() -> None:
    code = BEGIN + (
        "for _ in range(30): step()\n"
        "hooks = torch.nn.modules.module._global_forward_pre_hooks\n"
        "print(len(hooks))"
    )
    path = f"{PATH_ENTRY}:{_site_packages()}"
    with booth() as supervisor:
        said, _ = started(code, path=path, TRAINMASTER_SOCKET=str(supervisor.path))
        told = supervisor.wait_for("profile", 2)
    assert said.strip() == "0"
    assert {each["sync_bytes"] for each in told} == {TRAINED_BYTES}
    assert all("batch" not in each for each in told)


def _site_packages() -> str:
    return next(each for each in sys.path if each.endswith("site-packages"))
