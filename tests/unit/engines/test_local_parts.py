"""Parts of the local engine that need no processes: journals, logs, what programs say, verdicts."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from trainmaster.engines.local import journal
from trainmaster.engines.local.cgroups import RunCgroups
from trainmaster.engines.local.exit_status import ExitStatus, StopCause, exit_status_of
from trainmaster.engines.local.fork_server_client import server_env
from trainmaster.engines.local.journal import Journal
from trainmaster.engines.local.logs import RankLog, rank_logs
from trainmaster.engines.local.orphan_cleanup import RunRemains, close_lost_run, kill_supervisor
from trainmaster.engines.local.pending_orders import PendingOrders
from trainmaster.engines.local.progress_throttle import cleaned
from trainmaster.engines.local.rank_processes import (
    Gang,
    NotStarted,
    RankProcess,
    code_of,
    signal_of,
)
from trainmaster.engines.local.run_follower import RunFollower, report_of
from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile
from trainmaster.engines.local.worker_environment import base_env
from trainmaster.model.engine_reports import Frozen, NotFrozen, Thawed
from trainmaster.model.job import Run


def written(folder: Path) -> list[tuple[int, str]]:
    return [(entry["n"], entry["what"]) for entry in journal.read(str(folder))]


def test_a_journal_numbers_its_entries_and_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    for what in ("opened", "started"):
        assert first.append(first.entry(what, {}))
    first.close()
    again = Journal(str(tmp_path))
    again.append(again.entry("lost", {}))
    again.close()
    assert written(tmp_path) == [(1, "opened"), (2, "started"), (3, "lost")]
    assert [entry["n"] for entry in journal.read(str(tmp_path), after=2)] == [3]


def test_a_line_that_was_torn_never_happened(tmp_path: Path) -> None:
    book = Journal(str(tmp_path))
    book.append(book.entry("opened", {}))
    book.close()
    with (tmp_path / journal.JOURNAL).open("ab") as file:
        file.write(b'{"n":2,"at_ms":17,"wh')
    assert written(tmp_path) == [(1, "opened")]
    again = Journal(str(tmp_path))
    again.append(again.entry("lost", {}))
    again.close()
    assert written(tmp_path) == [(1, "opened"), (2, "lost")]


@pytest.mark.parametrize(
    "line",
    [b"\0\0\0\n", b"\xff\xfe\n", b"[1]\n", b'{"n":"2","at_ms":1,"what":"x"}\n', b'{"n":2}\n'],
)
def test_a_journal_ends_where_it_cannot_be_read(tmp_path: Path, line: bytes) -> None:
    whole = json.dumps({"n": 1, "at_ms": 7, "what": "opened"}).encode() + b"\n"
    (tmp_path / journal.JOURNAL).write_bytes(whole + line + whole.replace(b"1", b"3"))
    assert written(tmp_path) == [(1, "opened")]
    book = Journal(str(tmp_path), floor=8)
    book.append(book.entry("lost", {}))
    book.close()
    assert written(tmp_path) == [(1, "opened"), (9, "lost")]


def test_what_must_outlast_a_power_cut_is_on_the_disk_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(file: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    book = Journal(str(tmp_path))
    assert synced == [tmp_path.name]
    for what in ("opened", "started", "frozen", "reshaped", "ended", "lost"):
        synced.clear()
        assert book.append(book.entry(what, {}))
        assert synced == [journal.JOURNAL], what
    for what in ("progress", "saved", "thawed"):
        synced.clear()
        assert book.append(book.entry(what, {}))
        assert synced == [], what
    book.close()


def test_what_did_not_reach_the_disk_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Journal(str(tmp_path))
    book.append(book.entry("opened", {}))

    def refuse(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        assert book.append(book.entry("started", {})) == []
        assert book.append(book.entry("progress", {})) == []
        assert written(tmp_path) == [(1, "opened")]
    assert [entry["n"] for entry in book.retry()] == [2, 3]
    assert written(tmp_path) == [(1, "opened"), (2, "started"), (3, "progress")]
    book.close()


def an_entry(n: int, what: str, generation: int = 0) -> journal.JournalEntry:
    return {"n": n, "what": what, "generation": generation}


def test_an_order_waits_until_an_entry_answers_it() -> None:
    orders = PendingOrders()
    orders.add({"order": "freeze"})
    orders.drop_answered(an_entry(4, "frozen"))  # read in the journal: of an earlier order
    assert orders.take_due(after=5) == [{"order": "freeze"}]
    for n, what in ((6, "progress"), (7, "thawed"), (5, "frozen")):
        orders.drop_answered(an_entry(n, what))
        assert orders, what
    orders.mark_all_due()
    assert orders.take_due(after=7) == [{"order": "freeze"}]
    orders.drop_answered(an_entry(8, "frozen"))
    assert not orders


def test_a_reshape_is_answered_by_its_own_generation_and_everything_by_the_end() -> None:
    orders = PendingOrders()
    orders.add({"order": "reshape", "generation": 2})
    orders.add({"order": "save"})
    assert len(orders.take_due(after=1)) == 2
    orders.drop_answered(an_entry(2, "reshaped", generation=1))
    orders.mark_all_due()
    assert orders.take_due(after=2) == [{"order": "reshape", "generation": 2}]
    orders.drop_answered(an_entry(3, "reshaped", generation=2))
    assert not orders
    orders.add({"order": "kill"})
    assert orders.ends == [{"order": "kill"}]
    orders.drop_answered(an_entry(4, "ended"))
    assert not orders


def test_a_thaw_that_changed_nothing_is_not_said_again_after_a_freeze() -> None:
    orders = PendingOrders()
    orders.add({"order": "thaw"})
    orders.take_due(after=1)
    orders.add({"order": "freeze"})
    orders.mark_all_due()
    assert orders.take_due(after=1) == [{"order": "freeze"}]


def test_a_machine_that_starts_no_more_processes_is_not_the_jobs_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    run = RunFile(
        *("12.1", 0, str(tmp_path), {}, (RankSpec(("true",), {}),), "", 0, 10, 1, ""),
        cgroups=CgroupPlan(),
    )
    problem = Gang(RunCgroups(run.cgroups, "none")).start(run, str(tmp_path))
    assert problem is not None
    assert not problem.is_final
    assert "cannot start more processes" in problem.why


def test_time_in_a_journal_never_goes_back(tmp_path: Path) -> None:
    (tmp_path / journal.JOURNAL).write_text(
        json.dumps({"n": 1, "at_ms": 1 << 60, "what": "opened"}) + "\n"
    )
    book = Journal(str(tmp_path))
    assert book.entry("started", {})["at_ms"] == 1 << 60


def test_what_the_disk_refuses_is_told_when_it_is_written_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Journal(str(tmp_path))
    book.append(book.entry("opened", {}))

    def refuse(file: int, text: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        assert book.append(book.entry("started", {})) == []
        assert not book.is_written
        assert "space" in book.trouble
        assert [entry["n"] for entry in book.remembered(0)] == [1]
    assert [entry["what"] for entry in book.append(book.entry("ended", {}))] == ["started", "ended"]
    assert written(tmp_path) == [(1, "opened"), (2, "started"), (3, "ended")]


def test_a_journal_whose_folder_is_gone_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    book = Journal(str(folder))
    for what in ("opened", "started", "progress"):
        book.append(book.entry(what, {}))
    shutil.rmtree(folder)
    assert [entry["n"] for entry in book.remembered(1)] == [2]
    book.append(book.entry("ended", {}))
    assert written(folder) == [(1, "opened"), (2, "started"), (4, "ended")]


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    lock = journal.take_lock(str(tmp_path))
    assert lock is not None
    assert journal.is_locked(str(tmp_path))
    assert journal.take_lock(str(tmp_path)) is None
    os.close(lock)
    assert not journal.is_locked(str(tmp_path))


@pytest.mark.parametrize(("size", "files"), [(10, 3), (7, 1), (1000, 2)])
def test_a_log_keeps_the_newest_bytes(tmp_path: Path, size: int, files: int) -> None:
    log = RankLog(str(tmp_path / "rank-4.log"), size, files)
    whole = b"".join(b"%d\n" % number for number in range(100))
    for at in range(0, len(whole), 13):
        log.write(whole[at : at + 13])
    log.close()
    kept = b"".join(path.read_bytes() for path in rank_logs(tmp_path)[4])
    assert whole.endswith(kept)
    assert len(kept) >= min(len(whole), size * (files - 1))
    assert len(rank_logs(tmp_path)[4]) <= files
    assert whole.decode().endswith(log.tail() + "\n")


def test_only_what_makes_sense_of_progress_is_kept() -> None:
    assert cleaned({"step": 3, "loss": 1, "samples_per_s": float("inf"), "total_steps": "x"}) == {
        "step": 3,
        "loss": 1.0,
    }
    for step in (None, "3", -1, 2.5, True):
        assert cleaned({"step": step}) is None
    assert cleaned({"step": 4.0, "epoch_steps": 2}) == {"step": 4, "epoch_steps": 2}


@pytest.mark.parametrize("loss", [1e305, -1e13, 10**400, float("nan"), float("-inf")])
def test_numbers_that_nothing_downstream_could_hold_are_left_out(loss: float) -> None:
    assert cleaned({"step": 3, "loss": loss, "samples_per_s": 2}) == {"step": 3, "samples_per_s": 2}
    assert cleaned({"step": 3, "loss": -1e12}) == {"step": 3, "loss": -1e12}


@pytest.mark.parametrize("count", [2**53, 10**19, 1e300, -1])
def test_a_report_with_a_count_that_cannot_be_is_dropped(count: float) -> None:
    assert cleaned({"step": count}) is None
    assert cleaned({"step": 3, "total_steps": count}) is None
    assert cleaned({"step": 2**53 - 1}) == {"step": 2**53 - 1}


def ranks(tmp_path: Path, *codes: int) -> list[RankProcess]:
    return [
        RankProcess(number, 1, None, RankLog(str(tmp_path / f"rank-{number}.log"), 100, 1), code)
        for number, code in enumerate(codes)
    ]


def judged(
    gang: list[RankProcess],
    told: StopCause | None = None,
    *,
    killed: bool = False,
    left: bool = False,
    saved: bool = False,
    done: tuple[int, ...] = (),
    oom: frozenset[int] = frozenset(),
    not_started: NotStarted | None = None,
    machine_oom: bool = False,
) -> ExitStatus:
    first = next((rank for rank in gang if rank.code), None) if told is StopCause.FAILURE else None
    return exit_status_of(
        ranks=gang,
        first=first,
        not_started=not_started,
        cause=told,
        was_killed=killed,
        has_left=left,
        has_saved=saved,
        done=done,
        limit=1 << 30,
        oom_ranks=oom,
        machine_oom=machine_oom,
    )


def test_verdicts(tmp_path: Path) -> None:
    fine, cut = ranks(tmp_path, 0, 0), ranks(tmp_path, 0, 143)
    assert judged(fine).is_success
    assert judged(fine, StopCause.HALT, done=(0, 1)).is_success
    assert judged(fine, StopCause.RESIZE, done=(0,)).is_success
    assert judged(cut, StopCause.HALT, done=(0, 1)).is_success
    lonely = judged(cut, StopCause.HALT, done=(0,))
    assert (lonely.is_success, lonely.asked, lonely.code) == (False, "halt", 143)
    assert not judged(fine, StopCause.RESIZE).is_success
    halted = judged(fine, StopCause.HALT)
    assert (halted.asked, halted.code, halted.has_left) == ("halt", 0, False)
    assert judged(fine, StopCause.HALT, saved=True).has_left
    assert not judged(cut, StopCause.HALT, saved=True).has_left
    assert not judged(fine, StopCause.HALT, saved=True, killed=True).has_left
    killed = judged(cut, StopCause.HALT, killed=True)
    assert (killed.asked, killed.has_left, killed.was_killed) == ("halt", False, True)
    assert judged(cut, StopCause.HALT, killed=True, left=True).has_left
    cancelled = judged(fine, StopCause.KILL, done=(0, 1))
    assert (cancelled.asked, cancelled.rank) == ("kill", None)
    failed = judged(cut, StopCause.FAILURE)
    assert (failed.code, failed.rank, failed.asked) == (143, 1, "nothing")
    assert (failed.signal, failed.why) == ("", "")  # it exited with that code
    cut[1].signal = "SIGTERM"
    failed = judged(cut, StopCause.FAILURE)
    assert failed.signal == "SIGTERM"
    assert "SIGTERM" in failed.why
    full = judged(cut, StopCause.FAILURE, oom=frozenset({1}))
    assert "more host memory than the 1.0 GiB" in full.why
    absent = judged(cut, StopCause.FAILURE, not_started=NotStarted(1, 127, "It is not there."))
    assert (absent.code, absent.rank, absent.why) == (127, 1, "It is not there.")


def test_an_exit_is_told_from_a_signal() -> None:
    for command, code, name in (("exit 137", 137, ""), ("kill -9 $$", 137, "SIGKILL")):
        pid = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", command)
        _, status = os.waitpid(pid, 0)
        assert (code_of(status), signal_of(status)) == (code, name)


def test_a_machine_out_of_memory_has_killed_only_what_was_killed(tmp_path: Path) -> None:
    def why(signal: str, said: bytes) -> str:
        (rank,) = ranks(tmp_path, 137)
        rank.signal = signal
        rank.log.write(said)
        return judged([rank], StopCause.FAILURE, machine_oom=True).why

    assert why("", b"step 3\n") == ""
    assert "ran out of memory" in why("SIGKILL", b"")
    assert "ran out of memory" in why("", b"Killed\n")


def test_a_run_that_was_ended_because_it_hung_has_failed_whatever_it_returned(
    tmp_path: Path,
) -> None:
    """Unless its ranks had said that they were done: many programs hang in their last lines."""
    fine, cut = ranks(tmp_path, 0, 0), ranks(tmp_path, 0, 143)
    saved = judged(fine, StopCause.HANG, left=True, saved=True)
    assert (saved.code, saved.asked, saved.hung, saved.is_success) == (124, "nothing", True, False)
    killed = judged(cut, StopCause.HANG, killed=True)
    assert (killed.code, killed.rank, killed.hung) == (143, None, True)
    assert killed.why.startswith("It hung and was ended.")
    assert judged(cut, StopCause.HANG, done=(0, 1)).is_success
    assert StopCause.HANG.yields_to(StopCause.KILL)
    assert not StopCause.HANG.yields_to(StopCause.HALT)


def test_a_launchers_exit_code_does_not_undo_a_save(tmp_path: Path) -> None:
    """torchrun returns 1 after SIGTERM, whatever its workers return."""
    launcher = ranks(tmp_path, 1)
    left = judged(launcher, StopCause.HALT, left=True)
    assert (left.asked, left.has_left, left.code) == ("halt", True, 0)
    assert judged(launcher, StopCause.HALT).code == 1
    assert judged(launcher, left=True).code == 1


def test_a_steady_clock_counts_until_the_machine_is_restarted(tmp_path: Path) -> None:
    book = journal.Journal(str(tmp_path))
    entry = book.entry("frozen", {})
    book.close()
    assert report_of(Run("1", 1), entry) == Frozen(
        Run("1", 1), entry["at_ms"], steady_ms=entry["steady_ms"]
    )
    assert report_of(Run("1", 1), entry | {"boot": "another"}) == Frozen(
        Run("1", 1), entry["at_ms"]
    )
    old = {"n": 1, "at_ms": 7, "what": "frozen"}  # of an earlier version
    assert report_of(Run("1", 1), old) == Frozen(Run("1", 1), 7)


def test_the_journal_says_how_a_run_was_frozen_or_why_not() -> None:
    run, stamp = Run("1", 1), {"n": 1, "at_ms": 7}
    said = {"how": "driver", "why": "So.", "host_bytes": 9, "gpu_bytes": 0, "took_ms": 4}
    assert report_of(run, {**stamp, "what": "frozen", **said}) == Frozen(run, 7, **said)
    refused = {**stamp, "what": "not frozen", "why": "No.", "is_final": True}
    assert report_of(run, refused) == NotFrozen(run, 7, "No.", True)
    assert report_of(run, {**stamp, "what": "thawed", "took_ms": 3}) == Thawed(run, 7, 3)
    with pytest.raises(KeyError):
        report_of(run, {**stamp, "what": "not frozen"})


@pytest.mark.parametrize(("has_gpus", "is_new"), [(True, False), (True, True), (False, False)])
def test_a_supervisor_of_an_earlier_version_frees_no_gpus(
    tmp_path: Path, has_gpus: bool, is_new: bool
) -> None:
    """What it has stopped goes on, and is not taken for frozen."""
    told: list[object] = []
    run, remains = Run("1", 1), RunRemains(tmp_path, "", CgroupPlan())
    book = journal.Journal(str(tmp_path))
    opened = book.append(book.entry("opened", {"frees_gpus": True} if is_new else {}))
    said = [*opened, *(book.append(book.entry(what, {}))[0] for what in ("frozen", "thawed"))]
    book.close()
    follower = RunFollower(
        run, remains, 0, lambda report, n: told.append(report), lambda it: None, has_gpus=has_gpus
    )
    for entry in said:
        follower._take(entry)
    if has_gpus and not is_new:
        assert [type(each) for each in told] == [NotFrozen]
        assert [each["order"] for each in follower._orders.take_due(2)] == ["thaw"]
    else:
        assert [type(each) for each in told] == [Frozen, Thawed]
        assert not follower._orders


def test_supervisors_and_their_helpers_look_for_libraries_where_the_manager_does() -> None:
    ours = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64", "SECRET": "1234"}
    theirs = server_env(ours)
    assert theirs["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert "SECRET" not in theirs
    assert "LD_LIBRARY_PATH" not in server_env({})
    assert "LD_LIBRARY_PATH" not in base_env(ours), "programs have their submitter's"


def test_a_lost_run_says_why_its_supervisor_was_killed(tmp_path: Path) -> None:
    """Whoever finds first that it is gone: a fence that kills it, or the manager that follows it."""
    remains = RunRemains(tmp_path / "1" / "1", str(tmp_path / "socket"), CgroupPlan())
    assert close_lost_run(remains, 0)
    remains.folder.joinpath(journal.JOURNAL).unlink()
    kill_supervisor(remains, "Its node was cut off.")
    assert close_lost_run(remains, 0)
    assert (journal.last(str(remains.folder)) or {})["why"] == "Its node was cut off."
