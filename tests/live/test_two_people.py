"""Two Unix users at the command line of the manager for everybody: each sees and touches their own jobs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.live.daemons import until
from tests.live.unix_users import shared_folder, system_manager, unix_user
from trainmaster.cli.main import main
from trainmaster.model.launch_spec import Account

pytestmark = pytest.mark.live

OF_ADMINS = ("token new", "token list", "policy set fifo")
OF_A_JOB = ("logs", "show", "cancel --now", "suspend", "story", "explain", "outputs")


@contextmanager
def as_account(account: Account) -> Iterator[None]:
    """This process as that user; the kernel says so to whom it connects."""
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@dataclass(frozen=True)
class People:
    ada: Account
    bob: Account
    type: Callable[..., tuple[int, str, str]]
    """A command of one of them: its exit code, output and errors."""


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[People]:
    with (
        shared_folder() as base,
        unix_user(base) as ada,
        unix_user(base) as bob,
        system_manager(base / "state", "--slots", "2"),
    ):
        for name in ("URL", "DATA", "TOKEN", "TOKEN_FILE", "USER"):
            monkeypatch.delenv(f"TRAINMASTER_{name}", raising=False)
        for name in ("DATA", "CONFIG"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(base / "nothing"))
        monkeypatch.setattr("trainmaster.client.address.PORT", 1)
        monkeypatch.setenv("COLUMNS", "200")

        def type(account: Account | None, line: str) -> tuple[int, str, str]:
            monkeypatch.chdir(base if account is None else account.home)
            if account is None:
                code = main(shlex.split(line))
            else:
                with as_account(account):
                    code = main(shlex.split(line))
            said = capsys.readouterr()
            return code, said.out, said.err

        type(None, "exec 1 -- true")  # before there is a job: else it would replace this process
        type(None, "run -d --no-preflight --retries 0 -- true")
        for line in ("ps -A", *OF_ADMINS, *(f"{words} 1" for words in OF_A_JOB)):
            type(None, line)  # as root: loads what another user may not read
        yield People(ada, bob, type)


def test_two_people_share_a_manager(people: People) -> None:
    ada, bob, type = people.ada, people.bob, people.type

    def ids(account: Account | None, line: str) -> list[str]:
        code, out, err = type(account, line)
        assert code == 0, err
        return [row["id"] for row in json.loads(out)["jobs"]]

    hers = type(ada, "run -d -n resnet -- sh -c 'echo of-ada; sleep 300'")[1].strip()
    his = type(bob, "run -d -n resnet -- sh -c 'echo of-bob; sleep 300'")[1].strip()
    until(lambda: "of-bob" in type(bob, "logs resnet")[1], "his output")
    until(lambda: "of-ada" in type(ada, "logs resnet")[1], "her output")
    assert ids(ada, "ps --json") == [hers]
    assert ids(bob, "ps --json") == [his]
    assert set(ids(bob, "ps -A --json")) >= {hers, his}
    (line,) = (line for line in type(bob, "ps -A")[1].splitlines() if line.startswith(f"{hers} "))
    assert line.split()[:5] == [hers, "-", ada.name, "default", "running"]
    for words in OF_A_JOB:
        code, out, err = type(bob, f"{words} {hers}")
        assert (code, out) == (1, ""), words
        assert err.startswith(f"Error: There is no job {hers}:"), words
    code, out, err = type(bob, f"exec {hers} -- true")
    assert (code, out) == (1, "")
    for words in (*OF_ADMINS, "user set root --role viewer"):
        code, _, err = type(bob, words)
        assert code == 1
        assert f"{bob.name} has the role user here" in err, words
    assert type(None, f"user set {bob.name} --role operator")[0] == 0
    assert type(bob, f"cancel --now {hers}")[0] == 0
    until(lambda: ids(ada, "ps --json") == [], "her job to end")
    assert f"Cancelled by {bob.name}" in type(ada, "story resnet")[1]
    assert "is its owner's" in type(bob, f"exec {hers} -- true")[2]
    assert type(None, "cancel --now resnet")[0] == 0
