"""A suite run over processes: complete, repeatable, kept, and none the worse for one bad trial."""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.builders import FIFO, IDEAL, experiment, generated, suite, trial
from trainmaster.evaluation import trial_cache
from trainmaster.evaluation.process_pool import spread
from trainmaster.evaluation.runner import Interrupted, SuiteProgress, run_suite
from trainmaster.evaluation.score import Skipped
from trainmaster.evaluation.scores_json import to_json
from trainmaster.evaluation.selection import narrowed, runnable
from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    Experiment,
    Suite,
    SuiteError,
    SyntheticTrace,
    TraceFile,
    Trial,
    Workload,
)
from trainmaster.evaluation.suites import suite_names, suite_of
from trainmaster.evaluation.trial import run_trial
from trainmaster.evaluation.trial_cache import TrialCache, key_of

LAS = Contender("las", "las")
THREE = suite(experiment(FIFO, LAS, workload=generated(seeds=(0, 1, 2))))


def ran(suite: Suite, folder: Path, processes: int = 1) -> tuple[str, list[Trial]]:
    """The output, and the trials that were run for it."""
    heard: list[SuiteProgress] = []
    result = run_suite(suite, TrialCache(folder), processes=processes, on_progress=heard.append)
    assert result.failures == ()
    return to_json(result), [progress.trial for progress in heard if progress.trial is not None]


# -- the same whatever the way -----------------------------------------------------------------------


def test_one_and_two_processes_give_the_same_bytes_in_the_suites_order(tmp_path: Path) -> None:
    alone, _ = ran(THREE, tmp_path / "one", 1)
    together, trials = ran(THREE, tmp_path / "two", 2)
    assert alone == together
    assert len(trials) == 6
    result = run_suite(THREE, TrialCache(tmp_path / "two"))
    assert [str(each.trial) for each in result.scored] == [str(each) for each in THREE.trials()]
    las = [each.trial.seed for each in result.scored if each.trial.contender.label == "las"]
    assert las == [0, 1, 2]


def test_equal_trials_of_two_experiments_are_run_once_and_given_to_both(tmp_path: Path) -> None:
    first = experiment(FIFO, LAS)
    named = replace(generated(), name="called otherwise", title="Otherwise")
    second = experiment(replace(FIFO, label="first come"), workload=named, name="two")
    result = run_suite(suite(first, second), TrialCache(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    assert [each.trial.experiment for each in result.scored] == ["one", "one", "two"]
    assert result.scored[2].trial.contender.label == "first come"
    assert result.scored[0].score == result.scored[2].score


# -- going on ----------------------------------------------------------------------------------------


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    before, all_of_them = ran(THREE, tmp_path)
    kept = sorted(tmp_path.iterdir())
    kept[0].unlink()
    kept[1].write_text('{"score": {"half"')
    whole = json.loads(kept[2].read_text())
    kept[2].write_text(json.dumps(whole | {"score": whole["score"] | {"bins": None}}))
    after, again = ran(THREE, tmp_path)
    assert (len(all_of_them), len(again)) == (6, 3)
    assert after == before


def test_interrupted_it_says_how_far_it_came_and_goes_on_from_there(tmp_path: Path) -> None:
    def press_ctrl_c(progress: SuiteProgress) -> None:
        if progress.done == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"[23] of 6 trials are done and kept; run the same"):
        run_suite(THREE, TrialCache(tmp_path), processes=2, on_progress=press_ctrl_c)
    kept = len(list(tmp_path.iterdir()))
    assert kept in (2, 3)
    resumed, trials = ran(THREE, tmp_path, 2)
    assert len(trials) == 6 - kept
    assert resumed == ran(THREE, tmp_path / "whole")[0]


def test_a_fresh_run_believes_nothing(tmp_path: Path) -> None:
    heard: list[SuiteProgress] = []
    run_suite(suite(experiment()), TrialCache(tmp_path))
    run_suite(suite(experiment()), TrialCache(tmp_path), is_fresh=True, on_progress=heard.append)
    assert [(progress.done, progress.in_all) for progress in heard] == [(0, 1), (1, 1)]


# -- what a result depends on ------------------------------------------------------------------------


def test_a_trials_key_changes_with_all_that_determines_it_and_nothing_else(tmp_path: Path) -> None:
    key = key_of(trial(), None)
    same = [
        trial(replace(FIFO, label="otherwise")),
        trial(workload=replace(generated(), name="otherwise", seeds=(0, 1))),
        trial(conditions=replace(IDEAL, name="otherwise")),
        replace(trial(), experiment="otherwise"),
    ]
    assert {key_of(each, None) for each in same} == {key}
    others = [
        trial(seed=1),
        trial(LAS),
        trial(replace(FIFO, settings={"backfill": "easy"})),
        trial(replace(FIFO, grid=({"backfill": "easy"},))),
        trial(workload=generated(load=0.8)),
        trial(workload=replace(generated(), cluster="3x4")),
        trial(workload=replace(generated(), warm_up=0.3)),
        trial(conditions=Conditions("ideal", "default")),
        trial(conditions=Conditions("ideal", "ideal", "exact")),
    ]
    assert len({key, *(key_of(each, None) for each in others)}) == len(others) + 1


def test_a_trials_key_changes_with_the_content_of_its_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, size in ((one, 1), (two, 2)):
        folder.mkdir()
        (folder / "t.csv").write_text(f"job_id,submit_s,gpus,duration_s\na,0,{size},5\n")
    fixed = trial(workload=Workload("w", TraceFile("t.csv"), "1x2"))
    assert key_of(fixed, one) != key_of(fixed, two)


def test_results_of_other_sources_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(suite(experiment()), tmp_path)
    monkeypatch.setattr(trial_cache, "digest_of_policy", lambda policy: "other code")
    _, trials = ran(suite(experiment()), tmp_path)
    assert len(trials) == 1


def test_every_source_file_of_ours_counts_for_every_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: digest(name) for name in ("las", "fair", "fifo")}
    real = trial_cache.file_digest

    def with_another_fifo(file: Path) -> str:
        return "changed" if file.name == "fifo.py" else real(file)

    monkeypatch.setattr(trial_cache, "file_digest", with_another_fifo)
    after = {name: digest(name) for name in before}
    assert not set(before.values()) & set(after.values())


def test_the_file_of_a_policy_from_elsewhere_counts_for_that_policy(tmp_path: Path) -> None:
    las, digests = digest("las"), set()
    for name in ("one", "two"):
        file = tmp_path / f"{name}.py"
        file.write_text(
            "from trainmaster.policies.fifo import Fifo\n\n\n"
            f"class Mine(Fifo):\n    name = 'mine'\n    about = '{name}'\n"
        )
        digests.add(digest(str(file)))
    assert len(digests | {las}) == 3
    assert digest("las") == las


def test_another_numpy_may_draw_other_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("las")
    monkeypatch.setattr(trial_cache, "version", lambda package: f"another {package}")
    assert digest("las") != before


def test_a_folder_is_known_by_what_its_files_hold(tmp_path: Path) -> None:
    file = tmp_path / "part" / "jobs.csv"
    file.parent.mkdir()
    digests = []
    for content in ("a,1\n", "a,2\n"):
        file.write_text(content)
        trial_cache.file_digest.cache_clear()
        digests.append(trial_cache.file_digest(tmp_path))
    assert digests[0] != digests[1]


def digest(policy: str) -> str:
    trial_cache.digest_of_policy.cache_clear()
    return trial_cache.digest_of_policy(policy)


def test_a_trial_that_raises_is_named_and_costs_no_other(tmp_path: Path) -> None:
    bad = Contender("bad", "fifo", settings={"backfill": "sideways"})
    result = run_suite(suite(experiment(FIFO, bad, LAS)), TrialCache(tmp_path), processes=2)
    assert [each.trial.contender.label for each in result.scored] == ["fifo", "las"]
    (failure,) = result.failures
    assert failure.trial.contender.label == "bad"
    assert "backfill must be one of none, skip, easy, not 'sideways'" in failure.error
    assert len(list(tmp_path.iterdir())) == 2


def die_at_three(piece: int) -> int:
    if piece == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return piece * piece


def test_a_process_that_is_killed_loses_its_piece_and_no_other() -> None:
    done = sorted(spread(die_at_three, range(6), 2), key=lambda each: each.place)
    assert [each.result for each in done] == [0, 1, 4, None, 16, 25]
    assert done[3].error == "its process ended with -9; is there enough memory?"


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        run_suite(suite(experiment()), TrialCache(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_here_is_skipped_and_said(tmp_path: Path) -> None:
    gone = Workload("gone", TraceFile("nowhere.csv"), "2x4")
    both = replace(experiment(FIFO, LAS), workloads=(generated(), gone))
    unknown = experiment(Contender("future", "no-such-policy"), FIFO, name="two")
    nothing = experiment(FIFO, workload=gone, name="three")
    ready, skipped = runnable(suite(both, unknown, nothing), tmp_path)
    assert [each.name for each in ready.experiments] == ["one", "two"]
    assert [each.name for each in ready.experiments[0].workloads] == ["generated"]
    assert ready.experiments[1].baseline == "fifo"
    why = f"nowhere.csv is not in {tmp_path}"
    assert skipped == (
        Skipped("one", "gone", why),
        Skipped("two", "future", "there is no policy no-such-policy"),
        Skipped("three", "gone", why),
    )


# -- suites ------------------------------------------------------------------------------------------


def test_a_suite_can_be_narrowed_to_experiments_and_seeds() -> None:
    both = suite(
        experiment(FIFO, workload=generated(seeds=(0, 1, 2))),
        experiment(FIFO, workload=Workload("w", TraceFile("t.csv"), "1x2"), name="two"),
    )
    assert [each.name for each in narrowed(both, ["two"], None).experiments] == ["two"]
    fewer, more = narrowed(both, [], 2), narrowed(both, [], 5)
    assert fewer.experiments[0].workloads[0].seeds == (0, 1)
    assert more.experiments[0].workloads[0].seeds == (0, 1, 2, 3, 4)
    assert more.experiments[1].workloads[0].seeds == (0,)
    with pytest.raises(SuiteError, match="test has no experiment 'three'; it has one, two"):
        narrowed(both, ["three"], None)


def test_tables_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(SuiteError, match="one has the contender fifo twice"):
        experiment(FIFO, FIFO)
    with pytest.raises(SuiteError, match="the baseline las is not a contender"):
        replace(experiment(FIFO), baseline="las")
    all_measured = replace(generated(), warm_up=0)
    tuned = Contender("tuned", "tiresias-l", grid=({}, {}))
    with pytest.raises(SuiteError, match="tuned is tuned on the jobs before the measured ones"):
        experiment(tuned, workload=all_measured)


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_loads_and_has_tracks_seeds_and_a_baseline(name: str) -> None:
    found = suite_of(name)
    assert found.name == name
    for each in found.experiments:
        assert isinstance(each, Experiment)
        assert each.question
        assert all(workload.seeds for workload in each.workloads)


def test_a_synthetic_trace_runs() -> None:
    head_of_line = Workload("w", SyntheticTrace("one-large-then-small"), "2x4", warm_up=0)
    fifo, las = (run_trial(trial(each, head_of_line)).score for each in (FIFO, LAS))
    assert fifo.jobs == las.jobs == 9
    assert fifo.excess_s is not None
    assert las.excess_s is not None
    assert las.excess_s < fifo.excess_s / 10
