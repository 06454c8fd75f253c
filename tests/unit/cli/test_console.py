"""Whom output is shown to."""

from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

import pytest

from trainmaster.cli.support.console import is_private


def test_a_terminal_is_its_users_alone_and_a_pipe_or_a_socket_is_not() -> None:
    controlling, terminal = pty.openpty()
    reading, writing = os.pipe()
    ours, journals = socket.socketpair()
    assert is_private(terminal)
    assert not is_private(writing)
    assert not is_private(ours.fileno())
    for each in (controlling, terminal, reading, writing):
        os.close(each)
    ours.close()
    journals.close()


@pytest.mark.parametrize(("mode", "is_alone"), [(0o600, True), (0o640, False), (0o644, False)])
def test_a_file_is_private_where_nobody_else_may_read_it(
    tmp_path: Path, mode: int, is_alone: bool
) -> None:
    with open(tmp_path / "out", "w") as file:
        os.fchmod(file.fileno(), mode)
        assert is_private(file.fileno()) is is_alone
