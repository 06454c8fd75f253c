"""A job's secret reaches its program, and nothing else: no file of ours, no answer, no log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.daemons import live

pytestmark = pytest.mark.live
VALUE = "w-secret-123456"


def test_a_secret_reaches_its_program_alone(tmp_path: Path) -> None:
    file, seen = tmp_path / "key", tmp_path / "seen"
    file.write_text(VALUE)
    file.chmod(0o600)
    data = tmp_path / "data"
    with live(data, "--slots", "1") as daemon:
        command = f"printf %s $WANDB_API_KEY > {seen}; echo key $WANDB_API_KEY; exit 3"
        job = daemon.submit(
            command=command,
            retries=0,
            secrets={"WANDB_API_KEY": str(file)},
            env={"HF_TOKEN": "hf-in-clear"},
        )
        daemon.until_state(job, "failed")
        assert seen.read_text() == VALUE
        assert "key ***" in daemon.log(job)
        row = daemon.job(job)
        assert row["spec"]["env"]["HF_TOKEN"] == "***"
        answers = [row, daemon.call("GET", f"/api/v1/jobs/{job}/story")]
        assert VALUE not in json.dumps(answers)
        assert "hf-in-clear" not in json.dumps(answers)
        daemon.stop()
        kept = [path for path in data.rglob("*") if path.is_file()]
        assert [path for path in kept if VALUE.encode() in path.read_bytes()] == []


def test_a_secret_that_others_can_read_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(VALUE)
    file.chmod(0o644)
    with live(tmp_path / "data", "--slots", "1") as daemon:
        job = daemon.submit(command="true", retries=3, secrets={"KEY": str(file)})
        row = daemon.until_state(job, "failed")
        assert row["attempt"] == 1
        said = daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]
        assert any("chmod 600" in entry["sentence"] for entry in said)
