"""What a manager says of its machine's ability to suspend GPU programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.local.engine import LocalEngine
from trainmaster.gpu import fake_driver, freezing_ability
from trainmaster.gpu.devices import detect_machine
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.model.topology import parse_shorthand


@pytest.mark.parametrize(
    ("version", "gpus", "missing", "can_move"),
    [
        ("580.159.04", 2, "", True),
        ("580.159.04", 1, "", False),
        ("575.51", 2, "", False),
        ("550.54", 1, "needs driver 570 or later; this is 550.54", False),
    ],
)
def test_an_engine_says_what_its_driver_can_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    gpus: int,
    missing: str,
    can_move: bool,
) -> None:
    fake_driver.make_folder(tmp_path, gpus=gpus, driver_version=version)
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = detect_machine()
    can = LocalEngine(tmp_path, machine.topology, machine.devices, machine.numbers).abilities
    assert (can.can_freeze, can.can_move_frozen) == (not missing, can_move)
    assert missing in " ".join(can.remarks)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = fake_driver.FakeDriver(fake_driver.make_folder(tmp_path))
    monkeypatch.delenv(FAKE_GPUS, raising=False)
    monkeypatch.setattr(freezing_ability, "find_spec", lambda name: None)
    said = freezing_ability.freezing_ability(["GPU-1"], driver)
    assert "pip install 'trainmaster[gpu]'" in said.missing
    slices = freezing_ability.freezing_ability(["MIG-1", "MIG-2"], driver)
    assert "MIG" in slices.missing


def test_cpu_slots_need_no_driver(tmp_path: Path) -> None:
    can = LocalEngine(tmp_path, parse_shorthand("1x4")).abilities
    assert (can.can_freeze, can.can_move_frozen) == (True, False)
