"""NVIDIA's codes: what each asks for."""

from __future__ import annotations

import pytest

from trainmaster.failures.xid import MEANINGS, XIDS, XidAction, xid_of


@pytest.mark.parametrize(
    ("codes", "action"),
    [
        ((13, 31, 43), XidAction.PROGRAM),
        ((45, 154), XidAction.COLLATERAL),
        ((63, 92, 94), XidAction.WATCH),
        ((46, 48, 62, 64, 74, 95, 109, 119, 120, 140), XidAction.RESET),
        ((79,), XidAction.REBOOT),
    ],
    ids=lambda value: getattr(value, "value", ""),
)
def test_codes_by_action(codes: tuple[int, ...], action: XidAction) -> None:
    assert {XIDS[code].action for code in codes} == {action}


def test_only_a_reset_or_a_restart_sets_a_gpu_aside() -> None:
    aside = {action for action in XidAction if action.sets_aside}
    assert aside == {XidAction.RESET, XidAction.REBOOT}


def test_each_code_is_there_once_and_says_what_to_do() -> None:
    assert len(XIDS) == sum(map(len, MEANINGS.values()))
    said = XIDS[79].sentence
    assert said.startswith("XID 79 (the GPU has fallen off the bus): restart the machine")
    assert xid_of(9_999) is None
