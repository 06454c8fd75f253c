"""Addresses of databases on the command line: who else could read a password in them."""

from __future__ import annotations

import pytest

from trainmaster.cli.support.database_option import database_of


@pytest.mark.parametrize(
    ("address", "is_noted"),
    [
        ("postgresql://u:secret@h/db", True),
        ("postgresql://u@h/db?password=secret", True),
        ("postgresql://u@h/db?connect_timeout=3&pass%77ord=secret", True),
        ("postgresql://u@h/db?sslpassword=secret", True),
        ("postgresql://u@h/db?passfile=/etc/passwords", False),
        ("postgresql://u@h/db", False),
    ],
)
def test_a_password_in_a_flag_is_noted(
    address: str, is_noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert database_of(address, None) == address
    said = "".join(capsys.readouterr())
    assert ("everybody on this machine can read the password" in " ".join(said.split())) is is_noted
    assert "secret" not in said
