"""Two Unix users of one machine share the manager that root has started: jobs and files are their own."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.live.daemons import LiveDaemon, live, until
from tests.live.unix_users import (
    as_user,
    asked,
    shared_folder,
    system_manager,
    unix_user,
)
from trainmaster.api.local_socket import SYSTEM, own_path
from trainmaster.cli.main import main
from trainmaster.cli.support.remembered_users import Serves, served
from trainmaster.model.launch_spec import Account

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Shared:
    """The manager, and its two users."""

    daemon: LiveDaemon
    ada: Account
    bob: Account

    def submit(self, account: Account | None, **fields: object) -> str:
        status, said = self.tried(account, **fields)
        assert status == 201, said
        return str(said["jobs"][0]["id"])

    def tried(self, account: Account | None, **fields: object) -> tuple[int, Any]:
        body = {"snapshot": False, "preflight": False, **fields}
        return asked(SYSTEM, account, "POST", "/api/v1/jobs", body)

    def refusal(self, account: Account | None, **fields: object) -> str:
        status, said = self.tried(account, **fields)
        assert status == 422, said
        return str(said["error"]["sentence"])

    def get(self, account: Account | None, path: str) -> Any:
        status, said = asked(SYSTEM, account, "GET", f"/api/v1/jobs/{path}")
        assert status == 200, said
        return said

    def ended(self, id: str) -> str:
        """How a job ended."""

        def state() -> str:
            return str(self.get(None, id)["state"])

        until(lambda: state() not in ("pending", "running"), f"job {id} to end")
        return state()

    def log(self, account: Account | None, id: str) -> str:
        return str(self.get(account, f"{id}/logs").decode())


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with (
        shared_folder() as base,
        unix_user(base) as ada,
        unix_user(base) as bob,
        system_manager(base / "state", "--slots", "2") as daemon,
    ):
        yield Shared(daemon, ada, bob)


def test_each_ones_job_runs_as_that_user_at_home(shared: Shared) -> None:
    script = (
        "id -un; pwd; echo $HOME; echo mine > result; echo w > $TRAINMASTER_CHECKPOINT_DIR/model"
    )
    for account in (shared.ada, shared.bob):
        job = shared.submit(account, command=script)
        assert shared.ended(job) == "succeeded", shared.log(None, job)
        said = [account.name, account.home, account.home]
        assert shared.log(account, job).split() == said
        assert shared.get(account, job)["user"] == account.name
        result = Path(account.home, "result")
        assert (result.stat().st_uid, result.stat().st_gid) == (account.uid, account.gid)
        model = shared.daemon.folder / "jobs" / job / "checkpoints" / "model"
        assert model.stat().st_uid == account.uid
    job = shared.submit(None, command="id -un")
    assert shared.ended(job) == "succeeded"
    assert shared.log(None, job) == "root\n"


def test_each_sees_and_touches_only_their_own(shared: Shared) -> None:
    """For another user a job is as one that does not exist; of its row only what it takes up is told."""
    adas = shared.submit(
        shared.ada, command="echo of-ada; sleep 600", name="adas-work", env={"KEY": "s3cret"}
    )
    until(lambda: "of-ada" in shared.log(shared.ada, adas), "the job of ada to run")
    for method, path in (
        *(("GET", f"{adas}{part}") for part in ("", "/explain", "/story", "/progress", "/outputs")),
        *(
            ("GET", f"{adas}/{part}")
            for part in ("logs", "stacks", "environment", "outputs/archive")
        ),
        *(("POST", f"{adas}/{verb}") for verb in ("cancel", "suspend", "resume", "save", "idle")),
        ("PATCH", adas),
    ):
        body = {"priority": 5} if method == "PATCH" else {} if method == "POST" else None
        status, said = asked(SYSTEM, shared.bob, method, f"/api/v1/jobs/{path}", body)
        assert status == 404, (method, path, status, said)
        nowhere = path.replace(adas, "999", 1)
        _, unknown = asked(SYSTEM, shared.bob, method, f"/api/v1/jobs/{nowhere}", body)
        assert str(said).replace(adas, "999") == str(unknown)
    _, listed = asked(SYSTEM, shared.bob, "GET", "/api/v1/jobs?all=true")
    shown = str(listed)
    assert "adas-work" not in shown
    assert "s3cret" not in shown
    assert "sleep 600" not in shown
    assert shared.get(shared.ada, adas)["state"] == "running"
    assert shared.get(shared.ada, f"{adas}/environment")["environment"]["KEY"] == "s3cret"
    status, _ = asked(SYSTEM, shared.ada, "POST", f"/api/v1/jobs/{adas}/cancel", {})
    assert status == 200
    assert shared.ended(adas) == "cancelled"


def test_the_folder_of_the_manager_is_closed_to_both(shared: Shared) -> None:
    job = shared.submit(shared.ada, command="true", env={"SECRET": "of-ada"})
    shared.ended(job)
    folder = shared.daemon.folder
    for script in (
        f"ls {folder}",
        f"ls {folder}/jobs",
        f"ls {folder}/runs",
        f"cat {folder}/runs/{job}/1/run.json",
        f"cat {folder}/trainmaster.db",
        f"cat {folder}/address",
        f"cat {folder}/jobs/{job}/uuid",
        f"touch {folder}/jobs/{job}/x",
    ):
        assert "ermission denied" in as_user(shared.ada, script).stderr, script
    said = as_user(shared.bob, f"ls {folder}/jobs/{job}/checkpoints").stderr
    assert "ermission denied" in said


def test_a_copy_of_code_is_made_by_its_user(shared: Shared) -> None:
    """What the user cannot read is not copied for anyone, and what is copied is the user's own."""
    secret = Path(shared.bob.home, "secret")
    secret.write_text("of-bob")
    os.chmod(secret, 0o600)
    as_user(
        shared.ada,
        f"mkdir code; cd code; git init -q; echo 'cat link; echo new > made; ls -l' > train.sh;"
        f" echo 'x = 1' > model.py; ln -s {secret} link; git add train.sh model.py",
    )
    code = Path(shared.ada.home, "code")
    job = shared.submit(shared.ada, command="sh train.sh", workdir=str(code), snapshot=True)
    shared.ended(job)
    said = shared.log(shared.ada, job)
    assert "of-bob" not in said
    assert "ermission denied" in said
    copy = shared.daemon.folder / "jobs" / job / "code"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    owners = {path.lstat().st_uid for path in (copy, *copy.iterdir())}
    assert owners == {shared.ada.uid}
    assert copy.parent.stat().st_uid == 0
    names = [each["path"] for each in shared.get(shared.ada, f"{job}/outputs")["files"]]
    assert names == ["made"]
    archive = shared.get(shared.ada, f"{job}/outputs/archive")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == ["made"]
    several = [{"command": "cat model.py", "workdir": str(code), "snapshot": True}] * 2
    status, accepted = asked(SYSTEM, shared.ada, "POST", "/api/v1/jobs", {"jobs": several})
    assert status == 201, accepted
    for each in accepted["jobs"]:
        assert shared.ended(each["id"]) == "succeeded"
        assert shared.log(shared.ada, each["id"]) == "x = 1\n"


def test_outputs_that_lead_elsewhere_are_read_as_their_user(shared: Shared) -> None:
    """A job puts a link to a file of root's in the place of what it wrote, and of the folder itself."""
    code = Path(shared.ada.home, "links")
    as_user(shared.ada, "mkdir links; touch links/train.py")
    script = "mkdir sub; echo x > sub/shadow; rm -r sub; ln -s /etc sub; cd ..; mv code gone"
    job = shared.submit(shared.ada, command=script, workdir=str(code), snapshot=True)
    assert shared.ended(job) == "failed", "it cannot exchange the folder itself"
    names = [each["path"] for each in shared.get(shared.ada, f"{job}/outputs")["files"]]
    assert names == ["sub"], "the link, and nothing behind it"


def test_data_of_others_is_as_if_it_were_not_there(shared: Shared) -> None:
    """The manager is root and would see it: the sentence must be the same whether it is there or not."""
    there, not_there = Path(shared.bob.home, "there"), Path(shared.bob.home, "nowhere")
    there.write_text("1")
    said = [
        shared.refusal(shared.ada, command="true", data=[str(each)]) for each in (there, not_there)
    ]
    assert said[0].replace("there", "nowhere") == said[1].replace("nowhere", "nowhere")
    assert f"or {shared.ada.name} cannot see it" in said[0]
    workdirs = [
        shared.refusal(shared.ada, command="true", workdir=f"{shared.bob.home}/{name}")
        for name in ("", "nowhere")
    ]
    assert f"cannot be read by {shared.ada.name}" in workdirs[0] or "does not exist" in workdirs[0]
    assert "does not exist" in workdirs[1]
    as_user(shared.ada, "ln -s /root roots; ln -s /etc others")
    for name, sees in (("roots", False), ("others", True)):
        status, said = shared.tried(shared.ada, command="true", workdir=f"~/{name}")
        assert (status == 201) is sees, said
    job = shared.submit(shared.bob, command="true", data=[str(there)])
    assert shared.ended(job) == "succeeded"


def test_a_home_is_the_users_own(shared: Shared) -> None:
    as_user(shared.ada, "mkdir project; echo here > project/file; mkdir saves")
    job = shared.submit(
        shared.ada,
        command="cat file; echo $TRAINMASTER_CHECKPOINT_DIR",
        workdir="~/project",
        checkpoint_dir="~/saves",
        data=["~/project"],
    )
    assert shared.ended(job) == "succeeded", shared.log(None, job)
    assert shared.log(shared.ada, job).split() == ["here", f"{shared.ada.home}/saves"]


def test_nobody_submits_as_another_and_root_may(shared: Shared) -> None:
    said = shared.tried(shared.ada, command="id -un", user=shared.bob.name)
    assert said[0] in (403, 422)
    said = shared.tried(shared.ada, command="id -un", user="root")
    assert said[0] in (403, 422)
    job = shared.submit(None, command="id -un", user=shared.bob.name)
    shared.ended(job)
    assert shared.log(None, job) == f"{shared.bob.name}\n"


def test_a_changed_program_is_told_though_its_list_is_the_managers(shared: Shared) -> None:
    as_user(shared.ada, "mkdir changing; echo 'echo 1' > changing/train.sh")
    folder = Path(shared.ada.home, "changing")
    job = shared.submit(shared.ada, command="sh train.sh", workdir=str(folder), held=True)
    as_user(shared.ada, "echo 'echo changed' > changing/train.sh")
    asked(SYSTEM, shared.ada, "POST", f"/api/v1/jobs/{job}/resume", {})
    assert shared.ended(job) == "succeeded"
    assert "train.sh" in str(shared.get(shared.ada, f"{job}/story"))


def test_git_runs_nothing_of_the_folder(shared: Shared) -> None:
    """Its settings name programs; and as its own user Git does not call the folder unsafe."""
    as_user(
        shared.ada,
        "mkdir repo; cd repo; git init -q; touch train.py ignored.bin; echo ignored.bin > .gitignore;"
        " printf '#!/bin/sh\\nid -un >> ../ran\\n' > hook; chmod +x hook;"
        " git config core.fsmonitor ../hook; git add train.py",
    )
    folder = Path(shared.ada.home, "repo")
    job = shared.submit(shared.ada, command="ls -l", workdir=str(folder), snapshot=True)
    shared.ended(job)
    assert "ignored.bin -> " in shared.log(shared.ada, job), "Git has said what is ignored"
    assert not Path(shared.ada.home, "ran").exists()


def test_a_token_is_the_account_of_its_user_and_never_roots(shared: Shared) -> None:
    def submitted(user: str) -> Any:
        bearer = shared.daemon.bearer_of(user, "admin")
        job = {"command": "id -un", "snapshot": False}
        try:
            return shared.daemon.call("POST", "/api/v1/jobs", job, **bearer)
        except urllib.error.HTTPError as refusal:
            return json.loads(refusal.read())["error"]["sentence"]

    job = submitted(shared.ada.name)["jobs"][0]["id"]
    assert shared.ended(job) == "succeeded"
    assert shared.log(shared.ada, job) == f"{shared.ada.name}\n"
    assert submitted("root").startswith("jobs of root are taken only from root itself")
    assert "this machine has no account tm-nobody-of-that-name" in submitted(
        "tm-nobody-of-that-name"
    )


def test_a_restored_manager_serves_the_same_users(shared: Shared) -> None:
    """On another machine too no job of a plain user may run as root because an option was forgotten."""
    with shared_folder() as base:
        made, copy = base / "made.tar.gz", base / "copy"
        assert main(["backup", "--data", str(shared.daemon.folder), "--to", str(made)]) == 0
        assert main(["restore", str(made), "--data", str(copy)]) == 0
        assert served(copy, is_system=None, runs_as_user=False) is Serves.SYSTEM
        with live(copy, "--no-system") as daemon:
            said = asked(own_path(copy), None, "POST", "/api/v1/tokens", {"user": shared.ada.name})
            token = said[1]["token"]
            request = Request(
                f"{daemon.url}/api/v1/jobs",
                json.dumps({"command": "id -un", "snapshot": False, "workdir": "/tmp"}).encode(),
                {"authorization": f"Bearer {token}", "content-type": "application/json"},
            )
            with urlopen(request, timeout=60) as answer:
                job = json.load(answer)["jobs"][0]["id"]
            daemon.until_state(job, "succeeded")
            said = asked(own_path(copy), None, "GET", f"/api/v1/jobs/{job}/logs")
            assert said == (200, f"{shared.ada.name}\n".encode())
        assert served(copy, is_system=None, runs_as_user=False) is Serves.USERS
