"""`backup` and `restore` with a manager and real jobs: on an empty machine, and over newer runs."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, sweep, until
from tests.live.test_identity import is_running, pid_of, printed, restarted
from tests.live.test_reasons import refused
from trainmaster.cli.main import main

pytestmark = pytest.mark.live
SLOTS = ("--slots", "4")
CHECKPOINT = "mkdir -p $TRAINMASTER_CHECKPOINT_DIR; echo {} > $TRAINMASTER_CHECKPOINT_DIR/model; {}"


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    sweep(tmp_path)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says, and that it ends as expected."""

    def call(*arguments: str | Path, code: int = 0) -> str:
        capsys.readouterr()
        found = main([str(each) for each in arguments])
        text = "".join(capsys.readouterr())
        assert found == code, text
        return " ".join(text.split())

    return call


Said = Callable[..., str]


def file_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as found:
        return found.getnames()


def states(manager: LiveDaemon) -> dict[str, str]:
    rows = manager.call("GET", "/api/v1/jobs?limit=100")["jobs"]
    return {row["id"]: row["state"] for row in rows}


def usage_of(manager: LiveDaemon, id: str) -> float:
    """GPU-seconds that a job is charged."""
    rows = manager.call("GET", "/api/v1/usage?by=job")["rows"]
    return float(next(row["gpu_s"] for row in rows if row["job"] == id))


@pytest.mark.parametrize("with_runs", [False, True])
def test_a_run_that_a_restored_store_has_is_charged_until_the_backup(
    data: Path, tmp_path: Path, said: Said, with_runs: bool
) -> None:
    made, empty = tmp_path / "made.tar.gz", tmp_path / "other" / "data"
    with live(data, *SLOTS) as manager:
        runs = manager.submit(command="sleep 3600")
        pid_of(manager, runs)
        said("backup", "--data", data, "--to", made, *(["--with-runs"] if with_runs else []))
        most_s = usage_of(manager, runs)
        until(lambda: usage_of(manager, runs) > most_s + 5, "it to run on after the backup")
    said("restore", made, "--data", empty)
    with live(empty, "--slots", "4", "--limit", "retry_delay=1h") as other:
        lost = f"/api/v1/jobs/{runs}/story"
        until(
            lambda: "lost" in [row["what"] for row in other.call("GET", lost)["story"]], "its loss"
        )
        assert 0 < usage_of(other, runs) <= most_s + 1


def test_a_drill_on_the_same_machine_leaves_the_runs_of_the_original_alone(
    data: Path, tmp_path: Path, said: Said
) -> None:
    """The run files in the backup name the sockets and control groups of runs that are alive here."""
    made, drill = tmp_path / "made.tar.gz", tmp_path / "drill" / "data"
    with live(data, *SLOTS) as manager:
        runs = manager.submit(command="sleep 3600", retries=2)
        pid = pid_of(manager, runs)
        said("backup", "--data", data, "--to", made, "--with-runs")
        told = said("restore", made, "--data", drill)
        assert f"A manager works in {data} on this machine" in told
        assert "would run twice" in told
        with live(drill, *SLOTS) as other:
            assert copied(other, runs) != pid
            other.call("POST", f"/api/v1/jobs/{runs}/cancel")
            other.until_state(runs, "cancelled")
        assert manager.job(runs)["pids"] == [pid]
        assert is_running(pid)
        assert manager.stop() == 0
        assert "works in" not in said("restore", made, "--data", drill, "--replace")


def copied(other: LiveDaemon, id: str) -> int:
    """The process of a job in a copied folder, once the run of the original is told as lost."""

    def lost() -> list[str]:
        rows = other.call("GET", f"/api/v1/jobs/{id}/story")["story"]
        return [str(row) for row in rows if row["what"] == "lost"]

    (row,) = until(lost, "the run of the original to be lost here")
    assert "this one is a copy of" in row
    return pid_of(other, id)


def test_a_backup_is_restored_on_an_empty_machine(data: Path, tmp_path: Path, said: Said) -> None:
    """What had ended has ended; what ran begins again, since its processes are not on this machine."""
    made, empty = tmp_path / "made.tar.gz", tmp_path / "other" / "data"
    with live(data, *SLOTS, "--policy", "las") as manager:
        ended = manager.submit(command="echo done", name="ended")
        manager.until_state(ended, "succeeded")
        runs = manager.submit(command="sleep 3600", name="runs", retries=2)
        pid = pid_of(manager, runs)
        held = manager.submit(command="true", name="held", held=True)
        said("backup", "--data", data, "--to", made)
        assert made.stat().st_mode & 0o077 == 0
        story = manager.call("GET", f"/api/v1/jobs/{ended}/story")
        token = (data / "admin-token").read_text().strip()
    assert token
    assert token.encode() not in gzip.decompress(made.read_bytes()), "only its hash goes along"
    assert not [each for each in file_in(made) if each.startswith("folder/runs")]
    assert "3 jobs" in said("backup", "--verify", made)
    assert "Restored 3 jobs" in said("restore", made, "--data", empty)
    with live(empty) as other:  # the slots and the policy are those of the backup
        assert (empty / "admin-token").read_text().strip() != token
        assert other.call("GET", f"/api/v1/jobs/{ended}/story") == story
        assert states(other)[ended] == "succeeded"
        with refused(404) as told:
            other.log(ended)
        assert f"output of job {ended} was not in the backup" in told[0]
        assert states(other)[held] == "pending"
        assert other.call("GET", "/api/v1/policy")["name"] == "las"
        assert other.call("GET", "/api/v1/status")["devices"] == 4
        (now,) = until(lambda: other.job(runs)["pids"], "it to run again")
        assert now != pid
        assert other.job(runs)["attempt"] == 2
        assert int(other.submit(command="true")) == int(held) + 1
        what = [row["what"] for row in other.call("GET", f"/api/v1/jobs/{runs}/story")["story"]]
        assert "lost" in what
    assert not (empty / "restored.json").exists()


def test_a_backup_is_restored_over_newer_runs(data: Path, tmp_path: Path, said: Said) -> None:
    """Nothing is killed, no number is given twice, no checkpoint changes hands, no job succeeds by itself."""
    made = tmp_path / "made.tar.gz"
    with live(data, *SLOTS) as manager:
        old = manager.submit(command="sleep 3600", name="old")
        before = {old: pid_of(manager, old)}
        waits = manager.submit(command="echo x >> ../waits", workdir=str(data), held=True)
        said("backup", "--data", data, "--to", made)
        newer = manager.submit(command=CHECKPOINT.format("newer", "sleep 3600"), name="newer")
        before[newer] = pid_of(manager, newer)
        failed = manager.submit(command=CHECKPOINT.format("failed", "exit 7"), retries=0)
        manager.until_state(failed, "failed")
        done = manager.submit(command="echo done", name="done")
        manager.until_state(done, "succeeded")
        unstarted = manager.submit(command="true", name="unstarted", held=True)
        told = said("restore", made, "--data", data, "--replace", code=1)
        assert "A manager uses" in told
        assert manager.stop() == 0
        assert "--replace" in said("restore", made, "--data", data, code=1)
        assert all(map(is_running, before.values()))
        told = said("restore", made, "--data", data, "--replace")
        assert f"taken over at the next start: job {newer}" in told
        assert f"never started, so gone: job {unstarted}." in told
        assert "trainmaster.db.replaced-1" in told
        assert (data / "trainmaster.db.replaced-1").exists()
        with restarted(manager):  # no flag: the restore has said what to do
            for id, pid in before.items():
                assert manager.job(id)["state"] == "running"
                assert manager.job(id)["pids"] == [pid]
                assert manager.job(id)["attempt"] == 1
            found = states(manager)
            assert (found[failed], found[done], found[waits]) == ("failed", "succeeded", "pending")
            assert unstarted not in found, "it was neither in the backup nor in the folder"
            assert "submit again" in printed(data)
            fresh = manager.submit(command=CHECKPOINT.format("fresh", "true"))
            assert int(fresh) > int(unstarted)
            manager.until_state(fresh, "succeeded")
            for id, model in ((newer, "newer"), (failed, "failed"), (fresh, "fresh")):
                assert (data / "jobs" / id / "checkpoints" / "model").read_text() == f"{model}\n"
        assert not (data / "restored.json").exists()
        assert not (tmp_path / "waits").exists()
        with restarted(manager):
            assert states(manager)[newer] == "running"


def test_runs_go_along_if_wanted(data: Path, tmp_path: Path, said: Said) -> None:
    made, empty = tmp_path / "made.tar.gz", tmp_path / "other"
    with live(data, *SLOTS) as manager:
        ended = manager.submit(command="echo from the log")
        manager.until_state(ended, "succeeded")
        runs = manager.submit(command=CHECKPOINT.format("kept", "sleep 3600"), retries=2)
        pid_of(manager, runs)
        model = data / "jobs" / runs / "checkpoints" / "model"
        until(model.exists, "the checkpoint")
        (data / "jobs" / runs / "checkpoints" / "newest").symlink_to("model")
        (data / "jobs" / runs / "checkpoints" / "outside").symlink_to("/etc/passwd")
        told = said("backup", "--data", data, "--to", made, "--with-runs")
        assert "outside leads out of the data folder, and was left out" in told
        charged = [usage_of(manager, ended)]
    said("restore", made, "--data", empty)
    with live(empty) as other:
        charged.append(usage_of(other, ended))
        assert charged[0] == charged[1] > 0
        assert "from the log" in other.log(ended)
        assert (empty / "jobs" / runs / "checkpoints" / "newest").read_text() == "kept\n"
        until(lambda: other.job(runs)["attempt"] == 2, "it to run again")
        assert not list((empty / "jobs" / runs).glob("*.of-*")), "its checkpoints are its own"


@pytest.mark.parametrize("to_postgres", [False, True])
def test_from_one_database_to_the_other(
    data: Path, tmp_path: Path, postgres_url: str, said: Said, to_postgres: bool
) -> None:
    made, there = tmp_path / "made.tar.gz", ("--database", postgres_url)
    first, second = ((), there) if to_postgres else (there, ())
    with live(data, *SLOTS, *first) as manager:
        ended = manager.submit(command="echo one")
        manager.until_state(ended, "succeeded")
        runs = manager.submit(command="sleep 3600")
        pid = pid_of(manager, runs)
        said("backup", "--data", data, "--to", made)  # the folder says which database
        assert manager.stop() == 0
        said("restore", made, "--data", data, *second)
        with restarted(manager, *second):
            assert states(manager) == {ended: "succeeded", runs: "running"}
            assert manager.job(runs)["pids"] == [pid]
            manager.until_state(manager.submit(command="true"), "succeeded")
            assert len(manager.call("GET", f"/api/v1/jobs/{runs}/story")["story"]) >= 3


def test_postgres_is_restored_over_newer_runs(
    data: Path, tmp_path: Path, postgres_url: str, said: Said
) -> None:
    made, there = tmp_path / "made.tar.gz", ("--database", postgres_url)
    with live(data, *SLOTS, *there) as manager:
        manager.until_state(manager.submit(command="true"), "succeeded")
        said("backup", "--data", data, "--to", made)
        newer = manager.submit(command="sleep 3600")
        pid = pid_of(manager, newer)
        assert "A manager uses" in said("restore", made, "--data", data, *there, code=1)
        other = tmp_path / "elsewhere"
        assert "A manager leads" in said("restore", made, "--data", other, *there, code=1)
        assert manager.stop() == 0
        assert "--replace" in said("restore", made, "--data", data, *there, code=1)
        told = said("restore", made, "--data", data, *there, "--replace")
        assert "set aside as schema trainmaster_replaced_1" in told
        with restarted(manager, *there):
            assert manager.job(newer)["pids"] == [pid]
            assert int(manager.submit(command="true")) > int(newer)


# -- files that must not be restored -----------------------------------------------------------------------


@pytest.fixture
def whole(data: Path, tmp_path: Path, said: Said) -> Path:
    """A backup of a small store, and the data folder without a manager."""
    made = tmp_path / "whole.tar.gz"
    with live(data, "--slots", "1") as manager:
        manager.until_state(manager.submit(command="true"), "succeeded")
        said("backup", "--data", data, "--to", made)
        assert manager.stop() == 0
    return made


def changed(whole: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The same file with other content of some parts."""
    with tarfile.open(whole) as source, tarfile.open(target, "w:gz") as made:
        for info in source:
            content = source.extractfile(info)
            new = change(info.name, b"" if content is None else content.read())
            if new is not None:
                info.size = len(new)
                made.addfile(info, io.BytesIO(new))
    return target


def with_field(**fields: object) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if name != "manifest.json":
            return content
        return json.dumps(json.loads(content) | fields).encode()

    return change


def test_a_damaged_or_newer_backup_changes_nothing(
    whole: Path, data: Path, tmp_path: Path, said: Said
) -> None:
    size, content = whole.stat().st_size, whole.read_bytes()
    bad: dict[str, str] = {}
    for length in (0, 10, size // 3, size // 2, size - 30, size - 9):
        (tmp_path / f"cut-{length}").write_bytes(content[:length])
        bad[f"cut-{length}"] = "damaged, cut off, or not a backup"
    flipped = bytearray(content)
    flipped[size // 2] ^= 0x40
    (tmp_path / "flipped").write_bytes(flipped)
    (tmp_path / "text").write_text("not a backup at all")
    (tmp_path / "gzip").write_bytes(gzip.compress(b"nor this"))
    changed(whole, tmp_path / "no-end", lambda name, text: None if name == "SHA256SUMS" else text)
    changed(
        whole,
        tmp_path / "fewer",
        lambda name, text: text.split(b"\n")[0] + b"\n" if name == "store/jobs.jsonl" else text,
    )
    bad |= dict.fromkeys(("flipped", "text", "gzip", "no-end", "fewer"), "damaged, cut off")
    changed(whole, tmp_path / "format", with_field(format=99, version="9.9"))
    changed(whole, tmp_path / "schema", with_field(schema_version="9999", version="9.9"))
    bad |= dict.fromkeys(("format", "schema"), "made by a newer Trainmaster (9.9")
    bad["missing"] = "There is no backup"

    def everything() -> dict[str, bytes]:
        files = (each for each in data.rglob("*") if each.is_file() and "db-" not in each.name)
        return {str(each): each.read_bytes() for each in files}

    before = everything()
    for name, sentence in bad.items():
        assert sentence in said("backup", "--verify", tmp_path / name, code=1), name
        assert sentence in said("restore", tmp_path / name, "--data", data, "--replace", code=1)
        assert everything() == before, name
    assert not list(data.glob("*replaced*"))


def test_a_folder_with_runs_of_another_store_is_refused(
    whole: Path, data: Path, tmp_path: Path, said: Said
) -> None:
    other = tmp_path / "other"
    with live(other, "--slots", "1") as manager:
        runs = manager.submit(command="sleep 3600")
        pid = pid_of(manager, runs)
        assert manager.stop() == 0
        told = said("restore", whole, "--data", other, "--replace", code=1)
        assert "runs of another store" in told
        assert is_running(pid)
        with restarted(manager):
            assert manager.job(runs)["pids"] == [pid]


def test_a_restore_that_was_interrupted_can_be_repeated(
    whole: Path, data: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmaster.daemon import backup

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(backup, "unpack", full)
        assert "is full" in said("restore", whole, "--data", data, "--replace", code=1)
    assert not (data / "restored.json").exists()
    assert not list(data.glob("trainmaster.db.*[0-9]"))
    assert "Restored 1 job" in said("restore", whole, "--data", data, "--replace")
    with live(data) as manager:
        assert states(manager) == {"1": "succeeded"}


def test_a_backup_is_never_written_over_another_file(
    whole: Path, data: Path, tmp_path: Path, said: Said
) -> None:
    assert "is there already" in said("backup", "--data", data, "--to", whole, code=2)
    told = said("backup", "--data", data, "--to", tmp_path)
    (made,) = tmp_path.glob("trainmaster-*.tar.gz")
    assert str(made) in told
    assert json.loads((data / "last-backup.json").read_text())["file"] == str(made)
    shutil.rmtree(data / "backups")
    assert "there is no data folder" in said("backup", "--data", tmp_path / "none", code=2)
