"""Where the manager keeps its state, whose it is, as whom it runs, and which devices it remembers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainmaster.cli.main import main
from trainmaster.cli.support.announcement import AS_ROOT, announcement
from trainmaster.cli.support.private_folder import is_open_to_users, keep_private, open_to_users
from trainmaster.cli.support.remembered_reasons import REASONS as KEPT
from trainmaster.cli.support.remembered_reasons import Reasons, changed_rows, reasons_of
from trainmaster.cli.support.remembered_slots import (
    GPU_MEMORY,
    SLOTS,
    Devices,
    devices_of,
    remember_devices,
)
from trainmaster.cli.support.remembered_users import SERVES, served
from trainmaster.cli.up import up
from trainmaster.client.address import state_folder, user_data_folder
from trainmaster.daemon.service_api import Health
from trainmaster.errors import BadInput
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.model.units import GIB


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """As most people have it; as it was afterwards."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_and_all_that_comes_into_it_is_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "state"
    keep_private(folder)
    (folder / "trainmaster.db").touch()
    (folder / "runs").mkdir()
    assert mode(folder) == 0o700
    assert mode(folder / "trainmaster.db") == 0o600
    assert mode(folder / "runs") == 0o700


def test_a_folder_that_was_there_stays_as_it_is_and_our_files_in_it_do_not(tmp_path: Path) -> None:
    ours = ("trainmaster.db", "trainmaster.db-wal", "address", "manager.log", "manager.log.1")
    for name in (*ours, "theirs.txt"):
        (tmp_path / name).touch()
    (tmp_path / "jobs").mkdir()
    tmp_path.chmod(0o755)
    keep_private(tmp_path)
    assert mode(tmp_path) == 0o755
    assert {mode(tmp_path / name) for name in ours} == {0o600}
    assert mode(tmp_path / "jobs") == 0o700
    assert mode(tmp_path / "theirs.txt") == 0o644
    (tmp_path / "trainmaster.db-shm").touch()
    assert mode(tmp_path / "trainmaster.db-shm") == 0o600


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are closed to other users."""
    if os.geteuid() != 0:
        pytest.fail("This test makes folders of root and of others: run it as root.")
    with tempfile.TemporaryDirectory(prefix="tm-up-") as place:
        os.chmod(place, 0o755)
        yield Path(place)


def data_folder(outside: Path, mode: int = 0o755) -> Path:
    above = outside / "above"
    above.mkdir()
    above.chmod(mode)
    (above / "state").mkdir()
    return above / "state"


def test_users_reach_their_jobs_in_the_data_folder_and_nothing_else(outside: Path) -> None:
    folder = data_folder(outside)
    for name in ("jobs", "mps"):
        (folder / name).mkdir(mode=0o755)
    (folder / "token").write_text("secret")
    keep_private(folder)
    assert not is_open_to_users(folder)
    open_to_users(folder)
    assert is_open_to_users(folder), "the next start of root's has them run as their users too"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"state": 0o711, "jobs": 0o711, "mps": 0o700, "token": 0o600}
    keep_private(folder)  # a start without it: jobs of users may be running
    assert (folder / "jobs").stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize(
    ("mode", "why"), [(0o700, "cannot enter"), (0o777, "can change"), (0o1777, "")]
)
def test_a_data_folder_that_users_cannot_reach_or_could_exchange_is_refused(
    mode: int, why: str, outside: Path
) -> None:
    folder = data_folder(outside, mode)
    if not why:  # nobody can rename what is another's in a sticky folder
        open_to_users(folder)
        return
    with pytest.raises(BadInput) as refused:
        open_to_users(folder)
    assert str(refused.value).startswith(
        f"other users {why} {folder.parent}, so jobs cannot run as"
    )


def test_a_data_folder_behind_a_link_of_a_user_is_refused(outside: Path) -> None:
    folder, users = data_folder(outside), outside / "users"
    users.mkdir()
    (users / "link").symlink_to(folder.parent)
    os.chown(users, 1000, 1000)
    with pytest.raises(BadInput, match=f"other users can change {users}"):
        open_to_users(users / "link" / "state")


def test_only_root_can_run_jobs_as_their_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInput, match=r"--run-as-user starts jobs as the users .* needs root"):
        up(None, runs_as_user=True)  # type: ignore[arg-type]


class Starting:
    """A manager that has just started."""

    runs_as_user = False

    def health(self) -> Health:
        return Health("active", "")

    def live_jobs(self) -> tuple[int, int]:
        return 0, 0


@pytest.mark.parametrize(("user", "is_warned"), [(0, True), (1000, False)])
def test_a_manager_of_root_says_what_others_can_do_with_it(
    user: int, is_warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    devices = devices_of(tmp_path, "2")
    said = [*announcement(Starting(), "http://127.0.0.1:8470", tmp_path, devices)]  # type: ignore[arg-type]
    assert said[0].startswith("Trainmaster at http://127.0.0.1:8470")
    assert (AS_ROOT in said) == is_warned


def test_the_folder_is_the_stated_one_else_that_of_the_environment_else_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINMASTER_DATA", "shared/../state")
    assert state_folder(None) == tmp_path / "state"
    assert state_folder(Path("other")) == tmp_path / "other"
    monkeypatch.setenv("TRAINMASTER_DATA", "")
    assert state_folder(None) == user_data_folder()


def slots_of(devices: Devices) -> list[int]:
    return [node.gpus for node in devices.machine.topology.nodes]


def test_slots_are_remembered_until_others_are_said(tmp_path: Path) -> None:
    def start(stated: str | None) -> Devices:
        devices = devices_of(tmp_path, stated)
        remember_devices(tmp_path, devices)
        return devices

    found = devices_of(tmp_path, None)
    assert not found.is_remembered
    assert start("2x3").is_remembered is False
    again = start(None)
    assert (slots_of(again), again.is_remembered, again.shown) == ([3, 3], True, "6 CPU slots")
    assert slots_of(start("1")) == [1]
    assert slots_of(start(None)) == [1]
    assert start("auto") == found
    assert start(None) == found
    assert not (tmp_path / SLOTS).exists()


REASONS = """
reasons:
- {key: licence-server, title: no licence, blame: user, retry: never, advice: Ask., exit_codes: 77}
"""


def test_failure_reasons_are_remembered_by_content_until_others_are_said(tmp_path: Path) -> None:
    def start(stated: str | None) -> Reasons:
        reasons = reasons_of(tmp_path, stated)
        reasons.keep(tmp_path / KEPT)
        return reasons

    file = tmp_path / "mine.yaml"
    file.write_text(REASONS)
    assert changed_rows(start(None).value) == ()
    assert start(str(file)).is_remembered is False
    file.unlink()
    again = start(None)
    assert (changed_rows(again.value), again.is_remembered) == (("licence-server",), True)
    devices = devices_of(tmp_path, "2")
    said = [*announcement(Starting(), "http://127.0.0.1:8470", tmp_path, devices, again)]  # type: ignore[arg-type]
    words = "Failure reasons of the last start (licence-server): --failure-reasons says otherwise."
    assert words in said
    assert changed_rows(start("none").value) == ()
    assert start(None).is_remembered is False
    with pytest.raises(BadInput, match=r"mine\.yaml cannot be read: "):
        start(str(file))


def test_failure_reasons_that_were_damaged_are_not_guessed(tmp_path: Path) -> None:
    (tmp_path / KEPT).write_text("reasons: []")
    with pytest.raises(
        BadInput, match=r"must not be empty: say the file with --failure-reasons, or"
    ):
        reasons_of(tmp_path, None)


@pytest.mark.parametrize("content", [b"many", b"\xff"])
def test_slots_that_were_damaged_are_not_guessed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SLOTS).write_bytes(content)
    with pytest.raises(BadInput, match=r"slots cannot be read .*: say the slots with --slots\."):
        devices_of(tmp_path, None)
    assert slots_of(devices_of(tmp_path, "2")) == [2]


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An H200 and an L4, and an empty data folder."""
    folder = fake_driver.make_folder(tmp_path / "gpus", kind=("H200", "L4"))
    monkeypatch.setenv(FAKE_GPUS, str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    data = tmp_path / "data"
    data.mkdir()
    return data


def memory_of(devices: Devices) -> list[int]:
    return [node.type.memory for node in devices.machine.topology.nodes]


def test_bookable_memory_is_remembered_until_another_is_said(gpus: Path) -> None:
    def start(gpu_memory: str | None, slots: str | None = None) -> Devices:
        devices = devices_of(gpus, slots, gpu_memory)
        remember_devices(gpus, devices)
        return devices

    found = start(None)
    assert start("20GiB").has_remembered_memory is False
    again = start(None)
    assert (memory_of(again), again.has_remembered_memory) == ([20 * GIB, 20 * GIB], True)
    assert start(None, "2").has_remembered_memory is False
    assert memory_of(start(None, "auto")) == [20 * GIB, 20 * GIB], "slots meanwhile change nothing"
    assert start("auto") == found
    assert not (gpus / GPU_MEMORY).exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("40GiB", r"--gpu-memory 40GiB is more than one L4 has: 22\.5 GiB\."),
        ("lots", r"--gpu-memory must be a size such as 16GiB"),
        ("40", r"--gpu-memory must be a size with its unit"),
        ("0G", r"--gpu-memory must be at least one byte"),
    ],
)
def test_memory_that_no_gpu_has_is_refused(gpus: Path, said: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        devices_of(gpus, None, said)


def test_slots_have_no_gpu_memory(gpus: Path) -> None:
    with pytest.raises(BadInput, match="there are no GPUs, only CPU slots"):
        devices_of(gpus, "2", "4G")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (SLOTS, devices_of),
        (GPU_MEMORY, devices_of),
        (KEPT, reasons_of),
        (SERVES, lambda folder, _: served(folder, is_system=None, runs_as_user=False)),
    ],
)
def test_settings_that_another_user_has_put_into_the_folder_are_not_used(
    tmp_path: Path, name: str, read: Callable[[Path, None], object]
) -> None:
    if os.geteuid() != 0:
        pytest.fail("This test gives a file to another user: run it as root.")
    (tmp_path / name).write_text("4")
    os.chown(tmp_path / name, 61_001, 61_001)
    with pytest.raises(BadInput, match="belongs to another user"):
        read(tmp_path, None)


def test_a_length_without_a_unit_is_asked_back_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--data", str(tmp_path), "--slots", "1", "--idle-after", "30"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("30s or 30m?")
