"""Limits, budgets and prices of a real manager: edited while jobs run, kept over a restart, summed up."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from tests.live.test_reasons import busy, define, reason_of, refused, waits
from trainmaster.engines.local import journal

pytestmark = pytest.mark.live


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def usage(daemon: LiveDaemon, by: str, **wanted: object) -> dict[str, Any]:
    query = "&".join(f"{key}={value}" for key, value in {"by": by, **wanted}.items())
    found: dict[str, Any] = daemon.call("GET", f"/api/v1/usage?{query}")
    return found


def me(daemon: LiveDaemon) -> str:
    return str(daemon.call("GET", "/api/v1/caller")["user"])


def test_limits_hold_at_once_and_after_a_restart(folder: Path) -> None:
    with live(folder, "--slots", "4", "--policy", "fifo") as daemon:
        user = me(daemon)
        define(daemon, "vision", max_gpus_per_user=1, max_jobs_per_user=2)
        with refused(422) as said:
            daemon.submit(command="true", queue="vision", gpus=2)
        assert "one user may use 1 GPU at most in queue vision" in said[0]
        first = busy(daemon, queue="vision")
        second, reason = waits(daemon, queue="vision")
        assert reason["code"] == "UserGpuLimit"
        assert reason["sentence"] == (
            f"{user} uses 1 of 1 GPU that one user may have in queue vision (job {first}); the job needs"
            " 1 GPU more."
        )
        with refused(429) as said:
            daemon.submit(command="true", queue="vision")
        assert said == [
            f"{user} has 2 jobs in queue vision that have not ended and may have 2: wait until some have"
            " ended, or submit fewer at once."
        ]
        daemon.call("PUT", f"/api/v1/user-limits/{user}", {"max_running": 1})
        third, reason = waits(daemon)
        assert reason["code"] == "UserRunningLimit"
        daemon.kill()
        daemon.start()
        daemon.until_active()
        assert reason_of(daemon, second)["code"] in ("UserGpuLimit", "UserRunningLimit")
        (row,) = daemon.call("GET", "/api/v1/user-limits")["limits"]
        assert (row["user"], row["max_running"], row["running"], row["jobs"]) == (user, 1, 1, 3)
        daemon.call("PUT", f"/api/v1/user-limits/{user}", {})
        daemon.until_state(third, "running")
        define(daemon, "vision", max_gpus_per_user=2)
        daemon.until_state(second, "running")


def test_a_budget_that_is_used_up_suspends_its_jobs_and_a_larger_one_lets_them_go_on(
    folder: Path,
) -> None:
    with live(folder, "--slots", "2", "--policy", "fifo") as daemon:
        budget = {"gpu_hours": 0.0001, "per": "year", "when_used_up": "suspend"}
        define(daemon, "vision", budget=budget)
        id = daemon.submit(command="sleep 600", workdir=str(daemon.folder), queue="vision")
        daemon.until_state(id, "suspended")
        assert reason_of(daemon, id)["code"] == "BudgetUsedUp"
        other = busy(daemon)
        (row,) = (each for each in _queues(daemon) if each["name"] == "vision")
        assert row["budget"]["used_ratio"] >= 1
        assert "The budget of queue vision is used up" in row["budget"]["warning"]
        assert row["budget"]["warning"] in daemon.call("GET", "/api/v1/status")["notes"]
        metrics = daemon.open("/metrics").read().decode()
        assert 'trainmaster_budget_used_ratio{queue="vision",user=""} 1.' in metrics
        define(daemon, "vision", budget=budget | {"gpu_hours": 1})
        daemon.until_state(id, "running")
        assert daemon.job(other)["state"] == "running"


def _queues(daemon: LiveDaemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.call("GET", "/api/v1/queues")["queues"]
    return found


def test_a_budget_that_is_used_up_is_said_once_where_it_applies(folder: Path) -> None:
    with live(folder, "--slots", "2", "--policy", "fifo") as daemon:
        define(daemon, "vision", budget={"gpu_hours": 0.00001, "per": "year"})

        def is_used_up() -> bool:
            (row,) = (each for each in _queues(daemon) if each["name"] == "vision")
            return bool(row["budget"]["used_ratio"] >= 1)

        daemon.submit(command="sleep 600", queue="vision", workdir=str(daemon.folder))
        until(is_used_up, "the budget to be used up")

        def said(*queues: str) -> list[str]:
            jobs = [{"command": "true", "queue": queue, "workdir": "/"} for queue in queues]
            found = daemon.call("POST", "/api/v1/jobs", {"jobs": jobs})["jobs"]
            remarks = [each for job in found for each in job["remarks"]]
            return [each for each in remarks if "used up" in each]

        assert said("default") == []
        (warning,) = said("vision", "vision")
        assert warning.startswith("The budget of queue vision is used up: new jobs wait;")
        assert said("vision") == []
        define(daemon, "vision", budget={"gpu_hours": 100, "per": "year"})
        assert said("vision") == []
        define(daemon, "vision", budget={"gpu_hours": 0.00001, "per": "day"})
        until(is_used_up, "the other period's budget to be used up")
        assert len(said("vision")) == 1


def test_usage_is_the_same_by_user_queue_job_and_type_and_prices_do_not_change_the_past(
    folder: Path,
) -> None:
    with live(folder, "--slots", "3", "--policy", "fifo") as daemon:
        first = busy(daemon)
        daemon.call("PUT", "/api/v1/prices", {"prices": {"slot": 2}, "currency": "EUR"})
        second = busy(daemon, queue="vision")
        until(lambda: usage(daemon, "user")["total"]["cost"] > 0, "a cost")
        daemon.call("PUT", "/api/v1/prices", {"prices": {}, "currency": "EUR"})
        daemon.kill()
        daemon.start()
        daemon.until_active()
        daemon.call("POST", f"/api/v1/jobs/{first}/suspend")
        daemon.until_state(first, "suspended")
        daemon.call("POST", f"/api/v1/jobs/{second}/cancel")
        daemon.until_state(second, "cancelled")
        daemon.call("POST", f"/api/v1/jobs/{first}/cancel")
        daemon.until_state(first, "cancelled")
        sums = {by: usage(daemon, by) for by in ("user", "queue", "job", "gpu-type")}
        attained = sum(daemon.job(id)["gpu_s"] for id in (first, second))
        priced = sums["job"]["total"]["gpu_hours"] - sums["job"]["total"]["unpriced_gpu_hours"]
        assert sums["job"]["total"]["cost"] == pytest.approx(2 * priced, abs=1e-5)
        assert priced > 0
        for report in sums.values():
            assert report["total"] == sums["user"]["total"]
            assert report["total"]["gpu_s"] == pytest.approx(attained, abs=0.002)
            assert sum(row["gpu_s"] for row in report["rows"]) == pytest.approx(attained, abs=0.002)
        assert {row["job"]: row["gpu_s"] for row in sums["job"]["rows"]} == pytest.approx(
            {id: daemon.job(id)["gpu_s"] for id in (first, second)}, abs=0.002
        )
        assert [row["gpu_type"] for row in sums["gpu-type"]["rows"]] == ["slot"]
        middle = daemon.job(first)["start_s"] + attained / 4
        early = usage(daemon, "job", until=f"{middle:.3f}")["total"]["gpu_s"]
        late = usage(daemon, "job", since=f"{middle:.3f}")["total"]["gpu_s"]
        assert early + late == pytest.approx(attained, abs=0.01)


def test_what_ended_while_the_manager_was_away_is_charged_as_its_journal_says(
    folder: Path,
) -> None:
    with live(folder, "--slots", "2", "--policy", "fifo") as daemon:
        go = folder.parent / "go"
        id = daemon.submit(command=f"until [ -e {go} ]; do sleep 0.1; done", gpus=2)
        daemon.until_state(id, "running")
        daemon.kill()
        go.touch()
        run = str(folder / "runs" / id / "1")
        until(lambda: journal.has_ended(run), "its end")
        end_ms = next(each["steady_ms"] for each in journal.read(run) if each["what"] == "ended")
        until(lambda: journal.steady_ms() > end_ms + 5_000, "a while in which nobody looks")
        daemon.start()
        daemon.until_active()
        daemon.until_state(id, "succeeded")
        steady = {each["what"]: each["steady_ms"] for each in journal.read(run)}
        ran_s = (steady["ended"] - steady["started"]) / 1000
        (row,) = usage(daemon, "job")["rows"]
        assert row["gpu_s"] == pytest.approx(2 * ran_s, abs=0.1)


def test_a_plain_user_sees_their_own_limits_and_use_and_changes_none(folder: Path) -> None:
    with live(folder, "--slots", "1", "--policy", "fifo") as daemon:
        daemon.call("PUT", "/api/v1/user-limits/ada", {"max_gpus": 1})
        daemon.call("PUT", "/api/v1/user-limits/bob", {"max_gpus": 1})
        ada = daemon.bearer_of("ada")
        rows = daemon.call("GET", "/api/v1/user-limits", None, **ada)["limits"]
        assert [row["user"] for row in rows] == ["ada"]
        assert daemon.call("GET", "/api/v1/usage", None, **ada)["rows"] == []
        for method, path in (
            ("GET", "/api/v1/usage?user=bob"),
            ("PUT", "/api/v1/user-limits/ada"),
            ("PUT", "/api/v1/prices"),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                daemon.call(method, path, {"prices": {}} if "prices" in path else {}, **ada)
            assert error.value.code == 403
            assert json.loads(error.value.read())["error"]["sentence"]
