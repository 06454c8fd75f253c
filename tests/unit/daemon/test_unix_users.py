"""A number that was given to another user does not keep the former name for long."""

from __future__ import annotations

import pwd
import time
from types import SimpleNamespace

import pytest

from trainmaster.daemon.unix_users import REMEMBERED_S, user_name


def test_a_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ada"))
    assert user_name(4321) == "ada"
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="bob"))
    monkeypatch.setattr(time, "monotonic", lambda: now + REMEMBERED_S)
    assert user_name(4321) == "bob"
