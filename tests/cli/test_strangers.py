"""Another user's program where a manager was: it gets no token, no body, and nothing that it says is done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.answers import job_list
from tests.cli.conftest import Tm
from tests.cli.counterpart import Counterpart, serving
from tests.cli.squatters import OTHER, Squatter, squatting

SECRET = "w-secret-123"


@pytest.fixture(autouse=True)
def _no_other_manager(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("URL", "DATA", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"TRAINMASTER_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))


@pytest.fixture
def squatter(folder: Path) -> Iterator[Squatter]:
    """It took the port of a manager that was killed; another process has the manager's number by now."""
    with squatting({"workdir": "/", "environment": {"PATH": str(folder)}}) as found:
        write_address(folder / "d1", found.url)
        yield found


def write_address(folder: Path, url: str, socket: Path | None = None) -> None:
    folder.mkdir(exist_ok=True)
    said = {"url": url, "pid": os.getpid()} | ({} if socket is None else {"socket": str(socket)})
    (folder / "address").write_text(json.dumps(said))


def test_a_squatter_gets_no_variables_of_a_job(
    tm: Tm, squatter: Squatter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    said = tm("run --data d1 -d --env WANDB_API_KEY -- python train.py")
    assert said.code == 1
    assert said.err.endswith(
        f"Error: Nothing was sent to {squatter.url}: a program of user {OTHER} listens there, not yours."
        " The manager of d1 does not run: `trainmaster up --data d1` starts it.\n"
    )
    assert squatter.got == b""


def test_nothing_is_executed_that_a_squatter_says(
    process, folder: Path, squatter: Squatter
) -> None:
    evil = folder / "nvidia-smi"
    evil.write_text("#!/bin/sh\necho attacker code runs\n")
    evil.chmod(0o755)
    said = process("exec --data d1 1 -- nvidia-smi")
    assert said.returncode == 1
    assert "attacker" not in said.stdout
    assert squatter.got == b""


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_squatter_gets_no_token(
    tm: Tm, squatter: Squatter, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("TRAINMASTER_TOKEN", SECRET)
    if how == "environment":
        monkeypatch.setenv("TRAINMASTER_URL", squatter.url)
        said = tm("ps")
    else:
        said = tm("ps --url", squatter.url)
    assert said.code == 1
    assert f"user {OTHER} listens there, not yours. If it is a manager that you trust" in said.err
    assert squatter.got == b""


def test_the_folder_of_another_user_is_trusted_where_it_is_named(
    tm: Tm, squatter: Squatter, folder: Path
) -> None:
    """A manager of a user of its own: that user is known by the folder, which nobody else can have made."""
    for each in (folder / "d1", folder / "d1" / "address"):
        os.chown(each, OTHER, OTHER)
    tm("ps --data d1")
    assert squatter.got.startswith(b"GET /api/v1/")


def test_a_folder_that_anybody_could_have_made_is_not(
    tm: Tm, squatter: Squatter, folder: Path
) -> None:
    for each in (folder / "d1", folder / "d1" / "address"):
        os.chown(each, OTHER, OTHER)
    folder.chmod(0o777)
    said = tm("ps --data d1")
    assert said.code == 1
    assert f"other users may write into {folder}" in said.err
    assert squatter.got == b""


# -- Unix sockets ----------------------------------------------------------------------------------------


def test_a_socket_is_asked_instead_of_the_port(tm: Tm, squatter: Squatter, folder: Path) -> None:
    with serving(folder / "m.sock") as manager:
        manager.on("GET", "/jobs", job_list())
        write_address(folder / "d1", squatter.url, folder / "m.sock")
        assert tm("ps --data d1").code == 0
        assert "authorization" not in manager.asked[0].headers
    assert squatter.got == b""


def test_another_users_program_at_a_socket_gets_nothing(tm: Tm, folder: Path) -> None:
    with squatting(path=folder / "m.sock") as squatter:
        said = tm("ps --url", squatter.url)
        assert said.code == 1
        assert f"a program of user {OTHER} listens there, not yours" in said.err
        assert squatter.got == b""


@pytest.mark.parametrize("mode", [0o777, 0o755], ids=["open to all", "another user's"])
def test_a_socket_that_others_could_have_put_there_is_not_used(
    tm: Tm, folder: Path, mode: int
) -> None:
    place = folder / "p"
    place.mkdir()
    with serving(place / "m.sock") as manager:
        place.chmod(mode)
        if mode == 0o755:
            os.chown(place, OTHER, OTHER)
        said = tm("ps --url", manager.url)
        assert said.code == 1
        assert f"{place}/m.sock is not used" in said.err
        assert not manager.asked


def test_a_sticky_folder_above_does_no_harm(tm: Tm, folder: Path) -> None:
    (folder / "tmp" / "own").mkdir(parents=True, mode=0o700)
    (folder / "tmp").chmod(0o1777)
    with serving(folder / "tmp" / "own" / "m.sock") as manager:
        manager.on("GET", "/jobs", job_list())
        assert tm("ps --url", manager.url).code == 0


def test_the_socket_of_everybodys_manager_is_its_folders_owners(
    tm: Tm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmaster.client import address

    place = folder / "run"
    place.mkdir()
    monkeypatch.setattr(address, "SYSTEM_SOCKET", place / "m.sock")
    monkeypatch.setattr(address, "PORT", 1)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "share"))
    with squatting(path=place / "m.sock") as squatter:
        assert "Nothing was sent" in tm("ps").err
        os.chown(place, OTHER, OTHER)
        os.chown(place / "m.sock", OTHER, OTHER)
        tm("ps")
        assert squatter.got.startswith(b"GET /api/v1/")


# -- tokens ----------------------------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[Counterpart]:
    with serving() as manager:
        manager.on("GET", "/jobs", job_list())
        yield manager


def token_of(manager: Counterpart) -> str | None:
    return manager.asked[-1].headers.get("authorization")


def test_a_token_goes_to_ones_own_manager(
    tm: Tm, own: Counterpart, write, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tm("ps --url", own.url).code == 0
    assert token_of(own) is None
    monkeypatch.setenv("TRAINMASTER_TOKEN_FILE", str(write("named", "by-file\n")))
    tm("ps --url", own.url)
    assert token_of(own) == "Bearer by-file"
    monkeypatch.setenv("TRAINMASTER_TOKEN", "by-environment")
    tm("ps --url", own.url)
    assert token_of(own) == "Bearer by-environment"
    tm("ps --url", own.url, "--token-file", write("stated", "by-option"))
    assert token_of(own) == "Bearer by-option"


def test_the_token_of_a_data_folder_goes_to_the_manager_that_its_address_names(
    tm: Tm, own: Counterpart, folder: Path
) -> None:
    write_address(folder / "d1", own.url)
    (folder / "d1" / "admin-token").write_text("made-at-the-first-start\n")
    assert tm("ps --data d1").code == 0
    assert token_of(own) == "Bearer made-at-the-first-start"
    tm("ps --url", own.url)
    assert token_of(own) is None


@pytest.mark.parametrize("text", ["", "two words", "line\nline", "é"])
def test_what_is_not_a_token_is_named(tm: Tm, own: Counterpart, write, text: str) -> None:
    said = tm("ps --url", own.url, "--token-file", write("t", text))
    assert said.code == 2
    assert "holds no token" in said.err
    assert not own.asked


def test_another_machine_is_asked_only_with_tls(tm: Tm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_TOKEN", SECRET)
    said = tm("ps --url http://192.0.2.7:8470")
    assert said.code == 1
    assert "is on another machine and not encrypted: use https://" in said.err
