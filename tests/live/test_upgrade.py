"""Data folders of an earlier version are opened and continued: see tests/fixtures/stores/README.md."""

from __future__ import annotations

import json
import os
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import live, of_folder, until
from trainmaster.config.limits import Limits
from trainmaster.core.invariants import check
from trainmaster.daemon.data_folder import Identity
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.recovery import Replayed, from_snapshot, recovered, replay_step
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model import codec
from trainmaster.model.actions import Freeze, Halt, Launch, Thaw
from trainmaster.model.events import PolicyChanged
from trainmaster.store.open import open_store
from trainmaster.store.rows import StepRow

STORES = Path(__file__).parents[1] / "fixtures" / "stores"
PREEMPTED = "las-preempted"
"""A store whose steps would be decided otherwise now."""
NAMES = sorted(
    {path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz")} - {PREEMPTED}
)
ENDED = {"succeeded", "failed", "timed_out", "cancelled"}

BASE = os.environ.get("TRAINMASTER_BASE")
"""A checkout of an earlier version, for the test that needs its code."""

REMOVED_FIELDS: frozenset[str] = frozenset()
"""Fields of memos that later versions dropped on purpose, with what they held."""


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def leaves(value: object) -> Iterator[object]:
    """The numbers and texts in a JSON value, without tags and without fields that were dropped."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key != codec.TAG and key not in REMOVED_FIELDS:
                yield from leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def opened(folder: Path) -> tuple[Replayed, Any]:
    """The controller of the newest snapshot, and the memo as the snapshot has it."""
    store = open_store(str(folder / "trainmaster.db"))
    assert store.acquire_leadership()  # which brings its tables up to date
    snapshot = store.snapshot()
    assert snapshot is not None
    found = from_snapshot(snapshot)
    memo = json.loads(snapshot.body_json)["controller"]["memo"]
    assert memo is not None
    kept = Counter(leaves(codec.encode(found.controller.memo)))
    lost = Counter(leaves(memo)) - kept
    assert not lost, f"the memo has lost {dict(lost)}"
    steps = list(store.steps(after=found.seq))
    assert steps
    for step in steps:  # every one gives the orders that it gave then
        assert replay_step(found, step) == codec.loads(step.orders_json), f"step {step.seq}"
    store.close()
    return found, memo


@pytest.mark.parametrize("name", NAMES)
def test_an_old_store_keeps_its_memo_and_replays_its_steps(name: str, tmp_path: Path) -> None:
    found, _ = opened(unpacked(name, tmp_path))
    assert found.policy.name == name.removesuffix("-queues")


def test_an_old_store_with_preemptions_is_followed_and_loses_nothing(tmp_path: Path) -> None:
    folder = unpacked(PREEMPTED, tmp_path)
    store = open_store(str(folder / "trainmaster.db"))
    assert store.acquire_leadership()
    orders = [order for step in store.steps() for order in codec.loads(step.orders_json)]
    assert {type(order) for order in orders} >= {Launch, Freeze, Thaw, Halt}
    snapshot = store.snapshot()
    assert snapshot is not None
    topology = codec.decode(json.loads(snapshot.body_json)["topology"])
    engine = LocalEngine(tmp_path / "runs", topology)
    driver, found = recovered(store, engine, None, Metrics(), Identity(), Limits())
    assert not found.is_as_stored, "rules have changed since: its orders are followed"
    assert (found.lost, found.trouble, found.policy.name) == (set(), "", "las")
    before = json.loads((folder / "answers.json").read_text())
    for id, was in before.items():
        live, record = driver.jobs[id], driver.controller.state.jobs[id]
        state = "suspended" if was["state"] == "held" else was["state"]
        assert (live.state, record.attempt) == (state, was["attempt"]), id
        assert record.preemptions == was["preemptions"], id
    assert driver.controller.state.jobs.keys() == before.keys()
    check(driver.controller.state)
    store.close()


def test_an_option_that_is_gone_does_not_keep_an_old_store_closed(tmp_path: Path) -> None:
    """`reserve` was an option of `trainmaster` then, and `shrink` in a later step."""
    store = open_store(str(unpacked("trainmaster", tmp_path) / "trainmaster.db"))
    assert store.acquire_leadership()
    snapshot = store.snapshot()
    assert snapshot is not None
    store.close()
    body = json.loads(snapshot.body_json)
    body["policy"] = ["trainmaster", [["reserve", "on"], ["min_run_s", "30"]]]
    found = from_snapshot(replace(snapshot, body_json=json.dumps(body)))
    assert found.controller.policy.options.min_run_s == 30  # type: ignore[attr-defined]
    assert not found.trouble
    change = PolicyChanged("trainmaster", (("shrink", "on"),))
    replay_step(
        found, StepRow(found.seq + 1, found.now_ms + 1, codec.dumps((change,)), codec.dumps(()))
    )
    assert found.policy == change.spec
    assert not found.trouble


def has_reason(row: dict[str, Any]) -> bool:
    return row["state"] not in {"pending", "suspended"} or bool(row["reason"])


@pytest.mark.live
@pytest.mark.parametrize("name", ["trainmaster", "trainmaster-queues", "themis"])
def test_an_old_data_folder_is_shown_and_continued(name: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path / "data")
    before = json.loads((folder / "answers.json").read_text())
    with live(folder, "--slots", "2x4") as manager:
        rows = {row["id"]: row for row in manager.call("GET", "/api/v1/jobs?limit=500")["jobs"]}
        assert set(rows) == set(before)
        for id, was in before.items():
            row = rows[id]
            assert (row["name"], row["user"], row["queue"]) == (
                was["name"],
                was["user"],
                was["queue"],
            )
            story = manager.call("GET", f"/api/v1/jobs/{id}/story")["story"]
            assert [each["what"] for each in story][: len(was["story"])] == was["story"]
            if was["state"] in ENDED:
                assert row["state"] == was["state"]
            until(lambda id=id: has_reason(manager.job(id)), f"the reason why job {id} waits")
        is_by_hand = {id for id, was in before.items() if was["name"] == "suspended"}
        for id in is_by_hand:
            row = manager.job(id)
            has_run = row["start_s"] is not None
            assert row["state"] == ("suspended" if has_run else "pending")
            assert row["reason"]["code"] == ("SuspendedByUser" if has_run else "Held")
            manager.call("POST", f"/api/v1/jobs/{id}/resume")
        for id, was in before.items():
            wanted = was["state"] if was["state"] in ENDED else "succeeded"
            manager.until_state(id, wanted)


@pytest.mark.live
@pytest.mark.skipif(BASE is None, reason="TRAINMASTER_BASE names no checkout of an earlier version")
def test_a_run_of_an_old_manager_goes_on_under_the_new_one(tmp_path: Path) -> None:
    assert BASE is not None
    folder, ticking = tmp_path / "data", Path(__file__).parent / "ticking.py"
    job = {"command": ["python3", str(ticking), "300", str(tmp_path)], "workdir": str(tmp_path)}
    with live(folder, "--slots", "2", checkout=Path(BASE)) as old:
        ids = [old.submit(**job), old.submit(**job)]
        for id in ids:
            old.until_state(id, "running")
            until(lambda id=id: old.job(id)["progress"], "the first progress report")
        before = {id: old.job(id) for id in ids}
        last = old.submit(**job | {"command": "true"})
        old.kill()
        pids = of_folder(folder)
        with live(folder, "--slots", "2") as new:
            for id in ids:
                now = new.job(id)
                assert now["state"] == "running"
                assert now["pids"] == before[id]["pids"]
            assert set(before[ids[0]]["pids"]) <= set(pids)
            until(
                lambda: (
                    new.job(ids[0])["progress"]["step"] > before[ids[0]]["progress"]["step"] + 8
                ),
                "progress under the new manager",
            )
            # Words to a supervisor of the old version: save, suspend, resume, and the end.
            new.call("POST", f"/api/v1/jobs/{ids[0]}/save")
            new.call("POST", f"/api/v1/jobs/{ids[1]}/suspend")
            new.until_state(ids[1], "suspended")
            new.until_state(last, "succeeded")
            new.call("POST", f"/api/v1/jobs/{ids[1]}/resume")
            for id in ids:
                new.until_state(id, "succeeded")
            assert new.job(ids[0])["attempt"] == 1
    told = (tmp_path / "told.txt").read_text()
    assert "TWICE" not in told


@pytest.mark.live
@pytest.mark.skipif(BASE is None, reason="TRAINMASTER_BASE names no checkout of an earlier version")
@pytest.mark.parametrize("pause_s", [2.0, 3.3, 5.1])
def test_runs_of_an_old_manager_that_preempts_go_on_under_the_new_one(
    pause_s: float, tmp_path: Path
) -> None:
    """Frozen, halted, about to go on: whatever each run was doing when its manager was killed."""
    assert BASE is not None
    folder, ticking = tmp_path / "data", Path(__file__).parent / "ticking.py"
    job = {"command": ["python3", str(ticking), "120", str(tmp_path)], "workdir": str(tmp_path)}
    las = ("--slots", "2x2", "--policy", "las", "--set", "quantum_s=1")
    with live(folder, *las, checkout=Path(BASE)) as old:
        sizes = [(1 + number % 3 // 2, number % 4 != 3) for number in range(9)]
        ids = [old.submit(**job, gpus=gpus, stays_in_memory=stays) for gpus, stays in sizes]
        time.sleep(pause_s)
        old.kill()
        with live(folder, "--slots", "2x2") as new:
            for id in ids:
                new.until_state(id, "succeeded")
                story = new.call("GET", f"/api/v1/jobs/{id}/story")["story"]
                assert not {"RunLost", "RunFailed"} & {each["what"] for each in story}
    said = (folder / "out.txt").read_text()
    assert "lost" not in said
    assert "Ended run" not in said
    told = [line.split() for line in (tmp_path / "told.txt").read_text().splitlines()]
    assert sorted(job for job, _, _, what in told if what == "ends") == ids
    assert not [job for job, _, _, what in told if what == "TWICE"]


@pytest.mark.live
@pytest.mark.skipif(BASE is None, reason="TRAINMASTER_BASE names no checkout of an earlier version")
@pytest.mark.parametrize(("first", "then"), [("2x2", "2"), ("2", "3")])
def test_a_run_of_an_old_manager_whose_devices_had_changed_goes_on(
    first: str, then: str, tmp_path: Path
) -> None:
    """It stored no snapshot when they changed: its steps mean other devices than its snapshot."""
    assert BASE is not None
    with live(tmp_path, "--slots", first, checkout=Path(BASE)) as old:
        old.until_state(old.submit(command="true"), "succeeded")
        old.stop()
        old.arguments = ("--slots", then)
        old.start()
        old.until_active()
        ids = [old.submit(command="sleep 300"), old.submit(command="sleep 300")]
        pids = [old.until_state(id, "running")["pids"] for id in ids]
        old.kill()
        with live(tmp_path, "--slots", then) as new:
            assert [new.job(id)["pids"] for id in ids] == pids
            assert {new.job(id)["state"] for id in ids} == {"running"}
