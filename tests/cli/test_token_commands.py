"""`trainmaster token` and `trainmaster user`, and managers of other machines by their certificates."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import job_list
from tests.cli.conftest import Tm
from tests.cli.counterpart import Counterpart, refusal, serving

TOKEN = {
    "id": "5f0c2e7b",
    "user": "ada",
    "role": "user",
    "label": "laptop",
    "created_s": 1_790_000_000.0,
    "expires_s": 4_000_000_000.0,
    "revoked_s": None,
    "used_s": None,
}
MADE = {**TOKEN, "token": "tm_secret"}


@pytest.fixture(autouse=True)
def _no_other_manager(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("URL", "DATA", "TOKEN", "TOKEN_FILE", "USER"):
        monkeypatch.delenv(f"TRAINMASTER_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "share"))
    monkeypatch.setattr("trainmaster.client.address.PORT", 1)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        yield counterpart


# -- tokens and users ------------------------------------------------------------------------------------


def test_a_new_token_is_alone_on_standard_output(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/tokens", MADE)
    said = tm("token new --role user --expires 30d --name laptop")
    assert (said.code, said.out) == (0, "tm_secret\n")
    assert re.fullmatch(
        r"Note: Token 5f0c2e7b for ada, user, valid until 20.*\. It is not shown again\.\n",
        said.err,
    )
    wanted = {"user": "ada", "role": "user", "expires": "30d", "label": "laptop"}
    assert daemon.bodies("POST", "/tokens") == [wanted]
    assert json.loads(tm("token new --json --expires never --user eve").out) == MADE
    assert daemon.bodies("POST", "/tokens")[-1]["expires"] is None
    assert daemon.bodies("POST", "/tokens")[-1]["user"] == "eve"


def test_a_token_is_written_to_a_file_of_ones_own(
    tm: Tm, daemon: Counterpart, folder: Path
) -> None:
    daemon.on("POST", "/tokens", MADE)
    said = tm("token new --out my.token")
    assert "tm_secret" not in said.out + said.err
    assert said.out.endswith("is in my.token.\n")
    assert (folder / "my.token").read_text() == "tm_secret\n"
    assert stat.S_IMODE((folder / "my.token").stat().st_mode) == 0o600
    again = tm("token new --out my.token")
    assert (again.code, again.err) == (
        2,
        "Error: --out my.token is there already: name a new file.\n",
    )
    assert len(daemon.bodies("POST", "/tokens")) == 1, "none was made that nobody has"


def test_a_wrong_time_is_named_before_a_token_is_made(tm: Tm, daemon: Counterpart) -> None:
    assert tm("token new --expires soon").code == 2
    assert daemon.asked == []


def test_tokens_are_listed_without_those_that_are_not_valid(tm: Tm, daemon: Counterpart) -> None:
    old = TOKEN | {"id": "0a", "expires_s": 1.0}
    gone = TOKEN | {"id": "0b", "revoked_s": 1_790_000_000.0}
    daemon.on("GET", "/tokens", {"tokens": [TOKEN, old, gone]})
    (line,) = tm("token").out.splitlines()[1:]
    assert line.split()[:4] == ["5f0c2e7b", "ada", "user", "laptop"]
    everything = tm("token list --all").out
    assert "expired 1970" in everything
    assert "revoked 20" in everything
    assert [each["id"] for each in json.loads(tm("token list --json").out)["tokens"]] == [
        "5f0c2e7b"
    ]
    daemon.on("GET", "/tokens", {"tokens": []})
    assert tm("token list").out == "No tokens: `trainmaster token new` makes one.\n"


def test_tokens_are_revoked_as_far_as_they_are_known(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("DELETE", "/tokens/5f0c2e7b", TOKEN)
    daemon.on("DELETE", "/tokens/0c", refusal(404, "not_found", "There is no token 0c."))
    said = tm("token revoke 0c 5f0c2e7b")
    assert (said.code, said.out) == (1, "Token 5f0c2e7b of ada is revoked.\n")
    assert said.err == "Error: There is no token 0c.\n"


def test_what_is_no_id_of_a_token_is_told_as_one_that_is_not_there(
    tm: Tm, daemon: Counterpart
) -> None:
    said = tm("token revoke zzzz")
    assert (said.code, said.err) == (
        1,
        "Error: There is no token zzzz: `trainmaster token list` lists all.\n",
    )


def test_a_link_is_alone_on_standard_output(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/login-links", {"url": "http://x/login?code=1", "expires_s": 1.0})
    assert tm("token link").out == "http://x/login?code=1\n"


def test_roles_are_listed_given_and_taken_back(tm: Tm, daemon: Counterpart) -> None:
    row = {"name": "eve", "role": "operator", "changed_s": 1_790_000_000.0}
    daemon.on("GET", "/user-limits", {"limits": []})
    daemon.on("PUT", "/users/eve", row)
    assert tm("user set eve --role operator").out == "eve has the role operator.\n"
    assert daemon.bodies("PUT", "/users/eve") == [{"role": "operator"}]
    daemon.on("GET", "/users", {"users": [row]})
    assert tm("user").out.splitlines()[1].split()[:2] == ["eve", "operator"]
    daemon.on("DELETE", "/users/eve", row)
    assert tm("user rm eve").out == "eve has the role user again.\n"
    assert "role" in tm("user set eve --role king").err


def test_what_to_do_where_a_manager_refuses(tm: Tm, daemon: Counterpart, write: Any) -> None:
    daemon.on("GET", "/tokens", refusal(401, "unauthorized", "No."))
    assert tm("token list").err == (
        "Error: This manager needs a token: `trainmaster token new` on its machine makes one; set"
        " TRAINMASTER_TOKEN, or give --token-file FILE.\n"
    )
    assert tm("token list --token-file", write("t", "tm_old")).err.startswith(
        "Error: The manager does not know this token: it has expired, was revoked,"
    )
    said = "bob has the role user here, and this needs admin: ask an admin of this manager."
    daemon.on("GET", "/tokens", refusal(403, "not_allowed", said))
    assert tm("token list").err == f"Error: {said}\n"


# -- managers of other machines --------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-made one, as the documentation shows it."""
    made = folder / f"{name}.crt", folder / f"{name}.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30"
    names = ["-subj", "/CN=tower", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-out", str(made[0]), "-keyout", str(made[1])]
    subprocess.run([*words.split(), *names, *files], check=True, capture_output=True)
    return made


def fingerprint(path: Path) -> str:
    words = ["openssl", "x509", "-in", str(path), "-noout", "-fingerprint", "-sha256"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return said.strip().partition("=")[2]


def test_a_manager_elsewhere_is_used_by_its_confirmed_certificate(
    tm: Tm, folder: Path, write: Any
) -> None:
    made, other = certificate(folder, "tower"), certificate(folder, "other")
    token = write("my.token", "tm_mine\n")
    with serving(certificate=made) as tower:
        tower.on("GET", "/jobs", job_list())
        before = tm("ps --token-file my.token --url", tower.url)
        assert before.code == 1
        assert "its certificate is not known here" in before.err
        assert f"`trainmaster token use {tower.url}` shows and confirms it" in before.err
        assert "needs the fingerprint" in tm(f"token use {tower.url} --token-file", token).err
        wrong = tm(
            f"token use {tower.url} --fingerprint {fingerprint(other[0])} --token-file", token
        )
        assert wrong.code == 2
        assert "not the one of --fingerprint: somebody may be in between" in wrong.err
        assert tower.asked == []
        said = tm(f"token use {tower.url} --fingerprint {fingerprint(made[0])} --token-file", token)
        path = folder / "config" / "trainmaster" / "managers.json"
        assert said.out == f"You are ada (admin) at {tower.url}; kept in {path}.\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert tm("ps").code == 0
        assert tower.asked[-1].headers["authorization"] == "Bearer tm_mine"
        assert tm("ps --url", tower.url).code == 0
        port = tower.url.rpartition(":")[2]
    with serving(certificate=other, port=int(port)) as impostor:
        changed = tm("ps")
        assert changed.code == 1
        assert f"Nothing was sent to {tower.url}: its certificate is sha256:" in changed.err
        assert impostor.asked == []
    assert tm(f"token forget {tower.url}").out == f"{tower.url} is forgotten.\n"
    assert "tm_mine" not in path.read_text()
    assert "is not known" in tm(f"token forget {tower.url}").err


def test_a_certificate_that_the_system_vouches_for_needs_no_fingerprint(
    tm: Tm, folder: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(folder, "tower")
    monkeypatch.setenv("SSL_CERT_FILE", str(made[0]))
    with serving(certificate=made) as tower:
        tower.on("GET", "/jobs", job_list())
        write("my.token", "tm_mine\n")
        assert tm(f"token use {tower.url} --token-file my.token").code == 0
        assert tm("ps").code == 0
        monkeypatch.delenv("SSL_CERT_FILE")
        assert "its certificate is not known here" in tm("ps").err


def test_a_wrong_token_is_not_kept(tm: Tm, folder: Path, write: Any) -> None:
    made = certificate(folder, "tower")
    with serving(certificate=made) as tower:
        tower.caller = {"error": {"code": "unauthorized", "sentence": "No."}}
        tower.caller_status = 401
        write("my.token", "tm_wrong\n")
        said = tm(
            f"token use {tower.url} --fingerprint {fingerprint(made[0])} --token-file my.token"
        )
        assert said.code == 1
        assert "does not know this token" in said.err
    assert not (folder / "config").exists()
