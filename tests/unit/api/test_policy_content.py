"""Policy code runs in the manager: only its own user may send it, and never a path."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService
from trainmaster.api.app import create_app
from trainmaster.api.peer import FromPeer, Peer
from trainmaster.daemon.cluster_control import ClusterControl
from trainmaster.daemon.service_api import RequestError
from trainmaster.model.policy_spec import PolicySpec

PAGE = "/api/v1/policy"
OWN, OTHER = os.geteuid(), 65534


def put(service: MemoryService, body: dict[str, Any], uid: int | None) -> Any:
    """Ask over the Unix socket as this user; over TCP with a token of an admin where it is None."""
    app: Any = create_app(service)
    headers = {}
    if uid is None:
        _, token = asyncio.run(service.accounts.create_token("ada", "admin", None))
        headers = {"Authorization": f"Bearer {token}"}
    else:
        asyncio.run(service.accounts.set_role("nobody", "operator"))
        app = FromPeer(app, Peer(1, uid, uid))
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        return client.put(PAGE, json=body, headers=headers)


@pytest.mark.parametrize("uid", [None, OTHER], ids=["an admin over TCP", "an operator"])
@pytest.mark.parametrize(
    "content",
    [{"source": "open({flag!r}, 'w')"}, {"files": {"samples.txt": "1 2"}}],
    ids=["code", "a file of an option"],
)
def test_content_of_others_is_refused_and_not_run(
    service: MemoryService, tmp_path: Path, uid: int | None, content: dict[str, Any]
) -> None:
    flag = tmp_path / "POLICY_PWNED"
    if "source" in content:
        content = {"source": content["source"].format(flag=str(flag))}
    before = service.chosen
    said = put(service, {"name": "mine.py", **content}, uid)
    assert said.status_code == 403
    assert "the manager's own user" in said.json()["error"]["sentence"]
    assert not flag.exists()
    assert service.chosen == before


def test_the_manager_s_own_user_may_send_it_over_the_socket(service: MemoryService) -> None:
    said = put(service, {"name": "las", "files": {"samples.txt": "1 2"}}, OWN)
    assert said.status_code == 200, said.text
    assert service.chosen.name == "las"


class Refuses:
    """A driver that nothing may reach."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (PolicySpec("evilpolicy.py"), "evilpolicy.py is a path, and the manager reads no files"),
        (
            PolicySpec("gittins", (("service_samples", "/etc/shadow"),)),
            "/etc/shadow is a path, and the manager reads no files",
        ),
    ],
)
def test_a_path_is_refused_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: PolicySpec, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evilpolicy.py").write_text("open('POLICY_PWNED', 'w').write('ran')")
    driver: Any = Refuses()
    with pytest.raises(RequestError) as refused:
        asyncio.run(ClusterControl(driver, driver).set_policy(spec))
    assert why in str(refused.value)
    assert "daemon:" not in str(refused.value)
    assert not (tmp_path / "POLICY_PWNED").exists()
