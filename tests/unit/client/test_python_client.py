"""The Python client without a manager: what is the job's and what the function's, pickles, errors, tables."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.cli.answers import job_row
from trainmaster.client import function_folder as files
from trainmaster.client import run_function
from trainmaster.client.client import Client, _values
from trainmaster.client.function_folder import Call
from trainmaster.client.job import Job
from trainmaster.client.job_errors import JobCancelled, JobFailed, JobTimedOut, error_of
from trainmaster.client.job_fields import check_call, split
from trainmaster.client.manager_api import ManagerApi
from trainmaster.client.waiting import as_completed
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import Failed
from trainmaster_sdk import wire


def train(lr: float, depth: int = 1, *, name: str = "") -> float:
    return lr * depth


def row(id: str = "7", state: str = "succeeded", **more: Any) -> JobRow:
    return JobRow.from_json(job_row(id, state, **more))


def ended(folder: Path | None = None, state: str = "succeeded", **more: Any) -> Job:
    made = Job(ManagerApi("http://127.0.0.1:1"), "7", folder, name="train")
    made.see(row(state=state, **more))
    return made


# -- keywords -----------------------------------------------------------------------------------------------


def test_fields_of_a_job_are_not_the_functions() -> None:
    job, named = split(train, {"lr": 0.1, "gpus": 2, "queue": "nlp", "depth": 3})
    assert job == {"gpus": 2, "queue": "nlp"}
    assert named == {"lr": 0.1, "depth": 3}


def test_a_keyword_that_both_have_is_refused_unless_it_is_bound() -> None:
    with pytest.raises(ValueError, match=r"`name` is a field of the job and a parameter of train"):
        split(train, {"lr": 0.1, "name": "bert"})
    job, named = split(functools.partial(train, name="x"), {"lr": 0.1, "name": "bert"})
    assert (job, named) == ({"name": "bert"}, {"lr": 0.1})


def test_a_call_that_cannot_be_made_is_refused_before_it_waits() -> None:
    check_call(train, (0.1,), {"depth": 2})
    with pytest.raises(
        TypeError, match=r"train: got an unexpected .*'gpu' \(did you mean gpus\?\)"
    ):
        check_call(train, (0.1,), {"gpu": 2})
    with pytest.raises(TypeError, match="train: missing a required argument: 'lr'"):
        check_call(train, (), {})


def test_a_misspelt_field_of_a_command_is_refused() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"no field 'gpu'; did you mean gpus\?"):
        client.submit("python train.py", gpu=2)
    with pytest.raises(ValueError, match=r"no field 'quue'; did you mean queue\?"):
        Client(quue="nlp")
    with pytest.raises(TypeError, match="A command takes no arguments"):
        client.submit("python train.py", 3)


def test_what_a_job_file_does_not_allow_is_a_value_error(tmp_path: Path) -> None:
    client = Client("http://127.0.0.1:1", folder=tmp_path)
    with pytest.raises(ValueError, match="max_runtime"):
        client.submit(train, 0.1, max_runtime="soon")
    assert list(tmp_path.iterdir()) == [], "nothing is left of a job that was not submitted"


def test_values_of_a_grid() -> None:
    import numpy as np

    assert _values([1, 2]) == _values((1, 2)) == _values(np.array([1, 2])) == [1, 2]
    assert _values(range(2)) == [0, 1]
    assert _values("adam") == ["adam"]
    assert _values(None) == [None]


def test_nothing_to_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to run"):
        Client("http://127.0.0.1:1", folder=tmp_path).map(train, [])


# -- functions and results ----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a function as its job would, in this process; its folder."""

    def run_here(function: Any, *positional: Any, attempt: int = 1, rank: int = 0) -> Path:
        folder = files.new_folder(tmp_path / "functions", function, [Call(positional)])
        monkeypatch.setenv(wire.ATTEMPT, str(attempt))
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr(sys, "path", [*sys.path])
        with suppress(KeyError, Odd, TypeError):
            run_function.main(folder)
        return folder

    return run_here


def test_a_result_comes_back(run: Any) -> None:
    folder = run(lambda x: {"twice": 2 * x}, 4)
    assert ended(folder).result() == {"twice": 8}
    assert ended(folder).exception() is None
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_exception_is_raised_here_with_its_traceback_there(run: Any) -> None:
    def broken() -> None:
        raise KeyError("no such layer")

    job = ended(run(broken), "failed", exit_code=1, preemptions=2, restarts=1)
    with pytest.raises(KeyError, match="no such layer") as raised:
        job.result()
    cause = str(raised.value.__cause__)
    assert "In job 7. It was preempted 2 times and restarted 1 time." in cause
    assert 'raise KeyError("no such layer")' in cause


class Odd(Exception):
    """One that cannot be read again: it takes two arguments and keeps one."""

    def __init__(self, layer: int, why: str) -> None:
        super().__init__(f"layer {layer}: {why}")


def test_an_exception_that_cannot_be_pickled_keeps_its_text(run: Any) -> None:
    def broken() -> None:
        raise Odd(3, "it diverged")

    error = ended(run(broken), "failed", exit_code=1).exception()
    assert isinstance(error, JobFailed)
    assert "layer 3: it diverged" in str(error)
    assert "raise Odd(3" in str(error.__cause__)


def test_a_result_that_cannot_be_pickled_fails_the_job(run: Any) -> None:
    folder = run(lambda: (each for each in ()))
    error = ended(folder, "failed", exit_code=1).exception()
    assert isinstance(error, TypeError)
    assert "generator" in str(error)


def test_an_exception_of_an_earlier_attempt_is_not_the_reason(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("out of luck")

    monkeypatch.setattr(Job, "logs", lambda *_, **__: "Killed\n")
    error = ended(run(broken, attempt=1), "failed", exit_code=137, attempt=2).exception()
    assert isinstance(error, JobFailed)
    assert str(error) == "Job 7 failed with exit code 137.\nIts last lines:\nKilled"


def test_a_program_that_ends_before_its_function_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match=r"Job 7 succeeded\. It wrote no result"):
        ended(tmp_path).result()


def test_a_result_that_others_could_have_written_is_not_loaded(run: Any) -> None:
    folder = run(lambda: "fine")
    folder.chmod(0o777)
    with pytest.raises(Failed, match=r"is not loaded.*other users may write into"):
        ended(folder).result()


def test_paths_of_the_submitter_are_searched_in_the_job(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layers_of_mine.py").write_text("def depth():\n    return 12\n")
    monkeypatch.syspath_prepend(tmp_path)
    import layers_of_mine  # type: ignore[import-not-found]

    folder = run(layers_of_mine.depth)
    program = f"from trainmaster.client import run_function as r; r.main(r.Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", program], check=True, cwd="/")
    outcome = files.outcome_of(folder, 0, 0)
    assert outcome is not None
    assert pickle.loads(outcome.pickled) == 12


# -- how jobs end -------------------------------------------------------------------------------------------


def test_each_end_has_its_error() -> None:
    limit = {"code": "TimeLimit", "sentence": "It has run for its time limit of 60 s."}
    late = error_of(row(state="timed_out", end_reason=limit))
    assert isinstance(late, JobTimedOut)
    assert str(late) == "Job 7 timed out: It has run for its time limit of 60 s."
    gone = error_of(row(state="cancelled", preemptions=1))
    assert isinstance(gone, JobCancelled)
    assert str(gone) == "Job 7 was cancelled. It was preempted 1 time."
    assert gone.row.id == "7"


def test_waiting_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(ManagerApi("http://127.0.0.1:1"), "7")
    monkeypatch.setattr(Job, "row", lambda _: row(state="running"))
    with pytest.raises(TimeoutError, match=r"Job 7 is still running after 0\.01 s"):
        job.result(timeout=0.01)


def test_an_interrupt_leaves_the_job_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Job) -> JobRow:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "row", interrupt)
    with pytest.raises(KeyboardInterrupt) as stop:
        Job(ManagerApi("http://127.0.0.1:1"), "7").wait()
    assert stop.value.__notes__ == ["Job 7 goes on; job.cancel() ends it."]


def test_jobs_come_in_the_order_of_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ManagerApi("http://127.0.0.1:1")
    first, second = Job(api, "60_0"), Job(api, "60_1")
    looks = iter([["running", "succeeded"], ["failed", "succeeded"]])

    def elements(_: ManagerApi, array: str) -> list[JobRow]:
        assert array == "60"
        return [row(f"60_{at}", state) for at, state in enumerate(next(looks))]

    monkeypatch.setattr("trainmaster.client.waiting.elements_of", elements)
    monkeypatch.setattr(Job, "row", lambda job: job.see(row(job.id, "failed")))
    assert list(as_completed([first, second])) == [second, first]


# -- on a screen --------------------------------------------------------------------------------------------


def test_a_table_shows_text_as_text() -> None:
    made = ended(state="failed", exit_code=1)
    made.name = "<script>alert(1)</script>"
    html = made._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert repr(ended(preemptions=1)) == "<Job 7 train: succeeded, 2.08 min, preempted 1 time>"


def test_the_package_is_light_until_a_name_is_asked_for() -> None:
    program = (
        "import sys, trainmaster; assert 'Client' in dir(trainmaster)\n"
        "assert not [m for m in sys.modules if m.startswith('trainmaster.')], sys.modules\n"
        "trainmaster.Client; print('pandas' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == "False\n", said.stderr
    for name in trainmaster.__all__:
        assert getattr(trainmaster, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'client_of_mine'"):
        trainmaster.client_of_mine  # noqa: B018
