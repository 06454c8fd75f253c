"""A session: what it says and when, outside Trainmaster and inside, in this very process."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from pickle import PicklingError

import pytest

import trainmaster_sdk
from tests.unit.sdk.fake_supervisor import FakeSupervisor, booth, environment, wait_until
from trainmaster_sdk import pacing
from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.environment import JobEnvironment


@pytest.fixture(autouse=True)
def fixture_bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No gang and no Trainmaster around us; signals as they were afterwards."""
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, was in before.items():
        signal.signal(number, was)


@pytest.fixture(name="there")
def fixture_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSupervisor]:
    with booth() as opened:
        monkeypatch.setenv("TRAINMASTER_SOCKET", str(opened.path))
        monkeypatch.setenv("TRAINMASTER_JOB", "12_3")
        monkeypatch.setenv("TRAINMASTER_ATTEMPT", "3")
        monkeypatch.setenv("TRAINMASTER_RESTART_COUNT", "2")
        monkeypatch.setenv("TRAINMASTER_ARRAY_INDEX", "3")
        monkeypatch.setenv("TRAINMASTER_END_TIME", "1794000000.5")
        monkeypatch.setenv("TRAINMASTER_CHECKPOINT_DIR", str(tmp_path / "kept"))
        yield opened


@contextlib.contextmanager
def ends_with(kind: type[BaseException], code: int | None = None) -> Iterator[None]:
    """The block ends with this error; of an exit, with this code."""
    with pytest.raises(kind) as left:
        yield
    assert getattr(left.value, "code", None) == code


def words(there: FakeSupervisor, last: str) -> list[str]:
    there.wait_for(last)
    return [line["say"] for line in there.heard]


# -------------------------------------------------------------------------------------- outside


def test_outside_it_only_keeps_checkpoints(tmp_path: Path) -> None:
    with trainmaster_sdk.run() as tm:
        tm.progress(step=1, loss=0.5, total_steps=2)
        assert not tm.should_stop()
        assert not tm.should_save()
        assert tm.load() is None
        tm.save("state", 1)
        assert (tm.rank, tm.world_size, tm.local_rank) == (0, 1, 0)
        assert (tm.job, tm.attempt, tm.restart_count, tm.is_restart) == (None, 1, 0, False)
        assert (tm.array_index, tm.end_time, tm.stop_why) == (None, None, None)
        assert tm.checkpoint_dir.parent == tmp_path / "checkpoints"
    with trainmaster_sdk.run() as tm:
        found = tm.load()
        assert found is not None
        assert (found.state, found.step) == ("state", 1)


def test_outside_sigterm_is_a_wish_too() -> None:
    with ends_with(SystemExit, 0), trainmaster_sdk.run() as tm:
        os.kill(os.getpid(), signal.SIGTERM)
        assert tm.should_stop()


def test_a_chosen_folder_is_used_outside(tmp_path: Path) -> None:
    with trainmaster_sdk.run(tmp_path / "mine") as tm:
        tm.save(1, 1)
    assert (tmp_path / "mine" / "step-1").is_dir()


def test_a_folder_that_cannot_be_made_matters_only_to_who_saves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with trainmaster_sdk.run(tmp_path / "file" / "below") as tm:
        tm.progress(step=1)
        assert tm.load() is None
        with pytest.raises(OSError, match="Not a directory"):
            tm.save(1, 1)


# --------------------------------------------------------------------------------------- inside


def test_inside_it_knows_its_place_and_says_what_happens(
    there: FakeSupervisor, tmp_path: Path
) -> None:
    with trainmaster_sdk.run() as tm:
        assert (tm.job, tm.attempt, tm.restart_count, tm.is_restart) == ("12_3", 3, 2, True)
        assert (tm.array_index, tm.end_time) == (3, 1794000000.5)
        assert tm.checkpoint_dir == tmp_path / "kept"
        tm.progress(step=1, loss=0.25, samples_per_s=10, total_steps=9, epoch_steps=3)
        tm.save([1], 1)
        assert (tmp_path / "kept" / "step-1").is_dir()
    assert words(there, "done") == ["hello", "progress", "saving", "saved", "done"]
    assert there.heard == [
        {"say": "hello", "rank": 0, "pid": os.getpid()},
        {
            "say": "progress",
            "step": 1,
            "loss": 0.25,
            "samples_per_s": 10.0,
            "total_steps": 9,
            "epoch_steps": 3,
        },
        {"say": "saving", "step": 1},
        {"say": "saved", "step": 1},
        {"say": "done"},
    ]


@pytest.mark.parametrize("how", ["line", "signal"])
def test_told_to_stop_it_saves_says_so_and_exits_with_0(there: FakeSupervisor, how: str) -> None:
    with ends_with(SystemExit, 0), trainmaster_sdk.run() as tm:
        there.wait_for("hello")
        if how == "line":
            there.ask({"ask": "stop", "why": "suspend", "grace_s": 30.0})
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        wait_until(tm.should_stop, "the stop was heard")
        assert tm.stop_why == ("suspend" if how == "line" else None)
        tm.save("state", 41)
        assert tm.should_stop()  # it stays so
    assert words(there, "leaving") == ["hello", "heeds stops", "saving", "saved", "leaving"]
    assert there.heard[-1] == {"say": "leaving", "step": 41}
    os.kill(os.getpid(), signal.SIGTERM)  # the supervisor's second thought does not spoil the 0


def test_a_stop_that_the_program_never_saw_is_no_leaving(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run():
        os.kill(os.getpid(), signal.SIGTERM)
    assert words(there, "done") == ["hello", "done"]


def test_finished_work_counts_as_done_though_a_stop_comes_with_the_last_step(
    there: FakeSupervisor,
) -> None:
    with trainmaster_sdk.run() as tm:
        for step in (1, 2, 3):
            tm.progress(step=step, total_steps=3)
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            if tm.should_stop():
                tm.save("state", step)
                break
    assert words(there, "done")[-1] == "done"
    assert there.said("leaving") == []


def test_a_program_without_a_number_of_steps_may_say_that_it_has_finished(
    there: FakeSupervisor,
) -> None:
    with trainmaster_sdk.run() as tm:
        os.kill(os.getpid(), signal.SIGTERM)
        assert tm.should_stop()
        tm.finish()
    assert words(there, "done") == ["hello", "heeds stops", "done"]


def test_an_error_passes_and_nothing_is_claimed(there: FakeSupervisor) -> None:
    with ends_with(ZeroDivisionError), trainmaster_sdk.run() as tm:
        tm.progress(step=1)
        raise ZeroDivisionError
    assert words(there, "progress") == ["hello", "progress"]
    with ends_with(SystemExit, 3), trainmaster_sdk.run():
        raise SystemExit(3)
    there.wait_for("hello", 2)
    assert there.said("done") == []


@pytest.mark.parametrize("stops", [False, True])
def test_sys_exit_0_in_the_block_is_an_end_like_any_other(
    there: FakeSupervisor, stops: bool
) -> None:
    with ends_with(SystemExit), trainmaster_sdk.run() as tm:
        if stops:
            os.kill(os.getpid(), signal.SIGTERM)
        assert tm.should_stop() == stops
        sys.exit()
    assert words(there, "leaving" if stops else "done")[-1] == ("leaving" if stops else "done")


def test_save_now_is_said_once_and_training_goes_on(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run() as tm:
        there.wait_for("hello")
        there.ask({"ask": "save"})
        wait_until(tm.should_save, "the wish was heard")
        os.kill(os.getpid(), signal.SIGUSR1)  # the same wish, by the other way
        tm.save("state", 5)
        assert not tm.should_save()
        assert not tm.should_stop()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert tm.should_save()


def test_of_fast_progress_the_last_arrives(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run() as tm:
        for step in range(1, 5001):
            tm.progress(step=step, loss=1 / step, total_steps=5000)
    there.wait_for("done")
    wait_until(lambda: there.said("progress")[-1]["step"] == 5000, "the last step was heard")
    assert len(there.said("progress")) < 1000


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_json_has_not_is_left_out(there: FakeSupervisor, loss: float) -> None:
    with trainmaster_sdk.run() as tm:
        tm.progress(step=1, loss=loss)
    assert there.wait_for("progress") == [{"say": "progress", "step": 1}]


def test_a_folder_that_others_wrote_is_made_durable_and_said(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run() as tm:
        folder = tm.checkpoint_dir / "checkpoint-7"
        (folder / "deep").mkdir(parents=True)
        (folder / "trainer_state.json").write_text("{}")
        tm.saved(7, folder)
        assert tm.latest() == folder
    assert there.wait_for("saved") == [{"say": "saved", "step": 7}]


def test_other_ranks_write_nothing_and_leave_progress_to_rank_0(
    there: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with trainmaster_sdk.run() as tm:
        tm.progress(step=1)
        assert tm.save("state", 1) is None
        assert not tm.checkpoints.load()
    assert words(there, "done") == ["hello", "done"]


# ------------------------------------------------------------------------------------ the place


@pytest.mark.parametrize("world", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("batch", [0, 1, 48, 100])
def test_shares_of_a_batch_sum_up(tmp_path: Path, world: int, batch: int) -> None:
    ranks = [
        trainmaster_sdk.Session(
            JobEnvironment.of({"RANK": str(rank), "WORLD_SIZE": str(world)}), tmp_path, 1
        )
        for rank in range(world)
    ]
    samples = list(range(batch))
    assert [one for tm in ranks for one in samples[tm.batch_part(batch)]] == samples
    shares = [tm.per_rank_batch(batch) for tm in ranks]
    assert sum(shares) == batch
    assert max(shares) - min(shares) <= 1


def test_what_more_ranks_cannot_use_is_said_once(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run() as tm:
        for _ in range(2):
            tm.limit_ranks(3)
        tm.finish()
    assert words(there, "done").count("most ranks") == 1
    (said,) = [line for line in there.heard if line["say"] == "most ranks"]
    assert (said["count"], said["world"]) == (3, 1)


def test_ranks_beyond_that_are_refused_with_a_sentence(tmp_path: Path) -> None:
    for rank in range(4):
        place = JobEnvironment.of({"RANK": str(rank), "WORLD_SIZE": "4"})
        with pytest.raises(ValueError, match="A global batch of 3 has no samples for some of 4"):
            trainmaster_sdk.Session(place, tmp_path, 1).limit_ranks(3)


def test_nonsense_in_the_environment_is_named() -> None:
    with pytest.raises(ValueError, match="WORLD_SIZE is 'two'"):
        JobEnvironment.of({"WORLD_SIZE": "two"})


def test_importing_it_loads_the_standard_library_only() -> None:
    code = """
import sys
import threading
before = {name.split(".")[0] for name in sys.modules}
import trainmaster_sdk
print(*{name.split(".")[0] for name in sys.modules} - before - sys.stdlib_module_names)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["trainmaster_sdk"]


# ---------------------------------------------------------------------------------------- pace


def test_it_makes_no_step_at_pace_0_until_the_pace_is_raised(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run() as tm:
        there.wait_for("hello")
        there.ask({"ask": "pace", "pace": 0})
        wait_until(lambda: bool(tm._hear()) or tm._pacer.pace == 0, "the pace was heard")
        tm.progress(step=1)  # the first step has no beginning
        threading.Timer(0.3, lambda: there.ask({"ask": "pace", "pace": 100})).start()
        tm.progress(step=2)
        assert tm._pacer.pace == 100, "it waited for this"


@pytest.mark.parametrize(
    "said", [{"ask": "stop", "why": "suspend", "grace_s": 1}, {"ask": "release", "n": 1}]
)
def test_other_requests_end_the_wait(there: FakeSupervisor, said: dict[str, object]) -> None:
    with trainmaster_sdk.run() as tm:
        tm.can_release(Nothing())
        there.wait_for("hello")
        there.ask({"ask": "pace", "pace": 0})
        wait_until(lambda: bool(tm._hear()) or tm._pacer.pace == 0, "the pace was heard")
        tm.progress(step=1)
        threading.Timer(0.1, lambda: there.ask(said)).start()
        tm.progress(step=2)
        assert tm._requests.stop or tm._suspension.is_asked
        there.ask({"ask": "take back", "n": 1})
        tm.finish()
        tm.progress(step=3)  # after the last step nothing is waited for


class Nothing:
    def prepare(self) -> None:
        pass

    def release(self) -> dict[str, object]:
        return {}

    def take_back(self) -> dict[str, object]:
        return {}


def test_at_half_the_pace_steps_take_twice_as_long(
    there: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited = [100.0], []

    def wait(client: ControlClient, most_s: float) -> None:
        waited.append(most_s)
        clock[0] += most_s

    with trainmaster_sdk.run() as tm:
        there.wait_for("hello")
        monkeypatch.setattr(pacing.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(ControlClient, "wait", wait)
        tm._pacer.pace = 50
        tm.progress(step=1)
        clock[0] += 0.08
        tm.progress(step=2)
        assert waited == [pytest.approx(0.08)]
        clock[0] += 3600  # it was stopped in the middle of a step
        tm.progress(step=3)
        assert sum(waited[1:]) == pytest.approx(1.0)


def test_a_rank_that_joins_leaves_what_the_others_write_alone(
    there: FakeSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "TRAINMASTER_JOINS": "2000"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "kept"
    written, decided = folder / ".new-step-7", folder / ".stop-1"
    written.mkdir(parents=True)
    decided.write_text("9")
    with trainmaster_sdk.run():
        assert written.is_dir()
        assert decided.is_file()


def test_the_end_of_a_save_that_failed_is_told(there: FakeSupervisor) -> None:
    with trainmaster_sdk.run() as tm, pytest.raises((AttributeError, PicklingError)):
        tm.save(lambda: None, 3)  # cannot be pickled
    assert words(there, "done") == ["hello", "saving", "not saved", "done"]
