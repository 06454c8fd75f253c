"""Every example, for real: stopped in the middle and started again, it has the uninterrupted loss curve."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sdk.fake_supervisor import FakeSupervisor
from tests.unit.sdk.warm import EXAMPLES, Bench, bench
from trainmaster.api.submission import Defaults, submission_of
from trainmaster.config.job_file import jobs_in_yaml

pytestmark = pytest.mark.live

TORCH = ("torch", "torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict")
WARM = (*TORCH, "trainmaster_sdk.torch", "lightning", "transformers.trainer")
STEPS, STOP_AFTER = 12, 4
FLAGS = ("--steps", str(STEPS))
SLOWLY = (*FLAGS, "--sleep", "0.1")
"""So that a stop finds it in the middle."""
ALONE = [
    "numpy_model",
    "plain_pytorch",
    "ddp",
    "elastic_ddp",
    "balanced_ddp",
    "fsdp",
    "lightning_loop",
    "hf_trainer",
    "accelerate_loop",
]


@pytest.fixture(name="runs")
def fixture_runs(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, WARM) as opened:
        yield opened


def joined(*curves: dict[int, str]) -> dict[int, str]:
    """One curve of several runs; no step may come twice."""
    steps = [step for curve in curves for step in curve]
    assert sorted(steps) == sorted(set(steps)), f"steps were done twice: {steps}"
    return {step: loss for curve in curves for step, loss in curve.items()}


@pytest.mark.parametrize("example", ALONE)
def test_stopped_and_started_again_it_learns_the_same(
    example: str, runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    straight = runs.start(f"{example}.py", *FLAGS, TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "a"))

    place = {
        "TRAINMASTER_CHECKPOINT_DIR": str(tmp_path / "b"),
        "TRAINMASTER_SOCKET": str(there.path),
    }
    first = runs.start(f"{example}.py", *SLOWLY, TRAINMASTER_ATTEMPT="1", **place)
    first.wait_for_step(STOP_AFTER)
    if example == "plain_pytorch":  # the other way to say it
        first.send(signal.SIGTERM)
    else:
        there.ask({"ask": "stop", "why": "suspend", "grace_s": 30.0})
    assert first.end() == 0, first.said
    (left,) = there.wait_for("leaving")
    at = left["step"]
    assert STOP_AFTER <= at < STEPS
    assert max(first.curve) == at
    assert {"say": "saved", "step": at} in there.heard
    assert there.said("done") == []

    second = runs.start(f"{example}.py", *FLAGS, TRAINMASTER_ATTEMPT="2", **place)
    assert second.end() == 0, second.said
    there.wait_for("done")
    assert straight.end() == 0, straight.said
    assert sorted(straight.curve) == list(range(1, STEPS + 1))
    assert joined(first.curve, second.curve) == straight.curve
    reported = there.said("progress")[-1]
    assert (reported["step"], reported["total_steps"]) == (STEPS, STEPS)


def test_save_now_does_not_stop_it(runs: Bench, there: FakeSupervisor, tmp_path: Path) -> None:
    one = runs.start(
        "numpy_model.py",
        *SLOWLY,
        TRAINMASTER_CHECKPOINT_DIR=str(tmp_path),
        TRAINMASTER_SOCKET=str(there.path),
    )
    one.wait_for_step(2)
    one.send(signal.SIGUSR1)
    (saved,) = there.wait_for("saved")
    assert (tmp_path / f"step-{saved['step']}").is_dir()
    assert one.end() == 0
    assert max(one.curve) == STEPS
    there.wait_for("done")


@pytest.mark.parametrize("example", ["ddp", "numpy_model", "fsdp"])
def test_all_ranks_leave_at_the_same_step_and_go_on_exactly(
    example: str, runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    straight = runs.start_gang(
        2, f"{example}.py", *FLAGS, TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "a")
    )
    place = {
        "TRAINMASTER_CHECKPOINT_DIR": str(tmp_path / "b"),
        "TRAINMASTER_SOCKET": str(there.path),
    }
    first = runs.start_gang(2, f"{example}.py", *SLOWLY, TRAINMASTER_ATTEMPT="1", **place)
    first[0].wait_for_step(STOP_AFTER)
    # One after the other, with a step in between: the worst that a busy machine may do.
    late = first[0] if example == "numpy_model" else first[1]
    soon = first[1] if example == "numpy_model" else first[0]
    soon.send(signal.SIGTERM)
    first[0].wait_for_step(STOP_AFTER + 1)
    late.send(signal.SIGTERM)
    assert [rank.end() for rank in first] == [0, 0], first[0].said + first[1].said
    left = there.wait_for("leaving", 2)
    at = max(first[0].curve)
    assert left[0]["step"] == at
    if example == "ddp":
        left_after = [re.findall(r"leaves after step (\d+)", rank.said) for rank in first]
        assert left_after == [[str(at)], [str(at)]]

    second = runs.start_gang(2, f"{example}.py", *FLAGS, TRAINMASTER_ATTEMPT="2", **place)
    assert [rank.end() for rank in second + straight] == [0] * 4, second[0].said
    assert joined(first[0].curve, second[0].curve) == straight[0].curve


def parameters(said: str, step: int) -> str:
    """Their fingerprint."""
    (found,) = re.findall(rf"^at step {step} parameters (\S+)$", said, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_shards_go_to_another_number_of_ranks(
    before: int, after: int, runs: Bench, tmp_path: Path
) -> None:
    place = {"TRAINMASTER_CHECKPOINT_DIR": str(tmp_path / "b")}
    first = runs.start_gang(before, "fsdp.py", *SLOWLY, TRAINMASTER_ATTEMPT="1", **place)
    first[0].wait_for_step(STOP_AFTER)
    for rank in first:
        rank.send(signal.SIGTERM)
    assert [rank.end() for rank in first] == [0] * before, first[0].said
    at = max(first[0].curve)
    second = runs.start_gang(after, "fsdp.py", *FLAGS, TRAINMASTER_ATTEMPT="2", **place)
    assert [rank.end() for rank in second] == [0] * after, second[0].said
    assert parameters(second[0].said, at) == parameters(first[0].said, at)
    assert min(second[0].curve) == at + 1
    assert max(second[0].curve) == STEPS


def test_ddp_goes_on_with_fewer_ranks_up_to_rounding(runs: Bench, tmp_path: Path) -> None:
    """48 samples over 3 ranks, then 2, are those of one rank; 5 ranks have shares of 9 and 10."""
    straight = runs.start("ddp.py", *FLAGS, TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "a"))
    place = {"TRAINMASTER_CHECKPOINT_DIR": str(tmp_path / "b")}
    curves = []
    for size, steps in ((5, 4), (3, 8), (2, STEPS)):
        gang = runs.start_gang(size, "ddp.py", "--steps", str(steps), **place)
        assert [rank.end() for rank in gang] == [0] * size, gang[0].said
        curves.append(gang[0].curve)
    assert straight.end() == 0
    wanted = {step: float(loss) for step, loss in straight.curve.items()}
    got = {step: float(loss) for step, loss in joined(*curves).items()}
    assert got == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("example", ALONE)
def test_it_has_a_job_file(example: str) -> None:
    """From the folder above the examples, it is taken as it is."""
    ((model, raw),) = jobs_in_yaml((EXAMPLES / f"{example}.yaml").read_text())
    job = submission_of(model, Defaults(user="ada", workdir=EXAMPLES.parent), raw)
    assert job.recipe.workdir == str(EXAMPLES)
    assert job.recipe.command[:2] == ("python", f"{example}.py")
    assert job.job.demand.nominal.count == (2 if example in ("ddp", "balanced_ddp") else 1)
